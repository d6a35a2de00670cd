/** The tour: three short steps over the title, once the first play is over. */
import { byId, h } from "./dom.js"
import { reducedMotion } from "./player.js"

const STEPS = [
  { at: "#play", words: "Each word is shaded by how much attention it gets, and each bar is a word. Play shows it again; the slider beside goes to any moment." },
  { at: "#control-eta_y", words: "Drag a slider: everything is trained again at once. A faster decoder slows attention down sooner. Dashes say where it began, diamonds what theory expects." },
  { at: "#open-words", words: "Try your own words, or an experiment above. “Copy link” brings back what you see." },
]
const KEY = "attnlab-tour-done"

export class Tour {
  constructor() {
    this.box = byId("tour")
    this.step = -1
    byId("take-tour").addEventListener("click", () => this.show(0))
  }

  /** Begin by itself, for whoever has not seen it; not in a frame, where it is hidden. */
  offer() {
    const embedded = document.body.classList.contains("embedded")
    if (this.step < 0 && !embedded && stored((of) => of.getItem(KEY)) === null) this.show(0, false)
  }

  /** Show a step; `asked` for, it goes where that is. */
  show(step, asked = true) {
    this.step = step
    document.querySelectorAll(".toured").forEach((of) => of.classList.remove("toured"))
    this.box.hidden = step >= STEPS.length
    if (this.box.hidden) return stored((of) => of.setItem(KEY, "1"))
    const { at, words } = STEPS[step]
    const target = document.querySelector(at)
    ;(target.closest(".control") ?? target).classList.add("toured")
    const next = h("button", { type: "button", class: "main", onclick: () => this.show(step + 1) },
      step + 1 < STEPS.length ? "Next" : "Done")
    const close = h("button", { type: "button", onclick: () => this.show(STEPS.length) }, "Close the tour")
    this.box.replaceChildren(
      h("p", {}, h("strong", {}, `${step + 1} of ${STEPS.length} `), words), h("div", { class: "tour-buttons" }, next, step + 1 < STEPS.length ? close : null),
    )
    if (!asked) return
    target.scrollIntoView({ block: "center", behavior: reducedMotion() ? "auto" : "smooth" })
    next.focus({ preventScroll: true })
  }
}

/** Look into the browser's storage, or write there; a frame or a file may have none. */
function stored(act) {
  try {
    return act(localStorage)
  } catch {
    return null // then the tour is offered again
  }
}
