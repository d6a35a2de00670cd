/**
 * Sequence classes: what is learnt from (Section 3.2 of the paper).
 *
 * Class k ends with the query token query[k] (m), is followed by next[k] (n), and its contextual
 * tokens are drawn from P(l|m,n): tokens[offsets[k]..offsets[k+1]], increasing, with `values`.
 */
import { InputError } from "./errors.js"
import { isMapping, isWhole, shown, within } from "./messages.js"

const SUM_TOLERANCE = 1e-6

export class SequenceClasses {
  /** rows: one Map (token id -> probability) per class; zeros are left out. */
  constructor({ rows, query, next, prior = null, vocabSize, names = null, origin = "custom" }) {
    this.K = rows.length
    this.M = vocabSize
    this.names = names
    this.origin = origin
    this.query = Int32Array.from(query)
    this.next = Int32Array.from(next)
    this.isUniform = prior === null
    this.prior = Float64Array.from(prior ?? rows.map(() => 1 / rows.length))
    this.offsets = new Int32Array(this.K + 1)
    const tokens = [], values = []
    rows.forEach((row, k) => {
      for (const [token, value] of [...row].sort((a, b) => a[0] - b[0])) {
        if (value === 0) continue
        tokens.push(token)
        values.push(value)
      }
      this.offsets[k + 1] = tokens.length
    })
    this.tokens = Int32Array.from(tokens)
    this.values = Float64Array.from(values)
    this._check()
    this.queries = sortedUnique(this.query)
    this.queryIndex = this.query.map((m) => this.queries.indexOf(m))
    this.targets = sortedUnique(this.next)
    this.targetIndex = this.next.map((n) => this.targets.indexOf(n))
    /** How many classes draw each token: 1 is distinct, more is common. */
    this.omega = new Int32Array(this.M)
    for (const token of this.tokens) this.omega[token] += 1
  }

  get size() {
    return this.tokens.length
  }

  /** Whether the next token determines the query (the paper's m = psi(n)). */
  get hasPsi() {
    return this.targets.length === this.K
  }

  isCommon(token) {
    return this.omega[token] > 1
  }

  name(token) {
    return this.names === null ? String(token) : this.names[token]
  }

  /** How a token is shown: its name, or what it is where it has none: shared 3, A7, last A, next B. */
  word(token) {
    if (this.names !== null) return this.names[token]
    this.words ??= described(this)
    return this.words.get(token) ?? String(token)
  }

  /** As a file has it; `classesFromDocument` reads it back. */
  toDocument() {
    const label = (token) => (this.names === null ? token : this.names[token])
    const classes = []
    for (let k = 0; k < this.K; k++) {
      const item = { query: label(this.query[k]), next: label(this.next[k]) }
      if (!this.isUniform) item.prior = this.prior[k]
      const entries = []
      for (let i = this.offsets[k]; i < this.offsets[k + 1]; i++) {
        entries.push([label(this.tokens[i]), this.values[i]])
      }
      classes.push({ ...item, probs: Object.fromEntries(entries) })
    }
    return { vocabulary: this.names === null ? this.M : [...this.names], classes }
  }

  _check() {
    const pairs = new Set()
    for (let k = 0; k < this.K; k++) {
      const pair = `(${this.query[k]}, ${this.next[k]})`
      if (pairs.has(pair)) throw new InputError(`query, next_token: the pair ${pair} is repeated; merge those classes into one`)
      pairs.add(pair)
      if (this.offsets[k] === this.offsets[k + 1]) {
        throw new InputError(`probs: class ${k} has empty support; give it at least one token`)
      }
    }
  }
}

// words for tokens without names, so that a preset can be read
const SMALL = "the of and in to a is for on with as by at from or an this that it be are not but all so its one more some other into up out than then now only over also such".split(" ")
const LAST = "was has will can saw took made gave".split(" ")
const THEMES = [
  "won match goal team coach game score league player cup ball",
  "cold rain wind cloud storm snow frost fog sky ice hail",
  "cooked soup bread salt oven rice pan cheese onion spoon flour",
  "sung song choir voice tune band drum note chord stage flute",
  "healed doctor fever clinic nurse pain pill cough blood heart bone",
  "sailed boat wave harbour sail coast anchor deck tide crew shore",
].map((words) => words.split(" "))

