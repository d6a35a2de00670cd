/**
 * Run: a Simulation document, trained step by step in Float64, recorded on the way.
 *
 * The work is done in short pieces (`advance`), so that whoever runs it can stop between any two.
 */
import { classesFromDocument } from "./classes.js"
import { InputError } from "./errors.js"
import { Gradient, writeAttention } from "./gradient.js"
import { Layout } from "./layout.js"
import { isKnown, optimiser } from "./optimisers.js"
import { fromPreset, isPreset } from "./presets.js"
import { Random } from "./random.js"
import { batches, CountSampler } from "./sampling.js"
import { settingsOf } from "./settings.js"

const MOST = { classes: 40, probabilities: 20_000, steps: 100_000, work: 6e9, recorded: 1e7 }

/** The classes of a document: the text of a preset, or entry by entry. */
export function classesOf(document) {
  return typeof document === "string" ? fromPreset(document) : classesFromDocument(document)
}

/** Why the page cannot compute a document itself; nothing where it can. */
export function outside(document) {
  const settings = settingsOf(document)
  const { classes, model, last, record } = settings
  if (Array.isArray(classes)) return "several sets of classes"
  if (typeof classes === "string" && !isPreset(classes)) return `the classes ${classes}`
  if (!isOwn(model)) return MODEL_WORDS(model)
  if (settings.isFlow) return "continuous time"
  if (settings.trainingSet !== null) return "a training set that is used again"
  if (settings.clip !== null || !isKnown(settings.optimizer)) return "this optimiser"
  const made = classesOf(classes)
  if (made.K > MOST.classes || made.size > MOST.probabilities) return "classes as large as these"
  if (last > MOST.steps || work(made, settings) > MOST.work) return "a run as long as this"
  if (recordSteps(record, last).length * made.size > MOST.recorded) return "a record as large as this"
  return ""
}

/** Whether a model is the paper's own, or that without its normalisation. */
const isOwn = ({ name, ...fields }) => name === "pairwise" || (name === "extended" &&
  Object.entries(fields).every(([field, value]) => field === "normalization" && ["l2", "none"].includes(value)))

const MODEL_WORDS = (model) => {
  const parts = []
  if (model.residual) parts.push("a residual connection")
  if (model.heads > 1) parts.push("several heads")
  if (model.position) parts.push("positions")
  if (model.name === "joint") parts.push("an MLP above attention")
  return parts.length ? parts.join(" and ") : `the model ${model.name}`
}

/** The number of multiplications, roughly. */
function work(classes, { init, length, batch, last }) {
  const outputs = init === "uniform" ? classes.M : classes.targets.length + 1
  const width = classes.size / classes.K
  const rows = length === Infinity ? classes.K : batch * Math.min(1, length / width)
  return last * (3 * rows * width * outputs + 2 * classes.size * outputs)
}

/** The steps that a Record takes: `geometric`, `every`, `at`, or about 101 evenly. */
export function recordSteps({ at, every, geometric }, last) {
  const kept = new Set([0, last])
  if (at) return at.map(Number)
  if (every === "doubling") {
    for (let t = 1; t <= last; t *= 2) kept.add(t)
  } else if (every) {
    for (let t = 0; t <= last; t += every) kept.add(t)
  } else if (geometric) {
    for (let i = 0; i < geometric; i++) {
      const t = roundHalfEven(Math.exp((Math.log(Math.max(last, 1)) * i) / (geometric - 1)))
      if (t <= last) kept.add(t)
    }
  } else {
    const n = Math.min(101, last + 1)
    for (let i = 0; i < n; i++) kept.add(roundHalfEven((last * i) / Math.max(n - 1, 1)))
  }
  return [...kept].sort((a, b) => a - b)
}

function roundHalfEven(x) {
  const down = Math.floor(x)
  return x - down === 0.5 ? down + (down % 2) : Math.round(x)
}

