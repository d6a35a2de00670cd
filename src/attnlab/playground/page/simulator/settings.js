/**
 * Settings: what a Simulation document means, with Python's defaults; and documents with other settings.
 *
 * A task, motion, gradient or model is a mapping with a name, or the name alone; classes alone are a
 * task of sequences, of infinite length where the gradient is that of the population.
 */
import { isMapping } from "./messages.js"

const USUAL = { length: 128, size: 128, last: 100, momentum: 0.9 }

const named = (of, usual) => (typeof of === "string" ? { name: of } : of ?? { name: usual })

/** The task, motion, gradient and model of a document, each as a mapping. */
export function partsOf(document) {
  const motion = named(document.motion, "steps")
  const gradient = named(document.gradient, motion.name === "flow" ? "population" : "batches")
  const length = gradient.name === "population" ? "inf" : USUAL.length
  const task = isMapping(document.task) && "name" in document.task ? document.task
    : { name: "sequences", classes: document.task, length }
  return { task, motion, gradient, model: named(document.model, "pairwise") }
}

/** All that the page reads of a document; `batch` is null for the population. */
export function settingsOf(document) {
  const { task, motion, gradient, model } = partsOf(document)
  const { eta_y: etaY = 1, eta_z: etaZ = 1, init, seeds, record } = document
  const isFlow = motion.name === "flow"
  const optimizer = isFlow ? { name: "sgd", momentum: 0 } : named(motion.optimizer, "sgd")
  return {
    classes: task.classes, trainingSet: task.training_set ?? null,
    length: task.length === "inf" ? Infinity : task.length ?? USUAL.length,
    batch: gradient.name === "population" ? null : gradient.size ?? USUAL.size,
    isFlow, last: (isFlow ? motion.time : motion.steps) ?? USUAL.last, clip: motion.clip ?? null,
    optimizer, momentum: optimizer.name === "sgd" ? optimizer.momentum ?? USUAL.momentum : 0,
    etaY, etaZ, init: init ?? "zero", seed: Array.isArray(seeds) ? seeds[0] : 0, record: record ?? {}, model,
  }
}

/** A document with other settings of its parts: changed(of, { task: { length: 8 } }). */
export function changed(document, parts) {
  const now = partsOf(document)
  const next = Object.entries(parts).map(([name, settings]) => [name, { ...now[name], ...settings }])
  return { ...document, ...Object.fromEntries(next) }
}

/** A document with sentences of another length; infinitely long ones are learnt from the population. */
export function withLength(document, length) {
  const { task, gradient, ...rest } = { ...document, ...partsOf(document) }
  return length === Infinity
    ? { ...rest, task: { ...task, length: "inf" }, gradient: { name: "population" } }
    : { ...rest, task: { ...task, length }, gradient: { name: "batches", size: gradient.size ?? USUAL.size } }
}

/** A document that moves by continuous time, or by steps again. */
export function withFlow(document, isFlow) {
  const { last } = settingsOf(document)
  const motion = isFlow ? { name: "flow", time: Math.max(last, 1000) }
    : { name: "steps", steps: Math.min(last, 5000), optimizer: { name: "sgd", momentum: USUAL.momentum } }
  return { ...withLength(document, Infinity), motion }
}

/** A document with another model; the paper's own is left out. */
export function withModel(document, changes) {
  const { name, ...now } = partsOf(document).model
  const model = { ...now, name: "extended", ...changes }
  for (const [setting, usual] of [["residual", false], ["heads", 1], ["normalization", "l2"]]) if (model[setting] === usual) delete model[setting]
  const { model: _, ...rest } = document
  return Object.keys(model).length > 1 ? { ...rest, model } : rest
}

/**
 * All settings by the names that the command line and Python share, in the order of the document's
 * parts. A setting that is null is as if it was not given.
 */
export function flat(document) {
  const { task: { name: _task, classes: _classes, ...task }, motion, gradient, model } = partsOf(document)
  const { task: _t, motion: _m, gradient: _g, model: _o, record = {}, ...own } = document
  const { name: moves, optimizer: chosen, weight_decay: decay, ...moving } = motion
  const { name: optimizer, ...constants } = named(chosen, undefined)
  const found = {
    ...task, model: model.name === "pairwise" ? null : model,
    motion: moves === "steps" ? null : moves, ...moving, flow_weight_decay: decay, optimizer, ...constants,
    gradient: gradient.name === "batches" ? null : gradient.name, batch_size: gradient.size,
    ...own, ...record,
  }
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== null && value !== undefined))
}
