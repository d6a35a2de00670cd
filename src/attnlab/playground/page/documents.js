/**
 * Documents: strict YAML and JSON, by the rules and with the words of the command line
 * (files/documents.py). Mappings are read as Maps, since keys may be other than words, and whole
 * numbers with a point as `Real`; `plain` makes objects and numbers of them.
 */
import { InputError } from "./simulator/errors.js"
import { Real, brief, repr, shown, within } from "./simulator/messages.js"
import { COMPLEX_KEY, ELSE, MISPLACED_TAG, fault } from "./yaml_faults.js"

const MAX_DEPTH = 20
const JSON_DEPTH = 900 // where Python gives up too, more or less
const MAX_ALIASED = 1_000_000
const MAX_DIGITS = 4300 // that Python makes a whole number of
const ADVICE = "see docs/sequence-classes.md, or make such classes in Python"
const TOO_DEEP = `nested too deeply; ${ADVICE}`

/** The text of a file's bytes. */
export function decoded(given) {
  const mark = given.length > 2 && given[0] === 0xef && given[1] === 0xbb && given[2] === 0xbf
  const bytes = mark ? given.subarray(3) : given
  const read = (end, last, fatal = true) =>
    new TextDecoder("utf-8", { fatal, ignoreBOM: true }).decode(bytes.subarray(0, end), { stream: !last })
  try {
    return read(bytes.length, true)
  } catch {
    // the shortest beginning that cannot be read ends in or behind the bad byte; before it is good text
    let good = 0, bad = bytes.length + 1
    while (bad - good > 1) {
      const middle = (good + bad) >> 1
      try {
        read(middle, false)
        good = middle
      } catch {
        bad = middle
      }
    }
    const start = new TextEncoder().encode(read(Math.min(good, bytes.length), false, false)).length
    throw new InputError(`not UTF-8 text (byte ${start}); save it as UTF-8`)
  }
}

/** A document without Maps and Reals, as states and links have it. */
export function plain(value) {
  if (value instanceof Real) return value.value
  if (Array.isArray(value)) return value.map(plain)
  if (!(value instanceof Map)) return value
  return Object.fromEntries([...value].map(([key, of]) => [String(plain(key)), plain(of)]))
}

function whole(text) {
  if (text.replace("-", "").length > MAX_DIGITS) throw new InputError(`a whole number of ${text.length} digits`)
  return Number(text)
}

function real(text) {
  const value = Number(text)
  return Number.isInteger(value) ? new Real(value) : value
}

// -- JSON -------------------------------------------------------------------------------------------

