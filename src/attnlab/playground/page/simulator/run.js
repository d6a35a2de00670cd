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

export const DEFAULTS = {
  engine: { name: "sampled", length: 128, batch_size: 128 },
  optimizer: { name: "sgd" }, eta_y: 1, eta_z: 1, steps: 100, init: "zero", seeds: 1,
}
const MOST = { classes: 40, probabilities: 20_000, steps: 100_000, work: 6e9, recorded: 1e7 }

/** The classes of a document: the text of a preset, or entry by entry. */
export function classesOf(document) {
  return typeof document === "string" ? fromPreset(document) : classesFromDocument(document)
}

/** Why the page cannot compute a document itself; nothing where it can. */
export function outside(document) {
  const engine = document.engine ?? DEFAULTS.engine
  const model = document.model ?? { name: "pairwise" }
  const classes = document.classes
  if (Array.isArray(classes)) return "several sets of classes"
  if (typeof classes === "string" && !isPreset(classes)) return `the classes ${classes}`
  if (model.name !== "pairwise") return MODEL_WORDS(model)
  if (engine.name === "flow") return "continuous time"
  if (!["sampled", "limit"].includes(engine.name)) return `the engine ${engine.name}`
  if (engine.sequences) return "a training set that is used again"
  if (!isKnown(document.optimizer ?? DEFAULTS.optimizer)) return "this optimiser"
  const made = classesOf(classes)
  if (made.K > MOST.classes || made.size > MOST.probabilities) return "classes as large as these"
  const { steps = DEFAULTS.steps } = document
  if (steps > MOST.steps || work(made, document) > MOST.work) return "a run as long as this"
  if (recordSteps(document.save, steps).length * made.size > MOST.recorded) return "a record as large as this"
  return ""
}

const MODEL_WORDS = (model) => {
  const parts = []
  if (model.residual) parts.push("a residual connection")
  if (model.heads > 1) parts.push("several heads")
  if (model.position) parts.push("positions")
  if (model.name === "joint") parts.push("an MLP above attention")
  return parts.length ? parts.join(" and ") : `the model ${model.name}`
}

/** Multiplications, roughly. */
function work(classes, document) {
  const engine = document.engine ?? DEFAULTS.engine
  const outputs = document.init === "uniform" ? classes.M : classes.targets.length + 1
  const width = classes.size / classes.K
  const rows = engine.name === "limit" ? classes.K
    : (engine.batch_size ?? 128) * Math.min(1, (engine.length ?? 128) / width)
  return (document.steps ?? 100) * (3 * rows * width * outputs + 2 * classes.size * outputs)
}

/** The steps at which `Save` records: `geometric`, `every`, `at`, or about 101 evenly. */
export function recordSteps(save, last) {
  const kept = new Set([0, last])
  if (save?.at) return save.at.map(Number)
  if (save?.every) {
    for (let t = 0; t <= last; t += save.every) kept.add(t)
  } else if (save?.geometric) {
    const n = save.geometric
    for (let i = 0; i < n; i++) {
      const t = roundHalfEven(Math.exp((Math.log(Math.max(last, 1)) * i) / (n - 1)))
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
    const given = { ...DEFAULTS, ...document }
    this.classes = classesOf(given.classes)
    this.engine = { ...(given.engine.name === "sampled" ? DEFAULTS.engine : {}), ...given.engine }
    this.rates = [given.eta_y, given.eta_z]
    this.given = counts
    const seed = Array.isArray(given.seeds) ? given.seeds[0] : 0
    this.random = new Random(seed)
    const random = given.init === "uniform"
    this.whole = this.engine.name === "limit"
    this.layout = new Layout(this.classes, { lump: this.whole && !random, symmetric: !random, start: startFrom(given.init) })
    this.parameters = {
      Y: new Float64Array(this.layout.A * this.layout.J), Z: this.layout.zStart.slice(),
    }
    if (random) {
      const drawn = new Random(seed ^ 0x5bd1e995), bound = 1 / Math.sqrt(this.layout.J)
      for (const part of Object.values(this.parameters)) {
        for (let i = 0; i < part.length; i++) part[i] = bound * (2 * drawn.uniform() - 1)
      }
    }
    this.gradient = new Gradient(this.layout)
    this.byClass = new Gradient(this.layout)
    const how = { ...given.optimizer }
    this.movers = [optimiser(how, this.parameters.Y.length), optimiser(how, this.parameters.Z.length)]
    this.batches = this.whole || counts !== null ? null
      : batches(given.classes, this.classes, this.engine, seed)
    this.hits = new Float64Array(this.classes.K)
    const steps = recordSteps(given.save, Math.round(given.steps))
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

  /** Train for about so many milliseconds; whether the run is done. */
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
    const { gradient, parameters, engine, classes, hits } = this
    const batch = engine.batch_size ?? null
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
      throw new InputError(`the run diverged by step ${this.step}: ${name} became non-finite; lower the rates`)
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
