/** Sequence classes by name, `family:classes=3,common=5`: the constructions of `attnlab.tasks.classes`. */
import { SequenceClasses } from "./classes.js"
import { InputError } from "./errors.js"

const ramp = (count, lowest = 0.1) =>
  Array.from({ length: count }, (_, i) => lowest + ((1 - lowest) * i) / Math.max(count - 1, 1))

function share(mass, weights) {
  const total = weights.reduce((sum, w) => sum + w, 0)
  return weights.map((w) => (mass * w) / total)
}

const flat = (count) => new Array(count).fill(1)

/** Classes that all have the same row: probabilities of common, local and distinct tokens. */
function blocks({ queryOf, common, local = [], distinct, vocabSize = null, origin }) {
  const K = queryOf.length, Q = Math.max(...queryOf) + 1
  const firstDistinct = common.length + Q * local.length
  const firstQuery = firstDistinct + K * distinct.length
  const used = firstQuery + Q + K
  if (vocabSize !== null && vocabSize < used) {
    throw new InputError(`vocab_size: expected a whole number of at least ${used}, got ${vocabSize}`)
  }
  const rows = queryOf.map((q, k) => new Map([
    ...common.map((p, i) => [i, p]),
    ...local.map((p, i) => [common.length + q * local.length + i, p]),
    ...distinct.map((p, i) => [firstDistinct + k * distinct.length + i, p]),
  ]))
  return new SequenceClasses({
    rows, query: queryOf.map((q) => firstQuery + q), next: queryOf.map((_, k) => firstQuery + Q + k),
    vocabSize: vocabSize ?? used, origin,
  })
}

const spread = (classes, queries) =>
  Array.from({ length: classes }, (_, k) => Math.floor((k * queries) / classes))
const repeated = (queries, each) =>
  Array.from({ length: queries * each }, (_, k) => Math.floor(k / each))

function synthetic(queryOf, localCommon, origin) {
  const row = share(1, [...flat(10 + localCommon), ...ramp(10)])
  return blocks({
    queryOf, common: row.slice(0, 10), local: row.slice(10, 10 + localCommon),
    distinct: row.slice(10 + localCommon), origin,
  })
}

function zipf({ vocab, classes, exponent, common, bands, queries }, origin) {
  if (bands !== null) throw new InputError("bands: the page does not make them; use attnlab play")
  const count = vocab - common - queries - classes
  const sizes = flat(classes).map((_, k) => Math.ceil((count - k) / classes))
  const weights = Array.from({ length: common + sizes[0] }, (_, r) => (r + 1) ** -exponent)
  const rows = sizes.map((size, k) => {
    const row = share(1, weights.slice(0, common + size))
    return new Map(row.map((p, r) => [r < common ? r : common + (r - common) * classes + k, p]))
  })
  return new SequenceClasses({
    rows, query: spread(classes, queries).map((q) => vocab - classes - queries + q),
    next: sizes.map((_, k) => vocab - classes + k), vocabSize: vocab, origin,
  })
}

const PRESETS = {
  "syn-small": [{}, (_, origin) => synthetic([0, 1], 0, origin)],
  "syn-medium": [
    { num_last: 3, next_per_last: 2, local_common: 0 },
    (of, origin) => synthetic(repeated(of.num_last, of.next_per_last), of.local_common, origin),
  ],
  family: [
    { classes: 2, queries: 2, common: 10, distinct: 10, common_mass: 20 / 31, lowest: 0.1, vocab_size: null },
    (of, origin) => blocks({
      queryOf: spread(of.classes, of.queries), common: share(of.common_mass, flat(of.common)),
      distinct: share(1 - of.common_mass, ramp(of.distinct, of.lowest)), vocabSize: of.vocab_size, origin,
    }),
  ],
  "single-common": [
    { num_classes: 10, distinct: 10, common_prob: 0.1, vocab_size: null },
    (of, origin) => blocks({
      queryOf: spread(of.num_classes, 1), common: [of.common_prob],
      distinct: share(1 - of.common_prob, ramp(of.distinct)), vocabSize: of.vocab_size, origin,
    }),
  ],
  symmetric: [
    { num_classes: 4, common: 5, distinct: 10, common_mass: 0.3, vocab_size: null },
    (of, origin) => blocks({
      queryOf: spread(of.num_classes, 1), common: share(of.common_mass, ramp(of.common)),
      distinct: share(1 - of.common_mass, ramp(of.distinct)), vocabSize: of.vocab_size, origin,
    }),
  ],
  "local-common": [
    { num_last: 2, next_per_last: 2, local: 10, distinct: 10 },
    (of, origin) => {
      const row = share(1, [...flat(of.local), ...ramp(of.distinct)])
      return blocks({
        queryOf: repeated(of.num_last, of.next_per_last), common: [],
        local: row.slice(0, of.local), distinct: row.slice(of.local), origin,
      })
    },
  ],
  zipf: [{ vocab: undefined, classes: undefined, exponent: 1, common: 10, bands: null, queries: 1 }, zipf],
}

