/** Prediction: what a rung of the ladder says of a Simulation document, at the moments of its run. */
import { writeAttention } from "../simulator/gradient.js"
import { classesOf, startFrom } from "../simulator/run.js"
import { settingsOf } from "../simulator/settings.js"
import { momentumSteps, momentumTime, transitionTimes } from "./clocks.js"
import { Contexts } from "./contexts.js"
import { Eq10 } from "./eq10.js"
import { Polarisation } from "./polarisation.js"
import { SgdDecoder } from "./sgd.js"
import { Solver } from "./solving.js"

const RUNGS = { corrected: Eq10, sgd: SgdDecoder, "polarisation-class": Polarisation }
const MOST_LOGITS = 6000

/** Whether a theory is about the model of a document. */
export function speaksOf(document, rung) {
  const { name, normalization, ...rest } = settingsOf(document).model
  if (rung !== "polarisation-class") return name === "pairwise"
  return name === "extended" && normalization === "none" && Object.keys(rest).length === 0
}

/** Why a theory says nothing of a document; nothing where it speaks. */
export function silence(document, rung, classes) {
  const { optimizer, etaY, etaZ } = settingsOf(document)
  if (optimizer.name !== "sgd") return "The theories are about gradient descent, not Adam."
  if (!speaksOf(document, rung)) return "No theory on this page is about this model."
  if (!(etaY > 0)) return "The theories need a decoder that learns."
  if (rung === "polarisation-class") return etaZ > 0 ? "" : "The theory needs attention that learns."
  if (classes.K < 2) return "The theory compares kinds of sentences; here is only one."
  if (rung === "corrected" && !classes.hasPsi) return "Eq. 10 needs each next word to belong to one kind of sentence."
  if (rung === "corrected" && classes.M < 4) return "Eq. 10 needs a vocabulary of four words at least."
  if (classes.queries.length * new Set(classes.tokens).size > MOST_LOGITS) return "There are too many words to solve the theory here."
  return ""
}

/** t_0' and t_0 of Lemma 9 in the steps of a document, of the slowest class. */
export function transitions(document, classes) {
  const { etaY, momentum } = settingsOf(document)
  if (classes.M < 4 || !(etaY > 0)) return { t0Prime: NaN, t0: NaN }
  const { t0Prime, t0 } = transitionTimes(Math.min(...classes.prior), classes.M, etaY)
  return { t0Prime: momentumSteps(t0Prime, momentum), t0: momentumSteps(t0, momentum) }
}

export class Prediction {
  /** steps: the moments, increasing. */
  constructor(document, rung, steps) {
    const { classes, init, etaY, etaZ, momentum } = settingsOf(document)
    this.classes = classesOf(classes)
    this.contexts = new Contexts(this.classes, startFrom(init))
    this.mu = momentum
    this.motion = new RUNGS[rung](this.contexts, { etaY, etaZ, momentum })
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

  /** Solve for about `milliseconds`; return whether all moments are there. */
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
    writeAttention(contexts.layout, z, result.attention, at)
    this.recorded += 1
  }
}
