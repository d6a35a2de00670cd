/** Code: the command line and the Python that give the numbers on the screen. */
import { momentumOf } from "./theory/prediction.js"

const FILE = "classes.json"
// models that a paper brings are imported from it
const HOMES = { joint: "attnlab.papers.joma.model" }

const classesWord = (document) => (typeof document.classes === "string" ? document.classes : FILE)

export function commandLine(document) {
  const engine = document.engine ?? { name: "sampled" }
  const optimizer = document.optimizer ?? { name: "sgd" }
  const options = {
    engine: engine.name, "eta-y": document.eta_y, "eta-z": document.eta_z, steps: document.steps,
    length: engine.length, "batch-size": engine.batch_size, optimizer: optimizer.name,
    momentum: optimizer.name === "sgd" ? momentumOf(document) : undefined,
    init: document.init === "zero" ? undefined : document.init, seed: seedOf(document),
    geometric: document.save?.geometric, every: document.save?.every, at: document.save?.at?.join(","),
    ...modelOptions(document.model), out: "run.nc",
  }
  const words = ["attnlab", "simulate", quoted(classesWord(document))]
  for (const [name, value] of Object.entries(options)) {
    if (value === true) words.push(`--${name}`)
    else if (value !== undefined && value !== null && !Array.isArray(value)) words.push(`--${name}`, quoted(String(value)))
  }
  return words.join(" ")
}

/** The commonest switches have options of their own; any model can be given with all its fields. */
function modelOptions(model = { name: "pairwise" }) {
  const { name, ...fields } = model
  if (name === "extended" && Object.keys(fields).every((field) => ["residual", "heads"].includes(field))) return fields
  if (name === "pairwise") return {}
  const listing = Object.entries(fields).map(([field, value]) => `${field}=${value}`).join(",")
  return { model: listing ? `${name}:${listing}` : name }
}

export function python(document) {
  const engine = document.engine ?? { name: "sampled" }
  const { name: kind, ...fields } = engine
  const made = `${kind[0].toUpperCase()}${kind.slice(1)}(${listed(fields)})`
  const optimizer = document.optimizer ?? { name: "sgd" }
  const words = {
    eta_y: document.eta_y, eta_z: document.eta_z, steps: document.steps, optimizer: optimizer.name,
    momentum: optimizer.name === "sgd" ? (optimizer.momentum ?? null) : null,
    init: document.init ?? "zero", seeds: [seedOf(document)],
  }
  const lines = Object.entries(words).filter(([, value]) => value !== null)
    .map(([name, value]) => `    ${name}=${JSON.stringify(value)},\n`)
  let imports = "import attnlab\n"
  if (document.model) {
    const { name, ...of } = document.model
    const kind = `${name[0].toUpperCase()}${name.slice(1)}`
    if (HOMES[name]) imports += `from ${HOMES[name]} import ${kind}\n`
    lines.push(`    model=${HOMES[name] ? "" : "attnlab."}${kind}(${listed(of)}),\n`)
  }
  if (document.save) lines.push(`    save=attnlab.Save(${listed(document.save)}),\n`)
  return `${imports}\nresult = attnlab.simulate(\n    ${JSON.stringify(classesWord(document))},\n` +
    `    attnlab.${made},\n${lines.join("")})\nprint(result["attention"].isel(seed=0).isel({result["loss"].dims[-1]: -1}))\n`
}

/** The file that both name, where the classes are one's own; else nothing. */
export function classesFile(document) {
  return typeof document.classes === "string" ? "" : `${JSON.stringify(document.classes, null, 2)}\n`
}

const seedOf = (document) => (Array.isArray(document.seeds) ? document.seeds[0] : 0)
const quoted = (word) => (/^[\w.:=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)
const listed = (fields) => Object.entries(fields)
  .map(([name, value]) => `${name}=${value === true ? "True" : value === false ? "False" : value === null ? "None" : JSON.stringify(value)}`)
  .join(", ")