/** A word of a list, with a number where the list is at its end. */
const nth = (words, at) => `${words[at % words.length]}${at < words.length ? "" : ` ${Math.floor(at / words.length) + 1}`}`

/** Tokens as words: small ones are shared, those of a theme tell one kind of sentence from the others. */
function described(classes) {
  const words = new Map()
  classes.queries.forEach((token, q) => words.set(token, nth(LAST, q)))
  classes.next.forEach((token, k) => words.set(token, nth(THEMES.map(([next]) => next), k)))
  const used = THEMES.map(() => 0)
  let shared = 0
  for (const token of new Set(classes.tokens)) {
    if (classes.omega[token] > 1) words.set(token, nth(SMALL, shared++))
  }
  for (let k = 0; k < classes.K; k++) {
    const theme = k % THEMES.length
    const own = Array.from(classes.tokens.subarray(classes.offsets[k], classes.offsets[k + 1])).filter((token) => classes.omega[token] === 1)
    // from the likeliest on, which stands first on its card
    for (const token of own.reverse()) words.set(token, nth(THEMES[theme].slice(1), used[theme]++))
  }
  return words
}

function sortedUnique(ids) {
  return Int32Array.from(new Set(ids)).sort()
}

// -- from a document, by the rules of the files that the command line takes ------------------------

const MAX_VOCABULARY = 2 ** 31 - 1
const ID = /^(0|[1-9][0-9]*)$/

/** Sequence classes from the content of a YAML or JSON file (docs/sequence-classes.md). */
export function classesFromDocument(document, { origin = "document" } = {}) {
  if (document === null || document === undefined) {
    throw new InputError("the file is empty; it needs the keys vocabulary and classes")
  }
  const whole = checkKeys("", document, ["vocabulary", "normalize", "classes"], ["vocabulary", "classes"])
  const vocabulary = new Vocabulary(whole.get("vocabulary"))
  const normalize = whole.has("normalize") ? whole.get("normalize") : false
  if (typeof normalize !== "boolean") {
    throw new InputError(`normalize: expected true or false, got ${shown(normalize)}`)
  }
  const items = whole.get("classes")
  if (!Array.isArray(items) || items.length === 0) {
    throw new InputError(`classes: expected a list of at least one class, got ${shown(items)}`)
  }
  const query = [], next = [], rows = [], given = []
  items.forEach((found, k) => {
    const where = `classes[${k}]`
    const item = checkKeys(where, found, ["query", "next", "prior", "probs"], ["query", "next", "probs"])
    query.push(vocabulary.token(`${where}.query`, item.get("query")))
    next.push(vocabulary.token(`${where}.next`, item.get("next")))
    rows.push(row(`${where}.probs`, item.get("probs"), vocabulary, normalize))
    given.push(item)
  })
  return new SequenceClasses({
    rows, query, next, prior: priors(given, normalize), vocabSize: vocabulary.size,
    names: vocabulary.names, origin,
  })
}

class Vocabulary {
  constructor(given) {
    this.names = null
    this.ids = new Map()
    if (Array.isArray(given)) {
      if (given.length === 0) throw new InputError("vocabulary: empty; give at least one token name")
      this.names = given.map((name, i) => tokenName(`vocabulary[${i}]`, name))
      this.size = given.length
    } else if (isWhole(given) && given >= 1 && given <= MAX_VOCABULARY) {
      this.size = given
    } else {
      throw new InputError(
        `vocabulary: expected a list of token names or a size from 1 to ${MAX_VOCABULARY}, ` +
        `got ${shown(given)}`,
      )
    }
    ;(this.names ?? []).forEach((name, i) => {
      if (this.ids.has(name)) throw new InputError(`vocabulary[${i}]: ${shown(name)} is listed twice`)
      this.ids.set(name, i)
    })
    this.numberName = (this.names ?? []).find((name) => ID.test(name))
  }

