/** Solving y' = velocity(t, y) at the times asked for: Dormand and Prince's pair, adaptive. */
import { InputError } from "../simulator/errors.js"

const C = [0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1]
const A = [
  [], [1 / 5], [3 / 40, 9 / 40], [44 / 45, -56 / 15, 32 / 9],
  [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
  [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
  [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
]
// fifth order minus fourth
const E = [71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40]
const MOST_STEPS = 20_000

export class Solver {
  /** velocity(t, y, out) writes y'. The state is advanced in place: `y` at `t`. */
  constructor(velocity, y, { rtol, atol }) {
    Object.assign(this, { velocity, rtol, atol, t: 0, taken: 0, size: 0 })
    this.y = Float64Array.from(y)
    this.k = Array.from({ length: 7 }, () => new Float64Array(y.length))
    this.trial = new Float64Array(y.length)
    velocity(0, this.y, this.k[0])
  }

  /** Take one step towards `target`; whether it is reached. */
  step(target) {
    const { k, y, trial, rtol, atol } = this
    if (target <= this.t) return true
    if (this.size === 0) this.size = this._firstSize(target)
    if (++this.taken > MOST_STEPS) throw new InputError("the theory took too many steps to solve")
    const last = this.t + this.size * 1.0000001 >= target
    const h = last ? target - this.t : this.size
    for (let stage = 1; stage < 7; stage++) {
      for (let i = 0; i < y.length; i++) {
        let sum = 0
        for (let j = 0; j < stage; j++) sum += A[stage][j] * k[j][i]
        trial[i] = y[i] + h * sum
      }
      this.velocity(this.t + C[stage] * h, trial, k[stage])
    }
    let squares = 0
    for (let i = 0; i < y.length; i++) {
      let sum = 0
      for (let j = 0; j < 7; j++) sum += E[j] * k[j][i]
      const scale = atol + rtol * Math.max(Math.abs(y[i]), Math.abs(trial[i]))
      squares += ((h * sum) / scale) ** 2
    }
    const error = Math.sqrt(squares / y.length)
    if (!(error <= 1)) {
      this.size = h * Math.max(0.2, Number.isFinite(error) ? 0.9 * error ** -0.2 : 0.2)
      if (this.t + this.size === this.t) throw new InputError("the theory cannot be solved here")
      return false
    }
    this.t = last ? target : this.t + h
    y.set(trial)
    ;[k[0], k[6]] = [k[6], k[0]] // the last slope is the next first
    const grown = h * Math.min(5, 0.9 * Math.max(error, 1e-10) ** -0.2)
    this.size = last ? Math.max(grown, this.size) : grown
    return last
  }

  _firstSize(target) {
    let speed = 0
    for (let i = 0; i < this.y.length; i++) speed = Math.max(speed, Math.abs(this.k[0][i]))
    return Math.min(target, speed > 0 ? 1e-3 / speed : target / 100)
  }
}
