/** Files of classes: the YAML and JSON that the command line takes, and a table of weights (CSV). */
import { classesFromDocument } from "./simulator/classes.js"
import { InputError } from "./simulator/errors.js"

const LARGEST = 1_000_000 // characters

/** A document of classes from the text of a file, by its ending. */
export async function readFile(name, text) {
  const suffix = name.toLowerCase().replace(/^.*(?=\.)/, "")
  if (text.length > LARGEST) {
    throw new InputError(`${name}: ${text.length.toLocaleString("en")} characters; the page takes up to ${LARGEST.toLocaleString("en")}`)
  }
  let document
  if (suffix === ".json") document = parseJson(text)
  else if (suffix === ".yaml" || suffix === ".yml") document = await parseYaml(text)
  else if (suffix === ".csv" || suffix === ".tsv" || suffix === ".txt") document = parseTable(text)
  else throw new InputError(`${name}: files of sequence classes end in .yaml, .yml, .json or .csv`)
  classesFromDocument(document)
  return document
}

function parseJson(text) {
  if (!text.trim()) return null
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new InputError(`invalid JSON: ${error.message}`)
  }
}

/** Scalars of YAML 1.2, as Python reads them: `no` is a word. */
async function parseYaml(text) {
  const { FAILSAFE_SCHEMA, Type, load } = await import("./vendor/js-yaml/js-yaml.mjs")
  const scalar = (name, pattern, construct) => new Type(`tag:yaml.org,2002:${name}`, {
    kind: "scalar", resolve: (data) => data === null ? name === "null" : pattern.test(data), construct,
  })
  const schema = FAILSAFE_SCHEMA.extend({ implicit: [
    scalar("null", /^(null|Null|NULL|~|)$/, () => null),
    scalar("bool", /^(true|True|TRUE|false|False|FALSE)$/, (data) => data.toLowerCase() === "true"),
    scalar("int", /^(0|-?[1-9][0-9]*)$/, Number),
    scalar("float", /^([-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+)$/, Number),
  ] })
  try {
    return load(text, { schema }) ?? null
  } catch (error) {
    const line = error.mark ? `line ${error.mark.line + 1}: ` : ""
    throw new InputError(`invalid YAML: ${line}${error.reason ?? error.message}`)
  }
}

/**
 * A table of weights: the first row has a word for the next word of each kind of sentence, the first
 * column the words. `was → won` in the first row names the query too; without it, it is the first cell.
 */
export function parseTable(text) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim())
  const mark = [";", "\t", ","].find((of) => lines[0]?.includes(of)) ?? ","
  const cells = lines.map((line) => line.split(mark).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1")))
  if (cells.length < 2 || cells[0].length < 2) {
    throw new InputError("table: expected a first row with the next words and a row of weights for each word")
  }
  const heads = cells[0].slice(1).map((head) => head.split(/\s*(?:→|->)\s*/))
  const usual = cells[0][0].replace(/^words?$/i, "") || "is"
  const classes = heads.map((head) => ({ query: head.length > 1 ? head[0] : usual, next: head.at(-1), probs: {} }))
  const names = new Set()
  cells.slice(1).forEach((row, at) => {
    names.add(row[0])
    classes.forEach((of, k) => {
      const weight = row[k + 1] === undefined || row[k + 1] === "" ? 0 : Number(row[k + 1])
      if (!(weight >= 0 && weight < Infinity)) {
        throw new InputError(`table: row ${at + 2}, “${row[0]}”: expected a number of at least 0, got “${row[k + 1]}”`)
      }
      if (weight > 0) of.probs[row[0]] = weight
    })
  })
  for (const of of classes) names.add(of.query).add(of.next)
  return { vocabulary: [...names], normalize: true, classes }
}

/** The weights of classes as such a table. */
export function toTable(document) {
  const words = wordsOf(document)
  const quote = (cell) => (/[",;\t]/.test(String(cell)) ? `"${cell}"` : cell)
  const head = ["word", ...document.classes.map((of) => `${of.query} → ${of.next}`)]
  const rows = words.map((word) => [word, ...document.classes.map((of) => of.probs[word] ?? 0)])
  return [head, ...rows].map((row) => row.map(quote).join(",")).join("\n")
}

/** The words that some class draws, in the order of the vocabulary. */
export function wordsOf(document) {
  const drawn = new Set(document.classes.flatMap((of) => Object.keys(of.probs)))
  const all = Array.isArray(document.vocabulary) ? document.vocabulary.map(String) : [...drawn]
  return all.filter((word) => drawn.has(word))
}