  token(where, reference) {
    if (typeof reference !== "string" && !isWhole(reference)) {
      throw new InputError(`${where}: expected a token name or id, got ${shown(reference)}`)
    }
    const name = String(reference)
    if (this.ids.has(name)) return this.ids.get(name)
    if (isWhole(reference) || ID.test(name)) {
      if (this.numberName !== undefined) {
        throw new InputError(
          `${where}: no token is named ${shown(name)}, and ids are refused where names are ` +
          `numbers (here ${shown(this.numberName)}); give the name`,
        )
      }
      const token = Number(name)
      if (!(token >= 0 && token < this.size)) {
        throw new InputError(`${where}: token id ${token} is outside 0..${this.size - 1}`)
      }
      return token
    }
    if (this.names === null) {
      throw new InputError(
        `${where}: ${shown(name)} is not a token id; list the names under vocabulary to use them`,
      )
    }
    throw new InputError(`${where}: no token is named ${shown(name)}; add it to the vocabulary`)
  }
}

function row(where, probs, vocabulary, normalize) {
  if (!isMapping(probs) || Object.entries(probs).length === 0) {
    throw new InputError(
      `${where}: expected a mapping of at least one token to its probability, got ${shown(probs)}`,
    )
  }
  const found = new Map()
  for (const [reference, value] of Object.entries(probs)) {
    const here = within(where, reference)
    const token = vocabulary.token(here, reference)
    if (found.has(token)) {
      throw new InputError(`${here}: token ${token} is listed twice, by name and by id`)
    }
    found.set(token, weight(here, value))
  }
  return divided(where, found, normalize, (sum) => `${where}: sums to ${sum}; it must sum to 1`)
}

function priors(items, normalize) {
  const given = items.map((item) => item.has("prior"))
  if (!given.includes(true)) return null
  if (given.includes(false)) {
    throw new InputError(
      `classes[${given.indexOf(false)}].prior: missing; give a prior to every class or to none`,
    )
  }
  const found = new Map(items.map((item, k) => [k, weight(`classes[${k}].prior`, item.get("prior"))]))
  const says = (sum) => `classes[*].prior: the priors sum to ${sum}; they must sum to 1`
  return [...divided("classes[*].prior", found, normalize, says).values()]
}

function divided(where, weights, normalize, says) {
  let total = 0
  for (const value of weights.values()) total += value
  if (normalize) {
    if (!(total > 0 && total < Infinity)) {
      throw new InputError(`${where}: the weights sum to ${total}, which cannot be normalised`)
    }
    return new Map([...weights].map(([key, value]) => [key, value / total]))
  }
  if (Math.abs(total - 1) > SUM_TOLERANCE) {
    const sum = Number(total.toPrecision(9))
    throw new InputError(`${says(sum)} (or set \`normalize: true\` at the top of the file)`)
  }
  return weights
}

function weight(where, value) {
  if (typeof value !== "number") {
    throw new InputError(`${where}: expected a number, got ${shown(value)}`)
  }
  if (!(value >= 0 && value < Infinity)) {
    throw new InputError(`${where}: expected a finite number of at least 0, got ${value}`)
  }
  return value
}

function tokenName(where, name) {
  if (typeof name !== "string" && !isWhole(name)) {
    throw new InputError(`${where}: expected a token name, got ${shown(name)}`)
  }
  // netCDF ends a text at a NUL, and no encoding has half a surrogate pair
  if (/[\0]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(name)) {
    throw new InputError(
      `${where}: ${shown(String(name))} has a character that no file keeps (NUL, or half of a ` +
      "surrogate pair); give another name",
    )
  }
  return String(name)
}

/** A mapping as a Map, if it has the keys that it needs and no other. */
export function checkKeys(where, item, known, needed) {
  if (!isMapping(item)) {
    const place = where ? `${where}: expected` : "expected"
    throw new InputError(`${place} a mapping with ${needed.join(", ")}, got ${shown(item)}`)
  }
  const found = new Map(Object.entries(item))
  for (const key of found.keys()) {
    if (!known.includes(key)) throw new InputError(`${within(where, key)}: unknown key; known: ${known.join(", ")}`)
  }
  for (const key of needed) {
    if (!found.has(key)) throw new InputError(`${within(where, key)}: missing`)
  }
  return found
}
