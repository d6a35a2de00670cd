/** Values in messages. */

export function isWhole(value) {
  return typeof value === "number" && Number.isInteger(value)
}

export function isMapping(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value)
}

const LONGEST = 60

/** A text, cut where it is long. */
function brief(text) {
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}...` : text
}

/** A value, short, and collections by their kind. */
export function shown(value) {
  if (Array.isArray(value)) return value.length ? "a list" : "an empty list"
  if (isMapping(value)) return Object.keys(value).length ? "a mapping" : "an empty mapping"
  if (value === null || value === undefined) return "nothing"
  return typeof value === "string" ? `'${brief(value)}'` : String(value)
}

/** The place that a key leads to: `classes[0].probs`. */
export function within(where, key) {
  return where ? `${where}.${brief(key)}` : brief(key)
}
