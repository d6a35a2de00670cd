/** The player: a position between the first and the last record, played, scrubbed or stepped. */
import { byId, say } from "./dom.js"

const SECONDS = 8.5
const AT_FIRST = 1.2 // seconds at step 0, so that one sees how it begins

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches

export class Player {
  /** draw(position) shows a moment; ended() is called when a play comes to its end. */
  constructor(draw, ended) {
    Object.assign(this, { draw, ended, position: 0, last: 1, frame: 0 })
    this.button = byId("play")
    this.slider = byId("moment")
    this.button.addEventListener("click", () => (this.playing ? this.pause() : this.play()))
    this.slider.addEventListener("input", () => {
      this.pause()
      this.go(Number(this.slider.value))
    })
    document.addEventListener("keydown", (event) => {
      const free = event.target === document.body || event.target === this.slider || event.target.id === "stage"
      if (event.key === " " && free) {
        event.preventDefault()
        this.button.click()
      }
    })
  }

  get playing() {
    return this.frame !== 0
  }

  /** Show a new run, with its number of records, at the same fraction of the run. */
  lay(records) {
    const fraction = this.last > 0 ? this.position / this.last : 0
    this.last = records - 1
    this.slider.max = this.last
    this.go(fraction * this.last)
  }

  go(position) {
    this.position = Math.max(0, Math.min(position, this.last))
    this.slider.value = this.position
    this.draw(this.position)
  }

  play() {
    cancelAnimationFrame(this.frame) // who plays already begins no second time
    if (this.position >= this.last) this.go(0)
    let before = performance.now(), rest = this.position === 0 ? AT_FIRST : 0
    const next = (now) => {
      const seconds = Math.min(now - before, 100) / 1000
      before = now
      rest -= seconds
      if (rest <= 0) this.go(this.position + (seconds / SECONDS) * this.last)
      if (this.position >= this.last) {
        this.pause()
        this.ended()
      } else this.frame = requestAnimationFrame(next)
    }
    this.frame = requestAnimationFrame(next)
    this._word()
  }

  pause() {
    cancelAnimationFrame(this.frame)
    this.frame = 0
    this._word()
  }

  _word() {
    say(this.button, this.playing ? "Pause" : "Play")
  }
}
