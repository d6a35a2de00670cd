/** Random numbers from a seed: xoshiro128**, and exact binomials. */

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

  below(n) {
    return Math.floor(this.uniform() * n)
  }

  /** A standard normal number. */
  normal() {
    return Math.sqrt(-2 * Math.log(this.uniform())) * Math.cos(2 * Math.PI * this.uniform())
  }

  /** How many of n trials succeed with probability p each. */
  binomial(n, p) {
    if (n === 0 || p <= 0) return 0
    if (p >= 1) return n
    if (p > 0.5) return n - this.binomial(n, 1 - p)
    return n * p < 12 ? this._inverted(n, p) : this._rejected(n, p)
  }

  /** By inversion: the probabilities of 0, 1, 2, ... are taken off a uniform number. */
  _inverted(n, p) {
    const odds = p / (1 - p)
    const none = Math.exp(n * Math.log1p(-p))
    for (;;) {
      let u = this.uniform(), left = none, k = 0
      while (u > left && k < n) {
        u -= left
        k += 1
        left *= ((n - k + 1) * odds) / k
      }
      if (u <= left) return k // rounding may leave a crumb past the last: then draw again
    }
  }

  /** By transformed rejection (Hoermann's BTRS, 1993), exact for n p >= 10 and p <= 1/2. */
  _rejected(n, p) {
    const sd = Math.sqrt(n * p * (1 - p))
    const b = 1.15 + 2.53 * sd
    const a = -0.0873 + 0.0248 * b + 0.01 * p
    const c = n * p + 0.5
    const vr = 0.92 - 4.2 / b
    const alpha = (2.83 + 5.1 / b) * sd
    const logOdds = Math.log(p / (1 - p))
    const mode = Math.floor((n + 1) * p)
    const atMode = logFactorial(mode) + logFactorial(n - mode)
    for (;;) {
      const u = this.uniform() - 0.5
      let v = this.uniform()
      const us = 0.5 - Math.abs(u)
      const k = Math.floor((2 * a / us + b) * u + c)
      if (k < 0 || k > n) continue
      if (us >= 0.07 && v <= vr) return k
      v = Math.log((v * alpha) / (a / (us * us) + b))
      if (v <= atMode - logFactorial(k) - logFactorial(n - k) + (k - mode) * logOdds) return k
    }
  }
}

const FIRST = [0, 0]
for (let n = 2; n < 128; n++) FIRST.push(FIRST[n - 1] + Math.log(n))

/** ln n!, by Stirling's series past the first; its error there is below 1e-16 of it. */
function logFactorial(n) {
  if (n < FIRST.length) return FIRST[n]
  const s = 1 / (n * n)
  return (n + 0.5) * Math.log(n) - n + 0.9189385332046727 +
    (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s / 1680))) / n
}
