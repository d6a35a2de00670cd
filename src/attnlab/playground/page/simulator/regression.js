/**
 * In-context regression with linear attention: the flow of its expected loss (Zhang et al., 2025).
 *
 * Labels are y = w.x for inputs of covariance diag(lambda), with w new in every sequence. Attention of one layer
 * answers beta^T A x_q, and A = sum_i v_i U_i (merged key and query) or sum_i v_i k_i q_i^T (separate). With
 * gamma = (1 + 1/N) lambda + sum(lambda)/N and the drive G = diag(lambda^2) - diag(lambda gamma) A diag(lambda),
 *
 *     v' = <U, G>, U' = v G,      or      v' = k.G q, k' = v G q, q' = v G^T k.
 */
import { Solver } from "../theory/solving.js"
import { Random } from "./random.js"

export class InContextRegression {
  constructor(lambda, examples) {
    const trace = sum(lambda)
    Object.assign(this, { lambda, D: lambda.length, trace })
    this.gamma = lambda.map((l) => (1 + 1 / examples) * l + trace / examples)
  }

  /** The losses at which separate key and query rest, from no component to all. */
  get levels() {
    const found = [this.trace]
    this.lambda.forEach((l, d) => found.push(found[d] - l * l / this.gamma[d]))
    return found
  }

  loss(A) {
    const { lambda, gamma, D } = this
    let total = this.trace
    for (let c = 0; c < D; c++) {
      total -= 2 * lambda[c] ** 2 * A[c * D + c]
      for (let d = 0; d < D; d++) total += lambda[c] * gamma[c] * A[c * D + d] ** 2 * lambda[d]
    }
    return total
  }

  /** Weights of standard deviation `std`, head by head: v and U, or v, k and q. */
  start({ separate, heads, std, seed }) {
    const random = new Random(seed)
    return Float64Array.from({ length: heads * this._width(separate) }, () => std * random.normal())
  }

  /** The loss at flow times, from the weights at the start. */
  train({ separate, start, times }) {
    const width = this._width(separate), heads = start.length / width
    const solver = new Solver((_, y, out) => this._velocity(y, out, heads, width, separate), start, { rtol: 1e-6, atol: 1e-9 })
    return times.map((t) => {
      while (!solver.step(t));
      return this.loss(this._matrix(solver.y, heads, width, separate))
    })
  }

  _width(separate) {
    return separate ? 1 + 2 * this.D : 1 + this.D ** 2
  }

  _matrix(y, heads, width, separate) {
    const { D } = this, A = new Float64Array(D * D)
    for (let i = 0; i < heads; i++) {
      const v = y[i * width], at = i * width + 1
      for (let c = 0; c < D; c++) {
        for (let d = 0; d < D; d++) A[c * D + d] += v * (separate ? y[at + c] * y[at + D + d] : y[at + c * D + d])
      }
    }
    return A
  }

  _velocity(y, out, heads, width, separate) {
    const { lambda, gamma, D } = this, G = this._matrix(y, heads, width, separate)
    for (let c = 0; c < D; c++) {
      for (let d = 0; d < D; d++) G[c * D + d] = (c === d ? lambda[c] ** 2 : 0) - lambda[c] * gamma[c] * G[c * D + d] * lambda[d]
    }
    out.fill(0)
    for (let i = 0; i < heads; i++) {
      const own = i * width, v = y[own], at = own + 1
      for (let c = 0; c < D; c++) {
        for (let d = 0; d < D; d++) {
          const g = G[c * D + d]
          if (separate) {
            out[own] += y[at + c] * g * y[at + D + d]
            out[at + c] += v * g * y[at + D + d]
            out[at + D + d] += v * g * y[at + c]
          } else {
            out[own] += y[at + c * D + d] * g
            out[at + c * D + d] = v * g
          }
        }
      }
    }
  }
}

const sum = (values) => values.reduce((total, value) => total + value, 0)
