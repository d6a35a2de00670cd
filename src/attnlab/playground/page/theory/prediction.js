/** Prediction: what a rung of the ladder says of a Simulation document, at the moments of its run. */
import { writeAttention } from "../simulator/gradient.js"
import { DEFAULTS, classesOf, startFrom } from "../simulator/run.js"
import { momentumSteps, momentumTime, transitionTimes } from "./clocks.js"
import { Contexts } from "./contexts.js"
import { Eq10 } from "./eq10.js"
import { SgdDecoder } from "./sgd.js"
import { Solver } from "./solving.js"

const RUNGS = { corrected: Eq10, sgd: SgdDecoder }
const MOST_LOGITS = 6000

/** The momentum of a document: 0.9 for SGD's steps unless it is given, none in the flow. */
export function momentumOf(document) {
  const optimizer = document.optimizer ?? DEFAULTS.optimizer
  if (optimizer.name !== "sgd" || (document.engine ?? DEFAULTS.engine).name === "flow") return 0
  return optimizer.momentum ?? 0.9
}

/** Why a rung does not speak of a document; nothing where it does. */
export function silence(document, rung, classes = classesOf(document.classes)) {
  const model = document.model ?? { name: "pairwise" }
  if ((document.optimizer ?? DEFAULTS.optimizer).name !== "sgd") return "The theory is about gradient descent, not Adam."
  if (model.name !== "pairwise") return "The theory is about the paper’s own model: one head, no residual connection."
  if (classes.K < 2) return "The theory compares kinds of sentences; here is only one."
  if (rung === "corrected" && !classes.hasPsi) return "Eq. 10 needs each next word to belong to one kind of sentence."
  if (rung === "corrected" && classes.M < 4) return "Eq. 10 needs a vocabulary of four words at least."
  if (!(document.eta_y > 0)) return "The theory needs a decoder that learns."
  if (classes.queries.length * new Set(classes.tokens).size > MOST_LOGITS) return "There are too many words to solve the theory here."
  return ""
}

/** t_0' and t_0 of Lemma 9 in the steps of a document, of the slowest class. */
export function transitions(document, classes = classesOf(document.classes)) {
  if (classes.M < 4 || !(document.eta_y > 0)) return { t0Prime: NaN, t0: NaN }
  const { t0Prime, t0 } = transitionTimes(Math.min(...classes.prior), classes.M, document.eta_y)
  const mu = momentumOf(document)
  return { t0Prime: momentumSteps(t0Prime, mu), t0: momentumSteps(t0, mu) }
}

export class Prediction {
  /** steps: the moments, increasing; init: "zero", or logits as in the document. */
  constructor(document, rung, steps) {
    const given = { ...DEFAULTS, ...document }
    this.classes = classesOf(given.classes)
    this.contexts = new Contexts(this.classes, startFrom(given.init))
    this.mu = momentumOf(given)
    this.motion = new RUNGS[rung](this.contexts, {
      etaY: given.eta_y, etaZ: given.eta_z, momentum: this.mu,
    })
    const { rtol, atol } = this.motion
    this.solver = new Solver((t, y, out) => this.motion.velocity(t, y, out), this.motion.initial, { rtol, atol })
    const { size } = this.classes
    this.recorded = 0
    this.result = {
      rung, steps: Float64Array.from(steps), attention: new Float64Array(steps.length * size),
      logits: new Float64Array(steps.length * size),
    }
  }

  get done() {
    return this.recorded === this.result.steps.length
  }

  /** Solve for about so many milliseconds; whether all moments are there. */
  advance(milliseconds) {
    const until = performance.now() + milliseconds
    while (!this.done && performance.now() <= until) {
      const step = this.result.steps[this.recorded]
      const time = this.motion.clock(momentumTime(step, this.mu), step)
      if (this.solver.step(time)) this._record()
    }
    return this.done
  }

  _record() {
    const { classes, contexts, result } = this
    const z = this.motion.logits(this.solver.y), at = this.recorded * classes.size
    for (let i = 0; i < classes.size; i++) result.logits[at + i] = z[contexts.zPlace[i]]
    const layout = { classes, zPlace: contexts.zPlace, slotOfEntry: this._entries() }
    writeAttention(layout, z, result.attention, at)
    this.recorded += 1
  }

  _entries() {
    this.entries ??= Int32Array.from({ length: this.classes.size }, (_, i) => i)
    return this.entries
  }
}
