/**
 * Eq. 10 with our corrections (docs/errata.md): attention under the decoder of Theorem 1.
 *
 * dz_m/dtau = sum over classes n of m of P(n) diag(f_n) (xi_n f_n - sum_n' beta_nn' f_n'), with beta
 * of Eq. 88 and tau the reduced time; uneven classes have a clock each (ours).
 */
import { InputError } from "../simulator/errors.js"
import { gamma, reducedTime } from "./clocks.js"

export class Eq10 {
  constructor(contexts, { etaY, etaZ }) {
    const { K, classes } = contexts
    Object.assign(this, { contexts, etaY, etaZ })
    this.initial = contexts.z0
    this.even = contexts.prior.every((p) => Math.abs(p * K - 1) <= 1e-9)
    this.f = new Float64Array(classes.size)
    this.sent = new Float64Array(classes.size)
    this.E = new Float64Array(K * K)
    this.rtol = 1e-7
    this.atol = 1e-9
  }

  /** The solver's time for a number of plain steps. */
  clock(plainSteps) {
    const { K, M } = this.contexts
    return this.even ? reducedTime(plainSteps, K, M, this.etaY, this.etaZ) : plainSteps
  }

  logits(state) {
    return state
  }

  velocity(time, z, out) {
    const { contexts, f, sent, E } = this
    const { K, M, classes, prior, zPlace } = contexts
    contexts.unitAttention(z, f)
    contexts.products(f, f, E)
    for (let n = 0; n < K; n++) E[n * K + n] = 0
    const b = beta(E, K, M)
    contexts.mix(b, f, sent)
    out.fill(0)
    for (let n = 0; n < K; n++) {
      let xi = 0
      for (let k = 0; k < K; k++) xi += b[n * K + k] * E[n * K + k]
      const share = this.even ? prior[n] : this.etaZ * prior[n] * gamma(time, prior[n], M, this.etaY)
      for (let i = classes.offsets[n]; i < classes.offsets[n + 1]; i++) {
        out[zPlace[i]] += share * f[i] * (xi * f[i] - sent[i])
      }
    }
  }
}

/** beta[n, n'] of Eq. 88: q1 E'_nn' - q0 (1 - sum_{k != n} E'_kn'), 0 on the diagonal. */
function beta(E, K, M) {
  const q1 = M / (M - 1), q0 = -M / (M - 1) ** 2
  const prime = ePrime(E, K)
  const columns = new Float64Array(K)
  for (let n = 0; n < K; n++) for (let k = 0; k < K; k++) columns[k] += prime[n * K + k]
  const b = new Float64Array(K * K)
  for (let n = 0; n < K; n++) {
    for (let k = 0; k < K; k++) {
      if (n === k) continue
      const own = prime[n * K + k]
      b[n * K + k] = q1 * own - q0 * (1 - (columns[k] - own))
    }
  }
  return b
}

/** E' = I - (I + E)^-1 = (I + E)^-1 E (Lemma 14), by elimination: I + E has the overlaps of unit vectors. */
function ePrime(E, K) {
  const a = Float64Array.from(E), x = Float64Array.from(E)
  for (let i = 0; i < K; i++) a[i * K + i] += 1
  for (let c = 0; c < K; c++) {
    if (a[c * K + c] < 1e-14) throw new InputError("two classes attend alike: Eq. 10 has no solution")
    for (let r = 0; r < K; r++) {
      if (r === c) continue
      const factor = a[r * K + c] / a[c * K + c]
      if (factor === 0) continue
      for (let j = c; j < K; j++) a[r * K + j] -= factor * a[c * K + j]
      for (let j = 0; j < K; j++) x[r * K + j] -= factor * x[c * K + j]
    }
  }
  for (let r = 0; r < K; r++) for (let j = 0; j < K; j++) x[r * K + j] /= a[r * K + r]
  return x
}
