/** The tour: three short steps, never in the way. */
import { byId, h } from "./dom.js"

const STEPS = [
  { at: "#play", words: "Press Play. Each word is shaded by how much attention it gets, and each bar is a word. At first everything is looked at alike; then watch." },
  { at: "#control-eta_y", words: "Drag a slider: everything is trained again at once. A faster decoder freezes attention sooner. The dashes and diamonds say where it began and what theory expects." },
  { at: "#open-words", words: "Try your own words, or an experiment above. Every picture can be shared by its link." },
]
const KEY = "attnlab-tour-done"

export class Tour {
  constructor() {
    this.box = byId("tour")
    this.step = -1
    byId("take-tour").addEventListener("click", () => this.show(0))
  }

  /** Begin by itself, for whoever has not seen it. */
  offer() {
    if (!kept()) this.show(0, false)
  }

  show(step, focus = true) {
    this.step = step
    document.querySelectorAll(".toured").forEach((of) => of.classList.remove("toured"))
    this.box.hidden = step >= STEPS.length
    if (this.box.hidden) return keep()
    const { at, words } = STEPS[step]
    const target = document.querySelector(at)
    ;(target.closest(".control") ?? target).classList.add("toured")
    const next = h("button", { type: "button", class: "main", onclick: () => this.show(step + 1) },
      step + 1 < STEPS.length ? "Next" : "Done")
    const close = h("button", { type: "button", onclick: () => this.show(STEPS.length) }, "Close the tour")
    this.box.replaceChildren(
      h("p", {}, h("strong", {}, `${step + 1} of ${STEPS.length} `), words), h("div", { class: "tour-buttons" }, next, step + 1 < STEPS.length ? close : null),
    )
    if (focus) next.focus({ preventScroll: true })
  }
}

function kept() {
  try {
    return localStorage.getItem(KEY) !== null
  } catch {
    return false // a frame or a file may have no storage
  }
}

function keep() {
  try {
    localStorage.setItem(KEY, "1")
  } catch {
    // then it is offered again
  }
}
