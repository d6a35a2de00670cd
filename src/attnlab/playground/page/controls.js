/** Controls: what one can turn, as fields of a Simulation document. */
import { h, number, say } from "./dom.js"
import { presetParameters, presetText } from "./simulator/presets.js"
import { changed, partsOf, settingsOf, withFlow, withLength, withModel } from "./simulator/settings.js"

const RATES = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]
const bySteps = (of) => !settingsOf(of).isFlow
const hasBatches = (of) => settingsOf(of).batch !== null
const presetOf = (of) => presetParameters(settingsOf(of).classes)

const rate = (name, read) => ({ values: RATES, read, write: (of, value) => ({ ...of, [name]: value }) })
const parameter = (name) => ({
  applies: (of) => typeof settingsOf(of).classes === "string" && name in presetOf(of).parameters,
  read: (of) => presetOf(of).parameters[name],
  write: (of, value) => {
    const { name: preset, parameters } = presetOf(of)
    const next = { ...parameters, [name]: value }
    if (name === "classes" && "queries" in next) next.queries = Math.min(next.queries, value)
    if (name === "queries" && "classes" in next) next.queries = Math.min(value, next.classes)
    return changed(of, { task: { classes: presetText(preset, next) } })
  },
})

/** label and hint in plain words; `paper` is what the paper calls it. */
export const CONTROLS = [
  { id: "eta_y", group: "Training", label: "Decoder speed", paper: "η_Y", ...rate("eta_y", (of) => settingsOf(of).etaY),
    hint: "How fast it learns which word comes next." },
  { id: "eta_z", group: "Training", label: "Attention speed", paper: "η_Z", ...rate("eta_z", (of) => settingsOf(of).etaZ),
    hint: "How fast it learns where to look." },
  { id: "steps", group: "Training", label: "Training steps", values: [20, 50, 100, 200, 400, 1000, 2000, 5000],
    applies: bySteps, read: (of) => settingsOf(of).last,
    write: (of, value) => changed(of, { motion: { steps: value } }) },
  { id: "time", group: "Training", label: "Time", values: [1e2, 1e3, 1e4, 1e5, 1e6, 1e7],
    applies: (of) => !bySteps(of), read: (of) => settingsOf(of).last,
    write: (of, value) => changed(of, { motion: { time: value } }) },
  { id: "length", group: "Training", label: "Sentence length", paper: "T",
    values: [4, 8, 16, 24, 32, 64, 128, 256, 1024, 4096, Infinity],
    shown: (value) => (value === Infinity ? "∞" : number(value)),
    applies: bySteps, read: (of) => settingsOf(of).length, write: withLength },
  { id: "batch", group: "Training", label: "Sentences a step", values: [1, 4, 16, 64, 128, 256, 512],
    applies: hasBatches, read: (of) => settingsOf(of).batch,
    write: (of, value) => changed(of, { gradient: { size: value } }) },
  { id: "optimizer", group: "Training", label: "Optimiser", values: ["sgd", "adam"],
    shown: (value) => ({ sgd: "SGD", adam: "Adam" })[value] ?? value,
    applies: bySteps, read: (of) => settingsOf(of).optimizer.name,
    write: (of, value) => changed(of, { motion: { optimizer: value === "sgd" ? { name: "sgd", momentum: 0.9 } : { name: value } } }) },
  { id: "momentum", group: "Training", label: "Momentum", values: [0, 0.5, 0.8, 0.9, 0.95, 0.99],
    applies: (of) => bySteps(of) && settingsOf(of).optimizer.name === "sgd",
    read: (of) => settingsOf(of).momentum,
    write: (of, value) => changed(of, { motion: { optimizer: { name: "sgd", momentum: value } } }) },
  { id: "init", group: "Training", label: "Start", values: ["zero", "uniform"],
    shown: (value) => ({ zero: "all alike", uniform: "random" })[value] ?? "given",
    applies: (of) => typeof settingsOf(of).init === "string",
    read: (of) => settingsOf(of).init, write: (of, value) => ({ ...of, init: value }) },
  { id: "seed", group: "Training", label: "Chance (seed)", values: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    applies: (of) => hasBatches(of) || of.init === "uniform",
    read: (of) => settingsOf(of).seed, write: (of, value) => ({ ...of, seeds: [value] }) },

  { id: "common_mass", group: "Data", label: "How much is shared", values: [0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 20 / 31, 0.8, 0.9],
    shown: (value) => `${Math.round(100 * value)}%`, ...parameter("common_mass") },
  { id: "lowest", group: "Data", label: "Rarest against likeliest", values: [0.02, 0.1, 0.3, 0.5, 0.8, 1],
    hint: "At 1 the telling words are all equally frequent.", ...parameter("lowest") },
  { id: "classes", group: "Data", label: "Kinds of sentences", paper: "K", values: [2, 3, 4, 6, 8, 10, 15, 20], ...parameter("classes") },
  { id: "num_classes", group: "Data", label: "Kinds of sentences", paper: "K", values: [2, 3, 4, 6, 8, 10, 15, 20], ...parameter("num_classes") },
  { id: "queries", group: "Data", label: "Last words (queries)", values: [1, 2, 3, 4, 5, 10], ...parameter("queries") },
  { id: "common", group: "Data", label: "Shared words", values: [1, 2, 3, 4, 5, 6, 10, 20, 40], ...parameter("common") },
  { id: "distinct", group: "Data", label: "Telling words of each kind", values: [1, 2, 3, 4, 5, 6, 10, 20, 40], ...parameter("distinct") },
  { id: "common_prob", group: "Data", label: "How often the shared word occurs", values: [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8],
    ...parameter("common_prob") },

  { id: "normalization", group: "Training", label: "Normalise what is read", values: ["l2", "none"],
    shown: (value) => (value === "none" ? "no" : "yes"), hint: "Without it one word takes all.",
    read: (of) => partsOf(of).model.normalization ?? "l2", write: (of, value) => withModel(of, { normalization: value }) },
  { id: "residual", group: "Beyond the page", label: "Residual connection", values: [false, true],
    shown: (value) => (value ? "yes" : "no"),
    read: (of) => partsOf(of).model.residual ?? false, write: (of, value) => withModel(of, { residual: value }) },
  { id: "heads", group: "Beyond the page", label: "Attention heads", values: [1, 2, 4, 8],
    read: (of) => partsOf(of).model.heads ?? 1, write: (of, value) => withModel(of, { heads: value }) },
  { id: "flow", group: "Beyond the page", label: "Continuous time", values: [false, true],
    shown: (value) => (value ? "yes" : "no"),
    read: (of) => settingsOf(of).isFlow, write: withFlow },
]