const JSON_NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?/y
const JSON_TEXT = /[^"\\\0-\x1f]*/y
const JSON_ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" }
const JSON_WORDS = { null: null, true: true, false: false, NaN, Infinity, "-Infinity": -Infinity }
const JSON_ELSE = "expected a value, a comma or a bracket here; names and texts are in double quotes"
const JSON_FAULTS = {
  open: "a text is not closed; close it with a double quote",
  escape: "an escape that is none; write \\\\ for a backslash",
  extra: "something follows the end; check the brackets before it",
}

/** Like JSON.parse, but no key may be given twice, and every message has its line. */
export function parseJson(text) {
  return text.trim() ? new JsonReader(text).whole() : null
}

class JsonReader {
  constructor(text) {
    this.text = text
    this.at = 0
    this.depth = 0
  }

  whole() {
    this._space()
    const value = this._value()
    this._space()
    if (this.at < this.text.length) this._fail(JSON_FAULTS.extra)
    return value
  }

  _fail(words = JSON_ELSE, at = this.at) {
    const line = this.text.slice(0, at).split("\n").length
    throw new InputError(`invalid JSON: line ${line}: ${words}`)
  }

  _space() {
    while (" \t\n\r".includes(this.text[this.at] ?? "x")) this.at += 1
  }

  _value() {
    const sign = this.text[this.at]
    if (sign === '"') return this._text()
    if (sign === "[" || sign === "{") {
      if (++this.depth > JSON_DEPTH) throw new InputError(TOO_DEEP)
      this.at += 1
      const found = sign === "[" ? this._list() : this._mapping()
      this.depth -= 1
      return found
    }
    for (const [word, value] of Object.entries(JSON_WORDS)) {
      if (!this.text.startsWith(word, this.at)) continue
      this.at += word.length
      return value
    }
    JSON_NUMBER.lastIndex = this.at
    const found = JSON_NUMBER.exec(this.text)
    if (found === null) this._fail()
    this.at += found[0].length
    return found[1] || found[2] ? real(found[0]) : whole(found[0])
  }

  _list() {
    const items = []
    this._space()
    if (this._takes("]")) return items
    for (;;) {
      this._space()
      items.push(this._value())
      this._space()
      if (this._takes("]")) return items
      if (!this._takes(",")) this._fail()
    }
  }

  _mapping() {
    const entries = []
    this._space()
    if (this._takes("}")) return new Map()
    for (;;) {
      this._space()
      if (this.text[this.at] !== '"') this._fail()
      const key = this._text()
      this._space()
      if (!this._takes(":")) this._fail()
      this._space()
      entries.push([key, this._value()])
      this._space()
      if (this._takes("}")) break
      if (!this._takes(",")) this._fail()
    }
    const found = new Map(entries)
    if (found.size < entries.length) throw new InputError(`key ${repr(brief(mostOften(entries)))} is given twice`)
    return found
  }

  _takes(sign) {
    const is = this.text[this.at] === sign
    if (is) this.at += 1
    return is
  }

  _text() {
    const begin = this.at++
    let found = ""
    for (;;) {
      JSON_TEXT.lastIndex = this.at
      const [part] = JSON_TEXT.exec(this.text)
      found += part
      this.at += part.length
      const sign = this.text[this.at]
      if (sign === undefined) this._fail(JSON_FAULTS.open, begin)
      if (sign === '"') break
      if (sign !== "\\") this._fail(JSON_FAULTS.open)
      const next = this.text[this.at + 1]
      if (next === undefined) this._fail(JSON_FAULTS.open, begin)
      if (next === "u") {
        const hex = this.text.slice(this.at + 2, this.at + 6)
        if (!/^[\da-fA-F]{4}$/.test(hex)) this._fail(JSON_FAULTS.escape)
        found += String.fromCharCode(parseInt(hex, 16))
        this.at += 6
      } else {
        if (!Object.hasOwn(JSON_ESCAPES, next)) this._fail(JSON_FAULTS.escape)
        found += JSON_ESCAPES[next]
        this.at += 2
      }
    }
    this.at += 1
    return found
  }
}

/** The key that is there most often, the first of those. */
function mostOften(entries) {
  const counts = new Map()
  for (const [key] of entries) counts.set(key, (counts.get(key) ?? 0) + 1)
  return [...counts].reduce((best, of) => (of[1] > best[1] ? of : best))[0]
}

// -- YAML -------------------------------------------------------------------------------------------

const TAG = "tag:yaml.org,2002:"
// the scalars of YAML 1.2, as Python reads them: `no` is a word
const SCALARS = {
  null: [/^(null|Null|NULL|~|)$/, () => null],
  bool: [/^(true|True|TRUE|false|False|FALSE)$/, (text) => text.toLowerCase() === "true"],
  int: [/^(0|-?[1-9][0-9]*)$/, whole],
  float: [
    /^([-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$/,
    (text) => (/nan/i.test(text) ? NaN : /inf/i.test(text) ? (text[0] === "-" ? -Infinity : Infinity) : real(text)),
  ],
}

class Refused extends Error {
  constructor(words, line) {
    super(words)
    this.line = line
  }
}

/** A scalar that is no word; as a key it keeps what it is, since js-yaml makes words of keys. */
class Scalar {
  constructor(kind, text, value) {
    Object.assign(this, { kind, text, value })
  }

  get [Symbol.toStringTag]() {
    return "Scalar"
  }

  toString() {
    return `${MARK}${this.kind} ${this.text}`
  }
}
const MARK = "\udfff" // no text that was read has half of a pair

export async function parseYaml(text) {
  const yaml = await import("./vendor/js-yaml/js-yaml.mjs")
  try {
    if (NO_CHARACTER.test(text) && fault(text)) throw new yaml.YAMLException("no such character")
    return unmarked(loaded(yaml, text, false))
  } catch (error) {
    if (error instanceof InputError) throw error
    if (error instanceof Refused) {
      try {
        loaded(yaml, text, true) // who looks at values only after the whole text finds its faults first
      } catch (first) {
        if (first instanceof yaml.YAMLException) throw invalid(text, first)
      }
      throw new InputError(`invalid YAML: line ${error.line}: ${error.message}`)
    }
    if (error instanceof yaml.YAMLException) throw invalid(text, error)
    throw error instanceof RangeError ? new InputError(TOO_DEEP) : error
  }
}

function invalid(text, error) {
  const { line, words } = fault(text) ?? { line: (error.mark?.line ?? 0) + 1, words: ELSE }
  return new InputError(`invalid YAML: line ${line}: ${words}`)
}

/** The document as js-yaml has it, with our scalars; `lenient` leaves values alone. */
function loaded({ FAILSAFE_SCHEMA, Type, YAMLException, load }, text, lenient) {
  let now = null, last = null // js-yaml's state; the node that was closed last
  const open = [] // nodes: where they begin
  const closed = new Map() // nodes by where they began
  const refused = (words) => { throw new Refused(words, open.at(-1).line) }
  const types = Object.entries(SCALARS).map(([kind, [pattern, value]]) => new Type(`${TAG}${kind}`, {
    kind: "scalar",
    resolve: (data) => {
      const is = pattern.test(data ?? "")
      if (!is && now.tag !== "?" && !lenient) refused(`${shown(data ?? "")} is not of type ${kind}`)
      return is || now.tag !== "?"
    },
    construct: (data) => {
      try {
        return new Scalar(kind, data ?? "", lenient ? null : value(data ?? ""))
      } catch (error) {
        return refused(error.message)
      }
    },
  }))
  const listener = (what, state) => {
    now = state
    if (what === "open") {
      if (open.length > MAX_DEPTH) throw new InputError(TOO_DEEP)
      BETWEEN.lastIndex = state.position
      const [skipped] = BETWEEN.exec(state.input)
      open.push({ line: state.line + skipped.split("\n").length, position: state.position })
      return
    }
    last = open.pop()
    const { line, position } = last, { result } = state
    closed.set(position, result)
    if (lenient || typeof result !== "object" || result === null || result instanceof Scalar) return
    // js-yaml makes a word of any key: here it learns that this is none
    const says = () => { throw new Refused(COMPLEX_KEY, line) }
    Object.defineProperties(result, Array.isArray(result) ? { constructor: { get: says, configurable: true } }
      : { [Symbol.toStringTag]: { value: "Mapping", configurable: true }, toString: { value: says, configurable: true } })
  }
  try {
    return load(text, { schema: FAILSAFE_SCHEMA.extend({ implicit: types }), listener, json: lenient }) ?? null
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error
    if (error.reason === "duplicated mapping key") {
      throw new Refused(`key ${keyShown(closed.get(error.mark.position))} is given twice`, error.mark.line + 1)
    }
    if (/^(unacceptable node kind|unknown tag)/.test(error.reason) && !fault(text)) throw new Refused(MISPLACED_TAG, open.at(-1).line)
    // a key without its colon is missed only behind it
    if (error.reason.includes("multiline key")) error.mark.line = last.line - 1
    throw error
  }
}

const NO_CHARACTER = /\\U(?!00(?:0|10))/ // beyond Unicode, which js-yaml takes
const BETWEEN = /(?:[ \t\r\n]|#[^\n]*)*/y // what may stand before a value

function keyShown(key) {
  return key instanceof Scalar ? within("", key.value) : repr(brief(key ?? ""))
}

/** A document of Maps, lists and values; refused where it is too deep or its aliases stand for too much. */
function unmarked(root) {
  const sizes = new Map() // of collections that were seen
  const made = new Map()
  let borrowed = 0
  const visit = (value, depth) => {
    if (value instanceof Scalar) return [value.value, 1]
    if (typeof value !== "object" || value === null) return [value, 1]
    if (made.has(value)) {
      const size = sizes.get(value) ?? 1
      borrowed += size
      if (borrowed > MAX_ALIASED) {
        throw new InputError("its aliases stand for more than 1,000,000 values; write the values out")
      }
      return [made.get(value), size]
    }
    if (depth > MAX_DEPTH) throw new InputError(TOO_DEEP)
    const found = Array.isArray(value) ? [] : new Map()
    made.set(value, found)
    let size = 1
    for (const [key, item] of Object.entries(value)) {
      const [of, its] = visit(item, depth + 1)
      size += its
      if (Array.isArray(value)) found.push(of)
      else found.set(keyOf(key), of)
    }
    sizes.set(value, size)
    return [found, size]
  }
  return visit(root, 1)[0]
}

function keyOf(key) {
  if (!key.startsWith(MARK)) return key
  const [, kind, text] = /^.(\w+) (.*)$/s.exec(key)
  const value = SCALARS[kind][1](text)
  return value instanceof Real ? value.value : value
}
