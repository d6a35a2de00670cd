/** P(l|n) of the contextual tokens in the letters of the theory: K classes, L tokens, Q queries. */
export class Contexts {
  constructor(classes, start) {
    const { K } = classes
    const inPlay = Int32Array.from(new Set(classes.tokens)).sort()
    const column = new Map([...inPlay].map((token, l) => [token, l]))
    Object.assign(this, { classes, K, L: inPlay.length, Q: classes.queries.length, M: classes.M })
    this.psi = classes.queryIndex
    this.prior = classes.prior
    this.column = Int32Array.from(classes.tokens, (token) => column.get(token))
    /** z only where some class of the query draws the token: a place for each non-zero of P */
    const places = new Map()
    this.zPlace = new Int32Array(classes.size)
    const z0 = []
    for (let k = 0; k < K; k++) {
      for (let i = classes.offsets[k]; i < classes.offsets[k + 1]; i++) {
        const key = this.psi[k] * this.L + this.column[i]
        if (!places.has(key)) {
          places.set(key, places.size)
          z0.push(start(this.psi[k], classes.tokens[i]))
        }
        this.zPlace[i] = places.get(key)
      }
    }
    this.z0 = Float64Array.from(z0)
  }

  /** f_n = c_n/|c_n| of each class, for each non-zero of P; z from `at` on in the state. */
  unitAttention(state, at, f) {
    const { classes, zPlace } = this
    for (let k = 0; k < this.K; k++) {
      const begin = classes.offsets[k], end = classes.offsets[k + 1]
      let highest = -Infinity, squares = 0
      for (let i = begin; i < end; i++) highest = Math.max(highest, state[at + zPlace[i]])
      for (let i = begin; i < end; i++) {
        f[i] = classes.values[i] * Math.exp(state[at + zPlace[i]] - highest)
        squares += f[i] * f[i]
      }
      const scale = 1 / Math.sqrt(squares)
      for (let i = begin; i < end; i++) f[i] *= scale
    }
  }

  /** Rows a_k . b_n over tokens, (K, K), for two sets of rows on the non-zeros of P. */
  products(a, b, out) {
    const { K, L, classes, column } = this
    this.dense ??= new Float64Array(L)
    for (let n = 0; n < K; n++) {
      this.dense.fill(0)
      for (let i = classes.offsets[n]; i < classes.offsets[n + 1]; i++) this.dense[column[i]] = b[i]
      for (let k = 0; k < K; k++) {
        let sum = 0
        for (let i = classes.offsets[k]; i < classes.offsets[k + 1]; i++) sum += a[i] * this.dense[column[i]]
        out[k * K + n] = sum
      }
    }
  }

  /** sum_n coefficients[k, n] b_n at the tokens of class k, for each non-zero of P. */
  mix(coefficients, b, out) {
    const { K, L, classes, column } = this
    this.dense ??= new Float64Array(L)
    out.fill(0)
    for (let n = 0; n < K; n++) {
      this.dense.fill(0)
      for (let i = classes.offsets[n]; i < classes.offsets[n + 1]; i++) this.dense[column[i]] = b[i]
      for (let k = 0; k < K; k++) {
        const c = coefficients[k * K + n]
        if (c === 0) continue
        for (let i = classes.offsets[k]; i < classes.offsets[k + 1]; i++) out[i] += c * this.dense[column[i]]
      }
    }
  }
}
