/**
 * State: what is on the screen. A run is a Simulation document, as recipe files and
 * `Simulation.from_document` have it. The link holds all of it; a history undoes and redoes.
 */
import { checkKeys } from "./simulator/classes.js"
import { InputError } from "./simulator/errors.js"
import { isMapping, isWhole, shown } from "./simulator/messages.js"
import { classesOf } from "./simulator/run.js"
import { partsOf, settingsOf } from "./simulator/settings.js"

const FIELDS = [
  "task", "model", "motion", "gradient", "eta_y", "eta_z", "loss", "init", "seeds", "independent",
  "record", "dtype", "precision", "exact",
]
const NAMES = { task: ["sequences"], motion: ["steps", "flow"], gradient: ["batches", "population"] }
export const LONGEST_LINK = 8000 // characters that any browser and most messengers take
const MOST_WORDS = 1_000_000
const MOST_RECORDS = 10_000

const KEYS = ["a", "b", "experiment", "first", "rungs", "sentence", "moment"]
export const RUNGS = ["sgd", "corrected", "polarisation-class"]
const USUAL = ["sgd", "polarisation-class"]

/**
 * {a, b, experiment, first: the first class shown, rungs: the theories shown, sentence: which of those that
 * can be drawn, moment: the step at which a link or a file begins}; frozen, replaced and never changed.
 */
export function makeState({ a, b = null, experiment = "", first = 0, rungs = USUAL, sentence = 0, moment = 0 }) {
  checkDocument(a)
  if (b !== null) checkDocument(b)
  if (typeof experiment !== "string") throw new InputError(`experiment: expected a text, got ${shown(experiment)}`)
  if (!Array.isArray(rungs)) throw new InputError(`rungs: expected a list of ${RUNGS.join(", ")}, got ${shown(rungs)}`)
  within("first", first, 0, 1e6)
  within("sentence", sentence, 0, 1e6)
  within("moment", moment, 0, 1e9, false)
  return Object.freeze({ a, b, experiment, first, rungs: RUNGS.filter((rung) => rungs.includes(rung)), sentence, moment })
}

/** Refuse what is not a number from low to high. */
function within(name, value, low, high, whole = true) {
  const is = typeof value === "number" && value >= low && value <= high && (!whole || isWhole(value))
  if (is) return
  const most = high.toLocaleString("en")
  throw new InputError(`${name}: expected a ${whole ? "whole " : ""}number from ${low} to ${most}, got ${shown(value)}`)
}

/** Refuse what is not a Simulation document that a page can show. */
function checkDocument(document) {
  if (isMapping(document) && "engine" in document) {
    throw new InputError("engine: this is a run of version 0.1, whose settings have other names now")
  }
  checkKeys("", document, FIELDS, ["task"])
  for (const [name, part] of Object.entries({ ...partsOf(document), record: document.record ?? {} })) {
    if (!isMapping(part)) throw new InputError(`${name}: expected a mapping, got ${shown(part)}`)
    if (NAMES[name]?.includes(part.name) === false) {
      throw new InputError(`${name}: expected ${NAMES[name].join(" or ")}, got ${shown(part.name)}`)
    }
  }
  const { classes, length, batch, trainingSet, isFlow, last, etaY, etaZ, momentum, init, record } = settingsOf(document)
  const { seeds = 1 } = document
  within("eta_y", etaY, 0, 1e6, false)
  within("eta_z", etaZ, 0, 1e6, false)
  within(isFlow ? "time" : "steps", last, isFlow ? 0 : 1, 1e9, !isFlow)
  if (length !== Infinity) within("length", length, 2, 1e6)
  if (length !== Infinity && batch === null && trainingSet === null) {
    throw new InputError("gradient: the population needs sentences of infinite length; set the length to inf")
  }
  within("batch_size", batch ?? 1, 1, 1e4)
  within("seeds", Array.isArray(seeds) && seeds.length === 1 ? seeds[0] : seeds, 0, 2 ** 32)
  if (!(typeof momentum === "number" && momentum >= 0 && momentum < 1)) {
    throw new InputError(`momentum: expected a number in [0, 1), got ${shown(momentum)}`)
  }
  checkRecord(checkKeys("record", record, ["what", "every", "geometric", "at", "probe"], []), last)
  if (!isMapping(classes) && typeof classes !== "string") {
    throw new InputError(`classes: expected a preset or a mapping, got ${shown(classes)}`)
  }
  const made = classesOf(classes)
  if (made.M > MOST_WORDS) throw new InputError(`vocabulary: the page takes up to ${MOST_WORDS.toLocaleString("en")} words`)
  checkInit(init, made)
}

