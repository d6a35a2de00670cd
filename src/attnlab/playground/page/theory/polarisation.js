/**
 * Attention that nothing normalises, each class on its own (polarisation, level "polarisation-class"):
 * with p the attention of class n, u the decoder's values for its target and ubar = p . u,
 *
 *     du/dt = s p,   da/dt = s rho p (u - ubar),   s = eta_Y P(n) / (1 + exp(M ubar/(M - 1))/(M - 1)),
 *
 * where rho = eta_Z/eta_Y M/(M - 1). A token of several classes gets the mean of their logits, by P(n).
 */
import { writeAttention } from "../simulator/gradient.js"

export class Polarisation {
  constructor(contexts, { etaY, etaZ }) {
    Object.assign(this, { contexts, etaY, rtol: 1e-7, atol: 1e-10 })
    this.size = contexts.classes.size
    this.ratio = contexts.M / (contexts.M - 1)
    this.rho = (etaZ / etaY) * this.ratio
    this.initial = new Float64Array(2 * this.size) // u, then how far a has moved
    this.p = new Float64Array(this.size)
    this.own = new Float64Array(this.size) // logits of each class
    const { classes, layout: { slotOfEntry } } = contexts
    this.alone = { classes, slotOfEntry, zPlace: slotOfEntry }
    this.z = new Float64Array(contexts.z0.length)
    this.weight = new Float64Array(contexts.z0.length)
    this._classes((k, i) => { this.weight[contexts.zPlace[i]] += contexts.prior[k] })
  }

  clock(plainSteps) {
    return plainSteps
  }

  velocity(_, state, out) {
    const { contexts, size, p, ratio, rho, etaY } = this
    const { K, M, classes, prior, zPlace, z0 } = contexts
    this.own.forEach((_, i) => { this.own[i] = z0[zPlace[i]] + state[size + i] })
    writeAttention(this.alone, this.own, p, 0)
    for (let k = 0; k < K; k++) {
      const begin = classes.offsets[k], end = classes.offsets[k + 1]
      let mean = 0
      for (let i = begin; i < end; i++) mean += p[i] * state[i]
      const speed = (etaY * prior[k]) / (1 + Math.exp(ratio * mean) / (M - 1))
      for (let i = begin; i < end; i++) {
        out[i] = speed * p[i]
        out[size + i] = speed * rho * p[i] * (state[i] - mean)
      }
    }
  }

  logits(state) {
    const { contexts, size, z, weight } = this
    z.set(contexts.z0)
    this._classes((k, i) => {
      const place = contexts.zPlace[i]
      z[place] += (contexts.prior[k] * state[size + i]) / weight[place]
    })
    return z
  }

  _classes(each) {
    const { K, classes } = this.contexts
    for (let k = 0; k < K; k++) for (let i = classes.offsets[k]; i < classes.offsets[k + 1]; i++) each(k, i)
  }
}
