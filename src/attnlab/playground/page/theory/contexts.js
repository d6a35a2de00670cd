/** P(l|n) of the contextual tokens in the letters of the theory: K classes, z of each query and token. */
import { writeAttention } from "../simulator/gradient.js"
import { Layout } from "../simulator/layout.js"

export class Contexts {
  constructor(classes, start) {
    // nothing is lumped: a slot is a non-zero of P, and its place that of its token
    const layout = new Layout(classes, { lump: false, symmetric: true, start })
    const { K, M, prior } = classes
    Object.assign(this, { classes, layout, K, M, prior, zPlace: layout.zPlace, z0: layout.zStart })
    this.dense = new Float64Array(layout.A)
  }

  /** f_n = c_n/|c_n| of each class, for each non-zero of P. */
  unitAttention(z, f) {
    const { offsets } = this.classes
    writeAttention(this.layout, z, f, 0)
    for (let k = 0; k < this.K; k++) {
      let squares = 0
      for (let i = offsets[k]; i < offsets[k + 1]; i++) squares += f[i] * f[i]
      for (let i = offsets[k]; i < offsets[k + 1]; i++) f[i] /= Math.sqrt(squares)
    }
  }

  /** Rows a_k . b_n over tokens, (K, K), for two sets of rows on the non-zeros of P. */
  products(a, b, out) {
    const { K, classes: { offsets }, layout: { place } } = this
    for (let n = 0; n < K; n++) {
      const row = this._row(b, n)
      for (let k = 0; k < K; k++) {
        let sum = 0
        for (let i = offsets[k]; i < offsets[k + 1]; i++) sum += a[i] * row[place[i]]
        out[k * K + n] = sum
      }
    }
  }

  /** sum_n coefficients[k, n] b_n at the tokens of class k, for each non-zero of P. */
  mix(coefficients, b, out) {
    const { K, classes: { offsets }, layout: { place } } = this
    out.fill(0)
    for (let n = 0; n < K; n++) {
      const row = this._row(b, n)
      for (let k = 0; k < K; k++) {
        const c = coefficients[k * K + n]
        if (c !== 0) for (let i = offsets[k]; i < offsets[k + 1]; i++) out[i] += c * row[place[i]]
      }
    }
  }

  /** Row n of b over all tokens. */
  _row(b, n) {
    const { dense, classes: { offsets }, layout: { place } } = this
    dense.fill(0)
    for (let i = offsets[n]; i < offsets[n + 1]; i++) dense[place[i]] = b[i]
    return dense
  }
}