/** The paper's letter, its index below: η_Y. */
function paperName(name) {
  const [letter, index] = name.split("_")
  return h("span", { class: "paper-name", "aria-hidden": "true" }, ` ${letter}`, index ? h("sub", {}, index) : null)
}

/** The values on offer, with the document's own among them and in its place. */
function offered(control, own) {
  if (control.values.includes(own)) return control.values
  if (typeof own !== "number") return [...control.values, own]
  return [...control.values, own].sort((x, y) => x - y)
}

/** The controls as elements; `turn(control, value)` is called on every move. */
export class ControlPanel {
  constructor(root, turn) {
    this.parts = new Map()
    const groups = new Map()
    for (const control of CONTROLS) {
      if (!groups.has(control.group)) {
        const box = h("div", { class: "group" })
        const beyond = control.group === "Beyond the page"
        const title = { Training: "How it learns", Data: "What it reads", "Beyond the page": "With attnlab itself" }[control.group]
        groups.set(control.group, box)
        root.append(beyond
          ? h("details", { class: "panel-part", id: "beyond" }, h("summary", {}, title), box)
          : h("section", { class: "panel-part", "aria-label": title }, h("h3", {}, title), box))
      }
      groups.get(control.group).append(this._row(control, turn))
    }
  }

  _row(control, turn) {
    const output = h("output", { for: `control-${control.id}` })
    const isScale = typeof control.values[0] === "number"
    const shown = control.shown ?? number
    const input = isScale
      ? h("input", { type: "range", id: `control-${control.id}`, min: 0, step: 1,
        oninput: () => turn(control, part.values[Number(input.value)]) })
      : h("select", { id: `control-${control.id}`,
        onchange: () => turn(control, part.values[input.selectedIndex]) })
    const name = h("label", { for: `control-${control.id}` }, control.label,
      control.paper ? paperName(control.paper) : null)
    const row = h("div", { class: `control ${isScale ? "scale" : "choice"}`, title: control.hint ?? null },
      name, isScale ? output : null, input)
    const part = { control, row, input, output, shown, isScale, values: control.values }
    this.parts.set(control.id, part)
    return row
  }

  /** Show a document; the section of data is gone where no control of it applies. */
  show(document) {
    const used = new Set()
    for (const part of this.parts.values()) {
      const { control, row, input, output, shown } = part
      const applies = control.applies?.(document) ?? true
      row.hidden = !applies
      if (!applies) continue
      used.add(row.closest(".panel-part"))
      const own = control.read(document)
      part.values = offered(control, own)
      if (part.isScale) {
        input.max = part.values.length - 1
        input.value = part.values.indexOf(own)
        input.setAttribute("aria-valuetext", shown(own))
        say(output, shown(own))
      } else {
        input.replaceChildren(...part.values.map((value) => h("option", {}, shown(value))))
        input.selectedIndex = part.values.indexOf(own)
      }
    }
    for (const { row } of this.parts.values()) {
      const section = row.closest(".panel-part")
      section.hidden = !used.has(section)
    }
  }
}
