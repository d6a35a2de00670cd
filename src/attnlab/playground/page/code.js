/** Code: the command line, the Python and the file of the run on the screen. */
import { library } from "./place.js"
import { flat, settingsOf } from "./simulator/settings.js"

const FILE = "classes.json"
// models that a paper brings are imported from it
const HOMES = { joint: "attnlab.papers.joma.model" }

const classesWord = (document) => {
  const { classes } = settingsOf(document)
  return typeof classes === "string" ? classes : FILE
}

export function commandLine(document) {
  const { model, seeds: _, init, ...settings } = flat(document)
  const start = init === "uniform" ? { init } : {} // the command line takes no logits
  const options = { ...settings, ...start, ...modelOptions(model), seed: settingsOf(document).seed, out: "run.nc" }
  const words = ["attnlab", "simulate", quoted(classesWord(document))]
  for (const [name, value] of Object.entries(options)) {
    const option = name.replaceAll("_", "-")
    if (typeof value === "boolean") words.push(`--${value ? "" : "no-"}${option}`)
    else words.push(`--${option}`, quoted(Array.isArray(value) ? value.join(",") : String(value)))
  }
  return words.join(" ")
}

/** The commonest switches have options of their own; any model can be given with all its fields. */
function modelOptions({ name, ...fields } = { name: "pairwise" }) {
  if (name === "pairwise") return {}
  if (name === "extended" && Object.values(fields).every((value) => typeof value !== "object")) return fields
  const listing = Object.entries(fields).map(([field, value]) => `${field}=${value}`).join(",")
  return { model: listing ? `${name}:${listing}` : name }
}

export function python(document) {
  const { model, ...settings } = flat(document)
  const lines = Object.entries(settings).map(([name, value]) => `    ${name}=${literal(value)},\n`)
  let imports = "import attnlab\n"
  if (model) {
    const { name, ...fields } = model
    const kind = `${name[0].toUpperCase()}${name.slice(1)}`
    if (HOMES[name]) imports += `from ${HOMES[name]} import ${kind}\n`
    const listed = Object.entries(fields).map(([field, value]) => `${field}=${literal(value)}`).join(", ")
    lines.push(`    model=${HOMES[name] ? "" : "attnlab."}${kind}(${listed}),\n`)
  }
  return `${imports}\nresult = attnlab.simulate(\n    ${JSON.stringify(classesWord(document))},\n${lines.join("")})\n` +
    `print(result["attention"].isel(seed=0).isel({result["loss"].dims[-1]: -1}))\n`
}

/** The run as a file that `attnlab simulate` takes. */
export async function yaml(document) {
  const { dump } = await library("js-yaml")
  return dump(document, { flowLevel: 2, lineWidth: 100 })
}

/** The file that command line and Python name, where the classes are one's own; else nothing. */
export function classesFile(document) {
  const { classes } = settingsOf(document)
  return typeof classes === "string" ? "" : `${JSON.stringify(classes, null, 2)}\n`
}

const quoted = (word) => (/^[\w.:=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)

/** A value as Python writes it. */
function literal(value) {
  const words = { true: "True", false: "False", null: "None" }
  return JSON.stringify(value).replaceAll(/"(?:[^"\\]|\\.)*"|true|false|null/g, (word) => words[word] ?? word)
}