export const isPreset = (text) => Object.hasOwn(PRESETS, text.split(":")[0].trim())
const SHARES = ["common_mass", "lowest", "common_prob"] // from 0 to 1
const MAY_BE_NONE = ["common", "local", "local_common"]
const MOST = 1_000_000 // the product of the sizes: they are refused before they are made

/** What `name:key=value,...` says, with the defaults. */
export function presetParameters(text) {
  const colon = text.indexOf(":")
  const name = (colon < 0 ? text : text.slice(0, colon)).trim()
  if (!isPreset(name)) {
    throw new InputError(
      `classes: '${name}' is not a preset of this page; known: ${Object.keys(PRESETS).join(", ")}`,
    )
  }
  const known = { ...PRESETS[name][0] }
  for (const part of colon < 0 ? [] : text.slice(colon + 1).split(",")) {
    const [key, value] = part.split("=").map((piece) => piece.trim())
    if (value === undefined) throw new InputError(`${name}: expected key=value, got '${key}'`)
    if (!Object.hasOwn(known, key)) {
      throw new InputError(`${name}: '${key}' is not a parameter; known: ${Object.keys(known).join(", ")}`)
    }
    if (!Number.isFinite(Number(value)) || value === "") {
      throw new InputError(`${name}: ${key}: expected a number, got '${value}'`)
    }
    known[key] = Number(value)
    const least = MAY_BE_NONE.includes(key) ? 0 : 1
    if (SHARES.includes(key)) {
      if (!(known[key] >= 0 && known[key] <= 1)) throw new InputError(`${name}: ${key}: expected a number from 0 to 1, got '${value}'`)
    } else if (key !== "exponent" && !(Number.isInteger(known[key]) && known[key] >= least)) {
      throw new InputError(`${name}: ${key}: expected a whole number of at least ${least}, got '${value}'`)
    }
  }
  if (known.queries > known.classes) {
    throw new InputError(`${name}: queries: ${known.queries} queries for ${known.classes} classes; take at most ${known.classes}`)
  }
  const sizes = Object.entries(known).filter(([key]) => ![...SHARES, "exponent", "vocab_size"].includes(key))
  if (sizes.reduce((product, [, size]) => product * (size || 1), 1) > MOST) {
    throw new InputError(`classes: '${text}' is too large for a page; take fewer, or use attnlab simulate`)
  }
  const missing = Object.keys(known).filter((key) => known[key] === undefined)
  if (missing.length) {
    throw new InputError(
      `${name}: ${missing.join(" and ")} must be given, as ${name}:${missing.map((k) => `${k}=...`).join(",")}`,
    )
  }
  return { name, parameters: known }
}

export function presetText(name, parameters) {
  const usual = PRESETS[name][0]
  const given = Object.entries(parameters).filter(([key, value]) => value !== null && value !== usual[key])
  return given.length ? `${name}:${given.map(([key, value]) => `${key}=${value}`).join(",")}` : name
}

export function fromPreset(text) {
  const { name, parameters } = presetParameters(text)
  return PRESETS[name][1](parameters, text)
}
