/** Files of classes: the YAML, JSON and table of weights (CSV) that the command line takes. */
import { library } from "./place.js"
import { classesFromDocument } from "./simulator/classes.js"
import { InputError } from "./simulator/errors.js"
import { isMapping, shown } from "./simulator/messages.js"

const LARGEST = 1_000_000 // bytes
const READERS = { ".yaml": parseYaml, ".yml": parseYaml, ".json": parseJson, ".csv": parseTable }

/** A document of classes, or of all that a page shows, from the bytes of a file, by its ending. */
export async function readFile(name, bytes) {
  try {
    const suffix = /\.[^.]*$/.exec(name.toLowerCase())?.[0]
    if (!Object.hasOwn(READERS, suffix)) throw new InputError(`files of sequence classes end in ${Object.keys(READERS).join(", ")}`)
    if (bytes.length > LARGEST) {
      throw new InputError(`${bytes.length.toLocaleString("en")} bytes; the page takes up to ${LARGEST.toLocaleString("en")}`)
    }
    const document = await READERS[suffix](decoded(bytes))
    const isRun = suffix === ".json" && isMapping(document) && ["a", "task", "engine"].some((key) => Object.hasOwn(document, key))
    if (!isRun) classesFromDocument(document)
    return document
  } catch (error) {
    throw error instanceof InputError ? new InputError(`${name}: ${error.message}`) : error
  }
}

function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes)
  } catch {
    throw new InputError("not UTF-8 text; save it as UTF-8")
  }
}

async function parseYaml(text, format = "YAML") {
  const { CORE_SCHEMA, load } = await library("js-yaml")
  try {
    return load(text, { schema: CORE_SCHEMA })
  } catch (error) {
    const line = error.mark ? `line ${error.mark.line + 1}: ` : ""
    throw new InputError(`invalid ${format}: ${line}${error.reason ?? error.message}`)
  }
}

/** JSON is YAML, whose parser refuses a key that is given twice. */
async function parseJson(text) {
  try {
    if (text.trim()) JSON.parse(text)
  } catch (error) {
    throw new InputError(`invalid JSON: ${error.message}`)
  }
  return parseYaml(text, "JSON")
}

const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/
const FIRST_MARK = /^[ \r\n]*(?:[^;\t,"\r\n]|"(?:[^"]|"")*")*([;\t,])/
const ARROW = /^(.*?)[ \t]*(?:→|->)[ \t]*(.*)$/s
const EXPECTED = "expected a first row with the next words and a row of weights for each word"

/**
 * A table of weights, by the rules of tasks/classes/class_files.py: the first row has a word for the next word
 * of each kind of sentence, the first column the words. `was → won` in the first row names the query
 * too; without it, it is the first cell.
 */
export function parseTable(text) {
  const rows = rowsOf(text)
  if (rows.length < 2 || rows[0].cells.length < 2) throw new InputError(`table: ${EXPECTED}`)
  const [{ cells: [corner, ...heads] }, ...rest] = rows
  const usual = ["", "word", "words"].includes(corner.toLowerCase()) ? "is" : corner
  const kinds = heads.map((head) => {
    const [, query, next] = ARROW.exec(head) ?? [head, usual, head]
    return { query, next, probs: [] }
  })
  const names = new Set()
  for (const { line, cells: [word, ...weights] } of rest) {
    const where = `table: line ${line}`
    if (!word) throw new InputError(`${where}: a row without a word; its first cell is the word`)
    if (names.has(word)) throw new InputError(`${where}: ${shown(word)} has a row already; keep one`)
    if (weights.length > kinds.length) {
      throw new InputError(`${where}: ${weights.length} weights for ${kinds.length} kinds of sentences; ${EXPECTED}`)
    }
    names.add(word)
    weights.forEach((weight, k) => {
      if (!weight) return
      if (!NUMBER.test(weight) || !(Number(weight) >= 0 && Number(weight) < Infinity)) {
        throw new InputError(`${where}: expected a number of at least 0 for ${shown(word)}, got ${shown(weight)}`)
      }
      if (Number(weight) > 0) kinds[k].probs.push([word, Number(weight)])
    })
  }
  for (const { query, next } of kinds) names.add(query).add(next)
  return {
    vocabulary: [...names], normalize: true,
    classes: kinds.map((of) => ({ ...of, probs: Object.fromEntries(of.probs) })),
  }
}

/** The rows that have something in them, as cells, each with its line. */
function rowsOf(text) {
  const mark = FIRST_MARK.exec(text)?.[1] ?? ","
  const cell = new RegExp(` *"((?:[^"]|"")*)" *|([^${mark}"\\r\\n][^${mark}\\r\\n]*)?`, "y")
  const rows = []
  let cells = [], at = 0, line = 1, began = 1
  for (;;) {
    cell.lastIndex = at
    const [all, quoted, bare = ""] = cell.exec(text)
    cells.push((quoted === undefined ? bare : quoted.replaceAll('""', '"')).replace(/^[ \t]+|[ \t]+$/g, ""))
    line += all.split(/\r\n|\r|\n/).length - 1
    at += all.length
    const sign = text[at]
    if (sign === mark) {
      at += 1
      continue
    }
    if (sign !== undefined && sign !== "\r" && sign !== "\n") {
      throw new InputError(`table: line ${line}: a quote is not closed, or closes before the end; double a quote that is meant`)
    }
    if (cells.some(Boolean)) rows.push({ line: began, cells })
    if (sign === undefined) return rows
    at += text.startsWith("\r\n", at) ? 2 : 1
    began = line += 1
    cells = []
  }
}

/** A cell of a table, between quotes where it needs them. */
export const quoted = (cell) => (/[",;\t\r\n]|^ | $/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell)

/** The weights of classes as such a table. */
export function toTable(document) {
  const words = wordsOf(document)
  const head = ["word", ...document.classes.map((of) => `${of.query} → ${of.next}`)]
  const rows = words.map((word) => [word, ...document.classes.map((of) => weightOf(of, word))])
  return [head, ...rows].map((row) => row.map(quoted).join(",")).join("\n")
}

/** The weight of a word in a class; a word may be called what every object has, such as "constructor". */
export function weightOf({ probs }, word) {
  return Object.hasOwn(probs, word) ? probs[word] : 0
}

/** The words that some class draws, in the order of the vocabulary. */
export function wordsOf(document) {
  const drawn = new Set(document.classes.flatMap((of) => Object.keys(of.probs)))
  const all = Array.isArray(document.vocabulary) ? document.vocabulary.map(String) : [...drawn]
  return all.filter((word) => drawn.has(word))
}
