/** Random numbers from a seed: xoshiro128**. */

export class Random {
  constructor(seed) {
    // splitmix32 turns any seed into a state that is not all zero
    let x = seed >>> 0
    const word = () => {
      x = (x + 0x9e3779b9) | 0
      let z = x ^ (x >>> 16)
      z = Math.imul(z, 0x21f0aaad)
      z = Math.imul(z ^ (z >>> 15), 0x735a2d97)
      return (z ^ (z >>> 15)) | 0
    }
    // in an array of integers: as numbers of an object they would be made anew at every draw
    this.state = Int32Array.of(word(), word(), word(), word() | 1)
    for (let i = 0; i < 8; i++) this.bits()
  }

  /** 32 random bits as a signed number. */
  bits() {
    const { state } = this
    let a = state[0], b = state[1], c = state[2], d = state[3]
    const r = Math.imul(b, 5)
    const t = b << 9
    c ^= a
    d ^= b
    state[1] = b ^ c
    state[0] = a ^ d
    state[2] = c ^ t
    state[3] = (d << 11) | (d >>> 21)
    return Math.imul((r << 7) | (r >>> 25), 9)
  }

  /** In (0, 1), of 53 bits, never an end. */
  uniform() {
    return ((this.bits() >>> 5) * 67108864 + (this.bits() >>> 6) + 0.5) / 9007199254740992
  }

  /** A standard normal number. */
  normal() {
    return Math.sqrt(-2 * Math.log(this.uniform())) * Math.cos(2 * Math.PI * this.uniform())
  }
}
