/**
 * State: what is on the screen. A run is a Simulation document, as recipe files and
 * `Simulation.from_document` have it. The link holds all of it; a history undoes and redoes.
 */
import { checkKeys, classesFromDocument } from "./simulator/classes.js"
import { InputError } from "./simulator/errors.js"
import { isMapping, shown } from "./simulator/messages.js"
import { classesOf } from "./simulator/run.js"

const FIELDS = [
  "classes", "engine", "model", "optimizer", "eta_y", "eta_z", "steps", "init", "seeds",
  "independent", "save", "dtype", "lump",
]
export const LONGEST_LINK = 8000 // characters that any browser and most messengers take

const KEYS = ["a", "b", "experiment", "first", "rungs"]
export const RUNGS = ["sgd", "corrected"]

/**
 * {a, b, experiment, first: the first class shown, rungs: the theories shown}; frozen, replaced and never
 * changed.
 */
export function makeState({ a, b = null, experiment = "", first = 0, rungs = ["sgd"] }) {
  for (const document of [a, b].filter((of) => of !== null)) checkDocument(document)
  if (!Array.isArray(rungs)) throw new InputError(`rungs: expected a list of ${RUNGS.join(", ")}, got ${shown(rungs)}`)
  return Object.freeze({ a, b, experiment, first, rungs: RUNGS.filter((rung) => rungs.includes(rung)) })
}

/** Refuse what is no Simulation document that a page can show. */
export function checkDocument(document) {
  checkKeys("", document, FIELDS, ["classes"])
  for (const name of ["eta_y", "eta_z"]) {
    if (!(document[name] >= 0 && document[name] <= 1e6)) {
      throw new InputError(`${name}: expected a number from 0 to 1,000,000, got ${shown(document[name])}`)
    }
  }
  if (!(document.steps >= 1 && document.steps <= 1e9)) {
    throw new InputError(`steps: expected from 1 to 1e9, got ${shown(document.steps)}`)
  }
  for (const name of ["engine", "optimizer", "model", "save"]) {
    if (name in document && !isMapping(document[name])) {
      throw new InputError(`${name}: expected a mapping, got ${shown(document[name])}`)
    }
  }
  const { length = 2, batch_size = 1 } = document.engine ?? {}
  if (!(length >= 2 && length <= 1e6)) throw new InputError(`length: expected from 2 to 1,000,000, got ${shown(length)}`)
  if (batch_size !== null && !(batch_size >= 1 && batch_size <= 1e4)) {
    throw new InputError(`batch_size: expected from 1 to 10,000, got ${shown(batch_size)}`)
  }
  const { momentum = 0 } = document.optimizer ?? {}
  if (!(momentum >= 0 && momentum < 1)) throw new InputError(`momentum: expected a number in [0, 1), got ${shown(momentum)}`)
  if (isMapping(document.classes)) classesFromDocument(document.classes)
  else if (typeof document.classes === "string") classesOf(document.classes)
  else throw new InputError(`classes: expected a preset or a mapping, got ${shown(document.classes)}`)
}

/** The part of an address after "#" that brings a state back. */
export function toLink(state) {
  return `s=${encodeURIComponent(JSON.stringify(state))}`
}

/** The state of a document: one that a page has written, or a single run. */
export function readState(document) {
  if (isMapping(document) && "classes" in document) return makeState({ a: document })
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
