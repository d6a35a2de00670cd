/** Values in messages, as the command line shows them (files/documents.py): Python's own spelling. */

/** A number with a point or an exponent that happens to be whole: 5.0 is no size and no id. */
export class Real {
  constructor(value) {
    this.value = value
  }
}

export function isWhole(value) {
  return typeof value === "number" && Number.isInteger(value)
}

export function isMapping(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Real)
}

/** A number as Python prints a float: 5.0, 1e-05, inf. */
export function float(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf"
  const size = Math.abs(value)
  if (size !== 0 && (size < 1e-4 || size >= 1e16)) return exponent(value.toExponential())
  return Number.isInteger(value) ? `${Object.is(value, -0) ? "-0" : value}.0` : String(value)
}

/** A number with nine digits at most, as Python's `.9g`. */
export function nine(value) {
  if (!Number.isFinite(value)) return float(value)
  const [digits, power] = value.toExponential(8).split("e")
  if (power < -4 || power >= 9) return exponent(`${Number(digits)}e${power}`)
  return String(Number(value.toPrecision(9)))
}

const exponent = (text) => text.replace(/e([-+])(\d)$/, "e$10$2")

const OBEYED = /[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu
const NOT_PRINTED = /^[\p{C}\p{Zl}\p{Zp}\p{Zs}]$/u
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }

function writtenOut(sign) {
  if (SHORT[sign]) return SHORT[sign]
  const code = sign.codePointAt(0), hex = code.toString(16)
  return code < 0x100 ? `\\x${hex.padStart(2, "0")}` : code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`
}

/** A text as Python's repr() has it. */
export function repr(text) {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'"
  const inner = [...text].map((sign) => (sign === mark || sign === "\\" ? `\\${sign}`
    : sign !== " " && NOT_PRINTED.test(sign) ? writtenOut(sign) : sign))
  return `${mark}${inner.join("")}${mark}`
}

/** A value, short, and collections by their kind. */
export function shown(value) {
  if (Array.isArray(value)) return value.length ? "a list" : "an empty list"
  if (isMapping(value)) return pairs(value).length ? "a mapping" : "an empty mapping"
  if (value === null || value === undefined) return "nothing"
  if (typeof value === "boolean") return value ? "True" : "False"
  if (value instanceof Real) return float(value.value)
  if (typeof value !== "string") return isWhole(value) ? String(value) : float(value)
  const all = repr([...value].slice(0, 30).join(""))
  if ([...all].length <= 30) return all
  const signs = [...value]
  const ends = [...repr(signs.slice(0, 13).join("") + signs.slice(-14).join(""))]
  return `${ends.slice(0, 13).join("")}...${ends.slice(-14).join("")}`
}

/** A value where a name is expected. */
export function quoted(value) {
  if (value === null || typeof value === "boolean") return `${JSON.stringify(value)}${IN_QUOTES}`
  if (value instanceof Real || typeof value === "number") {
    const number = value instanceof Real ? value.value : value
    return `${Number.isFinite(number) ? float(number) : String(number)}${IN_QUOTES}`
  }
  return shown(value)
}

const IN_QUOTES = "; if that is a name, put it in quotes"
const LONGEST_KEY = 60

export function brief(key) {
  const signs = [...key]
  return signs.length > LONGEST_KEY ? `${signs.slice(0, LONGEST_KEY).join("")}...` : key
}

/** The place that a key leads to: `classes[0].probs`. */
export function within(where, key) {
  const text = key instanceof Real || (typeof key === "number" && !isWhole(key)) ? float(key.value ?? key)
    : key === null ? "None" : typeof key === "boolean" ? (key ? "True" : "False") : brief(String(key))
  const name = text.replace(OBEYED, writtenOut)
  return where ? `${where}.${name}` : name
}

/** Keys and values of a mapping: an object, or a Map where keys need not be words. */
export function pairs(mapping) {
  return mapping instanceof Map ? [...mapping] : Object.entries(mapping)
}

/** The word that is most like another, if any is much like it: Python's difflib.get_close_matches. */
export function closest(word, known) {
  let best = null, most = 0.6
  for (const other of known) {
    const [a, b] = [[...other], [...word]]
    const alike = a.length + b.length ? (2 * inCommon(a, b, 0, a.length, 0, b.length)) / (a.length + b.length) : 1
    if (alike > most || (alike === most && (best === null || other > best))) [best, most] = [other, alike]
  }
  return best
}

/** Letters in the longest common part, and in those to its left and right. */
function inCommon(a, b, aBegin, aEnd, bBegin, bEnd) {
  let length = 0, i = aBegin, j = bBegin, before = new Map()
  for (let x = aBegin; x < aEnd; x++) {
    const now = new Map()
    for (let y = bBegin; y < bEnd; y++) {
      if (a[x] !== b[y]) continue
      const n = (before.get(y - 1) ?? 0) + 1
      now.set(y, n)
      if (n > length) [length, i, j] = [n, x - n + 1, y - n + 1]
    }
    before = now
  }
  if (length === 0) return 0
  return length + inCommon(a, b, aBegin, i, bBegin, j) + inCommon(a, b, i + length, aEnd, j + length, bEnd)
}