export class Run {
  /** counts: the rows of each step instead of drawn ones, [[{k, slots, counts}, ...], ...]. */
  constructor(document, { counts = null } = {}) {
    const said = outside(document)
    if (said) throw new InputError(`the page does not compute ${said} itself`)
    const { classes, length, batch, init, seed, record, last, optimizer, momentum, etaY, etaZ, model } = settingsOf(document)
    const normalised = model.normalization !== "none"
    this.classes = classesOf(classes)
    this.batch = batch
    this.rates = [etaY, etaZ]
    this.given = counts
    this.random = new Random(seed)
    const random = init === "uniform"
    this.whole = length === Infinity
    this.layout = new Layout(this.classes, { lump: this.whole && !random, symmetric: !random, start: startFrom(init) })
    this.parameters = {
      Y: new Float64Array(this.layout.A * this.layout.J), Z: this.layout.zStart.slice(),
    }
    if (random) {
      const drawn = new Random(seed ^ 0x5bd1e995), bound = 1 / Math.sqrt(this.layout.J)
      for (const part of Object.values(this.parameters)) {
        for (let i = 0; i < part.length; i++) part[i] = bound * (2 * drawn.uniform() - 1)
      }
    }
    this.gradient = new Gradient(this.layout, normalised)
    this.byClass = new Gradient(this.layout, normalised)
    this.movers = [this.parameters.Y, this.parameters.Z].map((of) => optimiser({ ...optimizer, momentum }, of.length))
    this.batches = this.whole || counts !== null ? null : batches(classes, this.classes, { length, batch, seed })
    this.hits = new Float64Array(this.classes.K)
    const steps = recordSteps(record, Math.round(last))
    const { K, size } = this.classes
    this.result = {
      clock: "step", steps: Float64Array.from(steps), attention: new Float64Array(steps.length * size),
      logits: new Float64Array(steps.length * size), loss: new Float64Array(steps.length),
      confidence: new Float64Array(steps.length * K),
    }
    this.step = 0
    this.recorded = 0
  }

  get done() {
    return this.recorded === this.result.steps.length
  }

  /** Train for about `milliseconds`; return whether the run is done. */
  advance(milliseconds) {
    const until = performance.now() + milliseconds
    while (!this.done) {
      this._take()
      if (performance.now() > until) break
    }
    return this.done
  }

  _take() {
    const { gradient, parameters } = this
    gradient.begin(parameters)
    if (this.whole) this._addClasses()
    else if (this.given !== null) this._addGiven(this.given[this.step])
    else {
      const { rows, classOf, firsts, slots, counts } = this.batches.at(this.step)
      for (let i = 0; i < rows; i++) {
        gradient.addSequence(classOf[i], parameters, 1 / rows, slots, counts, firsts[i], firsts[i + 1])
      }
    }
    if (this.step === this.result.steps[this.recorded]) this._record()
    if (this.done) return
    this.movers[0].step(parameters.Y, gradient.Y, this.rates[0])
    this.movers[1].step(parameters.Z, gradient.Z, this.rates[1])
    this.step += 1
  }

  _addClasses() {
    const { gradient, parameters, batch, classes, hits } = this
    if (batch !== null) {
      hits.fill(0)
      this.prior ??= new CountSampler(classes, 2)
      for (let i = 0; i < batch; i++) hits[this.prior.drawClass(this.random)] += 1 / batch
    }
    for (let k = 0; k < classes.K; k++) {
      gradient.addClass(k, parameters, batch === null ? classes.prior[k] : hits[k])
    }
  }

  _addGiven(rows) {
    for (const { k, slots, counts } of rows) {
      this.gradient.addSequence(k, this.parameters, 1 / rows.length, slots, counts, 0, slots.length)
    }
  }

  _record() {
    const { result, layout, parameters, classes } = this
    const { K, size } = classes, at = this.recorded * size
    if (!parameters.Z.every(Number.isFinite) || !parameters.Y.every(Number.isFinite)) {
      const name = parameters.Y.every(Number.isFinite) ? "the attention logits Z" : "the decoder Y"
      throw new InputError(`the run diverged by step ${this.step}: ${name} became non-finite; lower the learning rates`)
    }
    writeAttention(layout, parameters.Z, result.attention, at)
    for (let i = 0; i < size; i++) {
      result.logits[at + i] = parameters.Z[layout.zPlace[layout.slotOfEntry[i]]]
    }
    result.loss[this.recorded] = this.gradient.loss
    this.byClass.begin(parameters)
    for (let k = 0; k < K; k++) {
      // how sure a long sequence of the class makes of its next token
      const loss = this.byClass.addClass(k, parameters, 1)
      result.confidence[this.recorded * K + k] = Math.exp(-loss)
    }
    this.recorded += 1
  }
}

/** The logits that a run begins with, (query, token) -> number; 0 unless they are given. */
export function startFrom(init) {
  if (!Array.isArray(init)) return () => 0
  return (query, token) => (Array.isArray(init[0]) ? init[query][token] : init[token])
}
