/**
 * Exact sampling of sequences: without positions a sequence matters only through its token counts.
 *
 * Those are multinomial: the count of the first token is binomial, that of the second is binomial
 * among what is left, and so on. Where a sequence is shorter than that, its tokens are drawn.
 */

import { Random } from "./random.js"

/** Sums of the probabilities from `begin` to `end`, up to each; the last is 1. */
function summed(probabilities, begin = 0, end = probabilities.length) {
  const sums = new Float64Array(end - begin)
  let total = 0
  for (let i = 0; i < sums.length; i++) sums[i] = total += probabilities[begin + i]
  for (let i = 0; i < sums.length; i++) sums[i] /= total
  return sums
}

/** An index drawn by the sums of the probabilities. */
function drawn(random, sums) {
  const u = random.uniform()
  let low = 0, high = sums.length - 1
  while (low < high) {
    const middle = (low + high) >> 1
    if (u > sums[middle]) low = middle + 1
    else high = middle
  }
  return low
}

const LONGEST_TABLE = 1024 // trials: a binomial of more is a sum of several
const SCRATCH = new Float64Array(LONGEST_TABLE + 1)
const NEGLIGIBLE = 1e-19 // of the most likely count: less than a draw can tell

/** Binomials of one probability by inversion of their distribution, a table for each size. */
export class Binomials {
  constructor(p) {
    this.p = p
    this.rows = []
  }

  /** How many of n trials succeed. */
  draw(random, n) {
    if (this.p >= 1) return n
    if (n > LONGEST_TABLE) return this.draw(random, LONGEST_TABLE) + this.draw(random, n - LONGEST_TABLE)
    const { lowest, sums } = (this.rows[n] ??= this._row(n))
    return lowest + drawn(random, sums)
  }

  /** The sums of the probabilities of lowest, lowest + 1, ..., from the most likely count outwards until nothing is left. */
  _row(n) {
    const { p } = this, odds = p / (1 - p)
    const mode = Math.min(n, Math.floor((n + 1) * p))
    let lowest = mode, highest = mode
    SCRATCH[mode] = 1
    for (; lowest > 0 && SCRATCH[lowest] > NEGLIGIBLE; lowest--) {
      SCRATCH[lowest - 1] = (SCRATCH[lowest] * lowest) / ((n - lowest + 1) * odds)
    }
    for (; highest < n && SCRATCH[highest] > NEGLIGIBLE; highest++) {
      SCRATCH[highest + 1] = (SCRATCH[highest] * (n - highest) * odds) / (highest + 1)
    }
    return { lowest, sums: summed(SCRATCH, lowest, highest + 1) }
  }
}

export class CountSampler {
  /** Draws classes by their prior, and the token counts of sequences of `length`, query included. */
  constructor(classes, length) {
    this.classes = classes
    this.draws = length - 1
    this.prior = summed(classes.prior)
    this.tokens = []
    this.binomials = []
    for (let k = 0; k < classes.K; k++) {
      const [begin, end] = [classes.offsets[k], classes.offsets[k + 1]]
      let left = 0
      for (let i = end - 1; i >= begin; i--) {
        left += classes.values[i]
        // the chance of a token among those from it on
        this.binomials[i] = new Binomials(i === end - 1 ? 1 : classes.values[i] / left)
      }
      this.tokens.push(this.draws < end - begin ? summed(classes.values, begin, end) : null)
    }
  }

  drawClass(random) {
    return drawn(random, this.prior)
  }

  /** Writes the counts of a sequence of class k: the slots that occur and how often; how many. */
  drawCounts(random, k, slots, counts) {
    const begin = this.classes.offsets[k], width = this.classes.offsets[k + 1] - begin
    let found = 0
    if (this.tokens[k] !== null) {
      for (let t = 0; t < this.draws; t++) {
        const slot = drawn(random, this.tokens[k])
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
      const count = this.binomials[begin + s].draw(random, left)
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
  constructor(sampler, { length, batch, seed }) {
    const { classes } = sampler
    this.sampler = sampler
    this.random = new Random(seed)
    this.rows = batch
    this.drawn = []
    const most = Math.min(length - 1, classes.size)
    this.slots = new Int32Array(batch * most)
    this.counts = new Float64Array(batch * most)
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
const kept = { key: "", batches: null, name: "", sampler: null }

/**
 * The batches of a run. Runs that differ only in learning rates, steps or optimiser see the same
 * sequences: those of the last seed are kept, so that a slider draws nothing.
 */
export function batches(name, classes, { length, batch, seed }) {
  const key = JSON.stringify([name, length, batch, seed])
  const bytes = kept.batches === null ? 0
    : kept.batches.drawn.reduce((sum, of) => sum + 6 * of.slots.length, 0)
  if (kept.key !== key || bytes > KEPT_BYTES) {
    const named = JSON.stringify([name, length])
    if (kept.name !== named) Object.assign(kept, { name: named, sampler: new CountSampler(classes, length) })
    kept.key = key
    kept.batches = new Batches(kept.sampler, { length, batch, seed })
  }
  return kept.batches
}
