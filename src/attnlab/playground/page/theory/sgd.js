/**
 * Attention under the decoder that SGD trains (ours, docs/theory-sgd.md): Y(t) = F(0) A(t) with
 *
 *     dA_n/dt = eta_Y P(n) (e_n - softmax(A^T F(0)^T f_n(0))),
 *     dz_m/dt = eta_Z sum over classes k of m of P(k) diag(f_k)(I - f_k f_k^T) F(0) A (e_k - alpha_k).
 *
 * With momentum mu each has a memory that forgets mu a step: m' = -ln mu (push/(1 - mu) - m).
 */
export class SgdDecoder {
  constructor(contexts, { etaY, etaZ, momentum }) {
    const { K, M, classes } = contexts
    this.contexts = contexts
    this.rates = [etaY, etaZ]
    this.J = classes.targets.length + 1 // the last column stands for all other outputs
    this.count = new Float64Array(this.J).fill(1)
    this.count[this.J - 1] = M - classes.targets.length
    this.cells = K * this.J
    this.f0 = new Float64Array(classes.size)
    this.f = new Float64Array(classes.size)
    this.sent = new Float64Array(classes.size)
    contexts.unitAttention(contexts.z0, this.f0)
    this.E0 = new Float64Array(K * K)
    contexts.products(this.f0, this.f0, this.E0)
    this.E = new Float64Array(K * K)
    this.errors = new Float64Array(this.cells)
    this.coefficients = new Float64Array(K * K)
    this.mu = momentum
    const half = this.cells + contexts.z0.length
    const start = new Float64Array(half)
    start.set(contexts.z0, this.cells)
    this.half = half
    this.initial = start
    if (momentum > 0) {
      const pushed = new Float64Array(half), kappa = -Math.log(momentum)
      this._push(start, pushed)
      // as far behind in the end as heavy-ball steps are, whose first has its whole gradient
      const begun = 1 / (1 - momentum) - (kappa * momentum) / (1 - momentum) ** 2
      this.initial = new Float64Array(2 * half)
      this.initial.set(start)
      this.initial.set(pushed.map((p) => begun * p), half)
      this.pushed = pushed
    }
    this.rtol = 1e-7
    this.atol = 1e-9
  }

  clock(plainSteps, steps) {
    return steps
  }

  logits(state) {
    return state.subarray(this.cells, this.half)
  }

  velocity(_, state, out) {
    if (!(this.mu > 0)) return this._push(state, out)
    const { half, mu, pushed } = this
    const kappa = -Math.log(mu)
    this._push(state, pushed)
    for (let i = 0; i < half; i++) {
      const m = state[half + i]
      out[i] = m
      out[half + i] = kappa * (pushed[i] / (1 - mu) - m)
    }
  }

  /** What plain steps would move A and z by, per unit of time. */
  _push(state, out) {
    const { contexts, f, f0, sent, errors, coefficients, count, J, cells } = this
    const { K, classes, prior, zPlace } = contexts
    this._errors(this.E0, state)
    for (let n = 0; n < K; n++) {
      for (let j = 0; j < J; j++) out[n * J + j] = this.rates[0] * prior[n] * errors[n * J + j]
    }
    contexts.unitAttention(this.logits(state), f)
    contexts.products(f, f0, this.E)
    this._errors(this.E, state)
    for (let k = 0; k < K; k++) {
      for (let n = 0; n < K; n++) {
        let sum = 0
        for (let j = 0; j < J; j++) sum += errors[k * J + j] * count[j] * state[n * J + j]
        coefficients[k * K + n] = sum
      }
    }
    contexts.mix(coefficients, f0, sent)
    out.fill(0, cells, this.half)
    for (let k = 0; k < K; k++) {
      const begin = classes.offsets[k], end = classes.offsets[k + 1]
      let radial = 0
      for (let i = begin; i < end; i++) radial += f[i] * sent[i]
      for (let i = begin; i < end; i++) {
        out[cells + zPlace[i]] += this.rates[1] * prior[k] * f[i] * (sent[i] - f[i] * radial)
      }
    }
  }

  /** e_k - alpha_k for output logits (overlaps A), (K, J); the last is that of a single output. */
  _errors(overlaps, A) {
    const { errors, count, J } = this
    const { K, classes } = this.contexts
    for (let k = 0; k < K; k++) {
      let highest = -Infinity, total = 0
      for (let j = 0; j < J; j++) {
        let w = 0
        for (let n = 0; n < K; n++) w += overlaps[k * K + n] * A[n * J + j]
        errors[k * J + j] = w
        if (w > highest) highest = w
      }
      for (let j = 0; j < J; j++) {
        const odds = Math.exp(errors[k * J + j] - highest)
        errors[k * J + j] = odds
        total += count[j] * odds
      }
      for (let j = 0; j < J; j++) errors[k * J + j] /= -total
      errors[k * J + classes.targetIndex[k]] += 1
    }
  }
}
