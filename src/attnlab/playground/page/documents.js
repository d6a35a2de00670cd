/**
 * Documents: strict YAML and JSON, by the rules of the command line (files/documents.py); what no
 * parser takes is refused in the parser's own words. Mappings are read as Maps, since keys may be other
 * than words, and whole numbers with a point as `Real`; `plain` makes objects and numbers of them.
 */
import { InputError } from "./simulator/errors.js"
import { Real, repr, shown } from "./simulator/messages.js"

const MAX_DEPTH = 20
const MAX_ALIASED = 1_000_000
const MAX_DIGITS = 4300 // that Python makes a whole number of
const ADVICE = "see docs/sequence-classes.md, or make such classes in Python"
const TOO_DEEP = `nested too deeply; ${ADVICE}`

/** The text of a file's bytes, without a byte order mark. */
export function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes)
  } catch {
    throw new InputError("not UTF-8 text; save it as UTF-8")
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

/**
 * A JSON document. The browser's parser finds what is not JSON; that of YAML, of which JSON is a part,
 * keeps 5.0 apart from 5 and refuses a key that is given twice.
 */
export async function parseJson(text) {
  if (!text.trim()) return null
  try {
    JSON.parse(text)
  } catch (error) {
    throw error instanceof RangeError ? new InputError(TOO_DEEP) : new InputError(`invalid JSON: ${error.message}`)
  }
  return parseYaml(text, "JSON")
}

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

export async function parseYaml(text, format = "YAML") {
  const yaml = await import("./vendor/js-yaml/js-yaml.mjs")
  try {
    return unmarked(loaded(yaml, text))
  } catch (error) {
    const refused = (line, words) => new InputError(`invalid ${format}: line ${line}: ${words}`)
    if (error instanceof Refused) throw refused(error.line, error.message)
    if (error instanceof yaml.YAMLException) {
      const words = `${error.reason}; check the indentation, colons, brackets and quotes there`
      throw refused((error.mark?.line ?? 0) + 1, words)
    }
    throw error instanceof RangeError ? new InputError(TOO_DEEP) : error
  }
}

/** The document as js-yaml has it, with our scalars. */
function loaded({ FAILSAFE_SCHEMA, Type, YAMLException, load }, text) {
  let now = null // js-yaml's state
  const open = [] // nodes: where they begin
  const closed = new Map() // nodes by where they began
  const refused = (words) => { throw new Refused(words, open.at(-1).line) }
  const types = Object.entries(SCALARS).map(([kind, [pattern, value]]) => new Type(`${TAG}${kind}`, {
    kind: "scalar",
    resolve: (data) => {
      const is = pattern.test(data ?? "")
      if (!is && now.tag !== "?") refused(`${shown(data ?? "")} is not of type ${kind}`)
      return is || now.tag !== "?"
    },
    construct: (data) => {
      try {
        return new Scalar(kind, data ?? "", value(data ?? ""))
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
    const { line, position } = open.pop(), { result } = state
    closed.set(position, result)
    if (typeof result !== "object" || result === null || result instanceof Scalar) return
    // js-yaml makes a word of any key: here it learns that this is none
    const says = () => { throw new Refused("a key that is a list or a mapping; keys are words or numbers", line) }
    Object.defineProperties(result, Array.isArray(result) ? { constructor: { get: says, configurable: true } }
      : { [Symbol.toStringTag]: { value: "Mapping", configurable: true }, toString: { value: says, configurable: true } })
  }
  try {
    return load(text, { schema: FAILSAFE_SCHEMA.extend({ implicit: types }), listener }) ?? null
  } catch (error) {
    if (!(error instanceof YAMLException) || error.reason !== "duplicated mapping key") throw error
    throw new Refused(`key ${keyShown(closed.get(error.mark.position))} is given twice`, error.mark.line + 1)
  }
}

const BETWEEN = /(?:[ \t\r\n]|#[^\n]*)*/y // what may stand before a value

function keyShown(key) {
  return key instanceof Scalar ? String(key.value) : repr(key ?? "")
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
