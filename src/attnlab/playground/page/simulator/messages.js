/** Values in messages, as the command line shows them (files/documents.py). */

/** A number with a point or an exponent that happens to be whole: 5.0 is not a size and not an id. */
export class Real {
  constructor(value) {
    this.value = value
  }

  toString() {
    return this.value.toFixed(1)
  }
}

export function isWhole(value) {
  return typeof value === "number" && Number.isInteger(value)
}

export function isMapping(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Real)
}

/** A number with nine digits at most. */
export function nine(value) {
  return String(Number(value.toPrecision(9)))
}

// what a terminal or a page would obey, and halves of surrogate pairs
const OBEYED = /[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu

/** A text of somebody's, cut where it is long, with what would be obeyed written out. */
export function brief(text, longest = 60) {
  const signs = [...text]
  const cut = signs.length > longest ? `${signs.slice(0, longest).join("")}...` : text
  return cut.replace(OBEYED, (sign) => `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`)
}

/** A text in quotes. */
export function repr(text) {
  return text.includes("'") ? `"${brief(text)}"` : `'${brief(text)}'`
}

/** A value, short, and collections by their kind. */
export function shown(value) {
  if (Array.isArray(value)) return value.length ? "a list" : "an empty list"
  if (isMapping(value)) return pairs(value).length ? "a mapping" : "an empty mapping"
  if (value === null || value === undefined) return "nothing"
  return typeof value === "string" ? repr(brief(value, 30)) : String(value)
}

/** A value where a name is expected. */
export function quoted(value) {
  const isName = typeof value === "string" || isMapping(value) || Array.isArray(value)
  return isName ? shown(value) : `${value}; if that is a name, put it in quotes`
}

/** The place that a key leads to: `classes[0].probs`. */
export function within(where, key) {
  const name = brief(String(key))
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
