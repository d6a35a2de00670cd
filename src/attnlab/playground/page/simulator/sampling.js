/**
 * Exact sampling of sequences: without positions a sequence matters only through its token counts.
 *
 * Those are multinomial: the count of the first token is binomial, that of the second is binomial
 * among what is left, and so on. Where a sequence is shorter than that, its tokens are drawn.
 */

import { Random } from "./random.js"

/** Draws an index by given probabilities (Walker's alias method). */
class Alias {
  constructor(probabilities) {
    const n = probabilities.length
    const total = probabilities.reduce((sum, p) => sum + p, 0)
    this.keep = new Float64Array(n).fill(1)
    this.other = Int32Array.from({ length: n }, (_, i) => i)
    const scaled = Float64Array.from(probabilities, (p) => (p / total) * n)
    const small = [], large = []
    scaled.forEach((p, i) => (p < 1 ? small : large).push(i))
    while (small.length && large.length) {
      const low = small.pop(), high = large[large.length - 1]
      this.keep[low] = scaled[low]
      this.other[low] = high
      scaled[high] -= 1 - scaled[low]
      if (scaled[high] < 1) small.push(large.pop())
    }
  }

  draw(random) {
    const u = random.uniform() * this.keep.length
    const i = Math.floor(u)
    return u - i < this.keep[i] ? i : this.other[i]
  }
}

const LONGEST_TABLE = 512 // draws: beyond it tables would be large, and rejection is quick
const NEGLIGIBLE = 1e-19 // of the most likely count: less than a draw can tell

/** Binomials of one probability by inversion of their distribution, a table for each size. */
class Binomials {
  constructor(p) {
    this.p = p
    this.rows = []
  }

  draw(random, n) {
    if (this.p >= 1) return n
    const row = this.rows[n] ?? (this.rows[n] = this._row(n))
    const { cumulative, lowest } = row, u = random.uniform()
    let k = row.mode
    if (u > cumulative[k]) while (u > cumulative[++k]);
    else while (k > 0 && u <= cumulative[k - 1]) k--
    return lowest + k
  }

  /** P(count <= lowest + k) in k, from the most likely count outwards until nothing is left. */
  _row(n) {
    const { p } = this, odds = p / (1 - p)
    const mode = Math.min(n, Math.floor((n + 1) * p))
    const below = [], above = [1]
    for (let k = mode, f = 1; k > 0 && f > NEGLIGIBLE; k--) {
      f *= k / ((n - k + 1) * odds)
      below.push(f)
    }
    for (let k = mode, f = 1; k < n && f > NEGLIGIBLE; k++) {
      f *= ((n - k) * odds) / (k + 1)
      above.push(f)
    }
    const cumulative = Float64Array.from([...below.reverse(), ...above])
    for (let k = 1; k < cumulative.length; k++) cumulative[k] += cumulative[k - 1]
    const total = cumulative[cumulative.length - 1]
    for (let k = 0; k < cumulative.length; k++) cumulative[k] /= total
    return { cumulative, lowest: mode - below.length, mode: below.length }
  }
}

export class CountSampler {
  /** Draws classes by their prior, and the token counts of sequences of `length`, query included. */
  constructor(classes, length) {
    this.classes = classes
    this.draws = length - 1
    this.prior = new Alias([...classes.prior])
    this.ahead = new Float64Array(classes.size) // the chance of a token among those from it on
    this.tokens = []
    this.binomials = []
    for (let k = 0; k < classes.K; k++) {
      const [begin, end] = [classes.offsets[k], classes.offsets[k + 1]]
      let left = 0
      for (let i = end - 1; i >= begin; i--) {
        left += classes.values[i]
        this.ahead[i] = i === end - 1 ? 1 : classes.values[i] / left
        this.binomials[i] = new Binomials(this.ahead[i])
      }
      this.tokens.push(this.draws < end - begin ? new Alias(classes.values.subarray(begin, end)) : null)
    }
  }

  drawClass(random) {
    return this.prior.draw(random)
  }

  /** Writes the counts of a sequence of class k: the slots that occur and how often; how many. */
  drawCounts(random, k, slots, counts) {
    const begin = this.classes.offsets[k], width = this.classes.offsets[k + 1] - begin
    let found = 0
    if (this.tokens[k] !== null) {
      for (let t = 0; t < this.draws; t++) {
        const slot = this.tokens[k].draw(random)
        let i = 0
        while (i < found && slots[i] !== slot) i++
        if (i === found) {
          slots[found] = slot
          counts[found++] = 1
        } else counts[i] += 1
      }
      return found
    }
    let left = this.draws
    for (let s = 0; s < width && left > 0; s++) {
      const count = this.draws > LONGEST_TABLE ? random.binomial(left, this.ahead[begin + s])
        : this.binomials[begin + s].draw(random, left)
      if (count === 0) continue
      slots[found] = s
      counts[found++] = count
      left -= count
    }
    return found
  }
}

/** The sequences of each step of a seed, drawn when they are first asked for, and kept. */
class Batches {
  constructor(classes, { length, batch_size }, seed) {
    this.sampler = new CountSampler(classes, length)
    this.random = new Random(seed)
    this.rows = batch_size
    this.drawn = []
    const most = Math.min(length - 1, classes.size)
    this.slots = new Int32Array(batch_size * most)
    this.counts = new Float64Array(batch_size * most)
    this.slot = new Int32Array(most)
    this.count = new Float64Array(most)
  }

  at(step) {
    while (this.drawn.length <= step) this.drawn.push(this._draw())
    return this.drawn[step]
  }

  _draw() {
    const { sampler, random, rows } = this
    const classOf = new Uint16Array(rows), firsts = new Int32Array(rows + 1)
    let end = 0
    for (let i = 0; i < rows; i++) {
      const k = sampler.drawClass(random)
      const found = sampler.drawCounts(random, k, this.slot, this.count)
      classOf[i] = k
      for (let s = 0; s < found; s++) {
        this.slots[end] = this.slot[s]
        this.counts[end++] = this.count[s]
      }
      firsts[i + 1] = end
    }
    return { rows, classOf, firsts, slots: new Uint16Array(this.slots.subarray(0, end)),
      counts: new Float32Array(this.counts.subarray(0, end)) }
  }
}

const KEPT_BYTES = 64e6
const kept = { key: "", batches: null }

/**
 * Runs that differ only in rates, steps or optimiser see the same sequences: those of the last seed
 * are kept, so that a slider draws nothing.
 */
export function batches(name, classes, engine, seed) {
  const key = JSON.stringify([name, engine.length, engine.batch_size, seed])
  const bytes = kept.batches === null ? 0
    : kept.batches.drawn.reduce((sum, of) => sum + 6 * of.slots.length, 0)
  if (kept.key !== key || bytes > KEPT_BYTES) {
    kept.key = key
    kept.batches = new Batches(classes, engine, seed)
  }
  return kept.batches
}
