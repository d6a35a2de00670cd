/**
 * Lemma 1: the loss of the 1-layer transformer in Y and Z, and its gradient in closed form.
 *
 * A query attends to token l with weight c~_l = mass_l exp(z_l); f = c~/|c~|_2, or c~/|c~|_1 where
 * nothing normalises what attention reads; the decoder gives
 * Y^T f over all outputs; the loss is the cross entropy with the next token. A row is anything
 * attended from: a sequence (mass: its counts) or a class (T to infinity; mass: P(l|m,n)).
 * Gradients are those of descent: d loss/dY_l = f_l (alpha - x)^T, d loss/dz = diag(f)(I - f f^T) g
 * with g = Y (alpha - x), and diag(f)(g - f.g) without the normalisation.
 */
export class Gradient {
  constructor(layout, normalised = true) {
    const widest = Math.max(...layout.offsets.slice(1).map((end, k) => end - layout.offsets[k]))
    this.layout = layout
    this.normalised = normalised
    this.Y = new Float64Array(layout.A * layout.J)
    this.Z = new Float64Array(layout.zSize)
    this.odds = new Float64Array(layout.place.length) // exp(z) of each slot, the largest being 1
    this.at = new Int32Array(widest) // the slots of a row, and its f
    this.f = new Float64Array(widest)
    this.logits = new Float64Array(layout.J)
    this.error = new Float64Array(layout.J)
    this.loss = 0
  }

  /** Begin a mean over rows at these parameters. */
  begin({ Z }) {
    const { offsets, zPlace, classes } = this.layout
    this.Y.fill(0)
    this.Z.fill(0)
    this.loss = 0
    for (let k = 0; k < classes.K; k++) {
      let highest = -Infinity
      for (let at = offsets[k]; at < offsets[k + 1]; at++) highest = Math.max(highest, Z[zPlace[at]])
      for (let at = offsets[k]; at < offsets[k + 1]; at++) this.odds[at] = Math.exp(Z[zPlace[at]] - highest)
    }
  }

  /** Adds a class as a row (T to infinity), weighing `weight` in the mean; its loss. */
  addClass(k, parameters, weight) {
    const { offsets, mass } = this.layout
    const size = offsets[k + 1] - offsets[k]
    for (let s = 0; s < size; s++) {
      const at = offsets[k] + s
      this.at[s] = at
      this.f[s] = mass[at] * this.odds[at]
    }
    return this._add(k, parameters, weight, size)
  }

  /** Adds a sequence of class k: `slots` of the class, from `first` to `last`, and their counts. */
  addSequence(k, parameters, weight, slots, counts, first, last) {
    const begin = this.layout.offsets[k], size = last - first
    let highest = 0
    for (let s = 0; s < size; s++) {
      const at = begin + slots[first + s]
      this.at[s] = at
      this.f[s] = counts[first + s] * this.odds[at]
      if (this.f[s] > highest) highest = this.f[s]
    }
    if (highest < 1e-100) this._rescue(parameters.Z, counts, first, size)
    return this._add(k, parameters, weight, size)
  }

  /** Weights of a sequence that has none of the attended tokens, so that they underflow. */
  _rescue(Z, counts, first, size) {
    const { zPlace } = this.layout
    let highest = -Infinity
    for (let s = 0; s < size; s++) highest = Math.max(highest, Z[zPlace[this.at[s]]])
    for (let s = 0; s < size; s++) {
      this.f[s] = counts[first + s] * Math.exp(Z[zPlace[this.at[s]]] - highest)
    }
  }

  /** Adds the row whose `size` slots are in `at`, with their c~ in `f`. */
  _add(k, { Y }, weight, size) {
    const { at, f, logits, error, normalised } = this
    const { row, zPlace, times, count, J } = this.layout
    let sum = 0
    for (let s = 0; s < size; s++) sum += times[at[s]] * f[s] * (normalised ? f[s] : 1)
    const scale = 1 / (normalised ? Math.sqrt(sum) : sum)
    for (let j = 0; j < J; j++) logits[j] = 0
    for (let s = 0; s < size; s++) {
      f[s] *= scale
      const weighed = times[at[s]] * f[s], base = row[at[s]]
      for (let j = 0; j < J; j++) logits[j] += weighed * Y[base + j]
    }
    const loss = this._predict(this.layout.target[k])
    this.loss += weight * loss
    let radial = 0
    for (let j = 0; j < J; j++) {
      error[j] *= weight
      radial += count[j] * error[j] * logits[j]
    }
    const gradY = this.Y, gradZ = this.Z
    for (let s = 0; s < size; s++) {
      const base = row[at[s]], fs = f[s]
      let g = 0
      for (let j = 0; j < J; j++) {
        const d = error[j]
        g += count[j] * d * Y[base + j]
        gradY[base + j] += fs * d
      }
      gradZ[zPlace[at[s]]] += fs * (g - (normalised ? fs : 1) * radial)
    }
    return loss
  }

  /** Softmax of `logits` (shifted in place) into `error` = alpha - x; the cross entropy. */
  _predict(target) {
    const { logits, error } = this
    const { count, J } = this.layout
    let highest = -Infinity
    for (let j = 0; j < J; j++) if (logits[j] > highest) highest = logits[j]
    let others = 0
    for (let j = 0; j < J; j++) {
      logits[j] -= highest
      error[j] = Math.exp(logits[j])
      if (j !== target) others += count[j] * error[j]
    }
    const own = error[target], total = others + own
    for (let j = 0; j < J; j++) error[j] /= total
    // minus the sum of the others, not alpha - 1: late in training that would cancel
    error[target] = -others / total
    return Math.log1p(others + (own - 1)) - logits[target]
  }
}

/** c_{l|m,n} of Eq. 5, for each non-zero of P, written from `at` on. */
export function writeAttention(layout, Z, out, at) {
  const { classes, slotOfEntry, zPlace } = layout
  for (let k = 0; k < classes.K; k++) {
    const begin = classes.offsets[k], end = classes.offsets[k + 1]
    let highest = -Infinity, total = 0
    for (let i = begin; i < end; i++) highest = Math.max(highest, Z[zPlace[slotOfEntry[i]]])
    for (let i = begin; i < end; i++) {
      const c = classes.values[i] * Math.exp(Z[zPlace[slotOfEntry[i]]] - highest)
      out[at + i] = c
      total += c
    }
    for (let i = begin; i < end; i++) out[at + i] /= total
  }
}