function checkRecord(record, last) {
  const at = record.get("at") ?? [0], every = record.get("every") ?? Infinity
  if (every !== Infinity && every !== "doubling") within("every", every, 1, 1e9)
  within("geometric", record.get("geometric") ?? 2, 2, MOST_RECORDS)
  if (last / every > MOST_RECORDS) {
    throw new InputError(`every: the page records up to ${MOST_RECORDS.toLocaleString("en")} moments; record less often`)
  }
  const increase = Array.isArray(at) && at.length > 0 && at.every((t, i) => t > (at[i - 1] ?? -1) && Number.isFinite(t))
  if (!increase) throw new InputError("at: expected increasing times from 0 on")
  if (at.at(-1) > last) throw new InputError(`at: ${at.at(-1)} is after the last step ${last}; raise steps`)
}

/** Logits are those of all tokens, or of all tokens for each query; the API looks at those of heads. */
function checkInit(init, { M, queries }) {
  if (init === "zero" || init === "uniform") return
  const row = (of) => Array.isArray(of) && of.length === M && of.every(Number.isFinite)
  const rows = (of) => Array.isArray(of) && of.length === queries.length && of.every(row)
  if (row(init) || rows(init) || (Array.isArray(init) && init.length > 0 && init.every(rows))) return
  throw new InputError(`init: expected 'zero', 'uniform' or a number for each of ${M} words, got ${shown(init)}`)
}

/** The part of an address after "#" that brings a state back. */
export function toLink(state) {
  return `s=${encodeURIComponent(JSON.stringify(state))}`
}

/** The state of a document: one that a page has written, or a single run. */
export function readState(document) {
  if (isMapping(document) && !("a" in document)) return makeState({ a: document })
  checkKeys("", document, KEYS, ["a"])
  return makeState(document)
}

/** The state of a link, checked; null where there is none. */
export function fromLink(fragment) {
  const found = new URLSearchParams(fragment.replace(/^#/, "")).get("s")
  if (found === null) return null
  let document
  try {
    document = JSON.parse(found)
  } catch {
    throw new InputError("link: it is damaged; open the page without it to start afresh")
  }
  try {
    return readState(document)
  } catch (error) {
    throw new InputError(`link: ${error.message}; open the page without it to start afresh`)
  }
}

const SAME_TURN = 900 // ms: moves of one control within it are undone together

export class History {
  constructor(state) {
    this.past = []
    this.future = []
    this.state = state
    this.last = { control: "", at: 0 }
  }

  /** Go to a state; `control` is what was turned, so that a drag is one entry. */
  put(state, control = "") {
    if (JSON.stringify(state) === JSON.stringify(this.state)) return // nothing to undo
    const now = performance.now()
    const goesOn = control !== "" && control === this.last.control && now - this.last.at < SAME_TURN
    if (!goesOn) this.past.push(this.state)
    if (this.past.length > 200) this.past.shift()
    this.future = []
    this.state = state
    this.last = { control, at: now }
  }

  undo() {
    return this._move(this.past, this.future)
  }

  redo() {
    return this._move(this.future, this.past)
  }

  _move(from, to) {
    if (!from.length) return false
    to.push(this.state)
    this.state = from.pop()
    this.last = { control: "", at: 0 }
    return true
  }
}
