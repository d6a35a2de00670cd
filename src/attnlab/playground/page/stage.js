/** The stage: a run drawn at a moment; the sentence, the bars, the curves and the story. */
import { Bars, chosen, peaks, widest } from "./charts/bars.js"
import { Curve } from "./charts/curves.js"
import { Sentence } from "./charts/sentence.js"
import { byId, h, number, say } from "./dom.js"
import { measures } from "./simulator/measures.js"
import { mean, tell } from "./story.js"

const ENDS = [0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1] // of the bars' axis

/** A result with what is measured of it. */
export class Shown {
  constructor(classes, result, head = 0) {
    this.classes = classes
    this.result = result
    this.head = result.heads?.[head] ?? result
    this.measured = measures(classes, this.head.attention)
    this.measured.words = this.measured.entropy.map(Math.exp)
  }

  /** The position among the records that belongs to a step. */
  at(step) {
    const { steps } = this.result
    let r = 0
    while (r < steps.length - 1 && steps[r + 1] <= step) r++
    const next = steps[r + 1]
    return next === undefined ? r : r + Math.max(0, (step - steps[r]) / (next - steps[r]))
  }

  step(position) {
    const r = Math.floor(position), { steps } = this.result
    const next = Math.min(r + 1, steps.length - 1)
    return steps[r] + (position - r) * (steps[next] - steps[r])
  }

  /** Values of the entries at a position between two records. */
  between(values, position) {
    const { size } = this.classes
    const r = Math.floor(position), part = position - r
    const next = Math.min(r + 1, this.result.steps.length - 1)
    return (i) => (1 - part) * values[r * size + i] + part * values[next * size + i]
  }

  /** The highest share of each class. */
  _leaders(r) {
    const { K, size, offsets } = this.classes
    return Array.from({ length: K }, (_, k) =>
      Math.max(...this.head.attention.subarray(r * size + offsets[k], r * size + offsets[k + 1])))
  }

  series(name) {
    const { K } = this.classes, { steps } = this.result
    const values = Array.from(steps, (_, r) => {
      if (name === "loss") return this.result.loss?.[r] ?? NaN
      if (name === "words") return mean(this.measured.words, r, K)
      if (name === "leader") return mean(this._leaders(r), 0, K)
      return mean(this.measured.commonMass, r, K)
    })
    return { steps, values }
  }
}

export class Stage {
  constructor({ go, pick }) {
    this.sentence = new Sentence(byId("sentence"))
    this.root = byId("classes")
    this.cards = []
    const curves = byId("curves")
    this.curves = {
      common: new Curve(curves, { title: "Attention on shared words", unit: "%", go,
        explain: "The paper’s common tokens, mean over classes." }),
      words: new Curve(curves, { title: "How many words it looks at", unit: "", go,
        explain: "exp(entropy) of attention, mean over classes: 1 is a single word." }),
      loss: new Curve(curves, { title: "How wrong it is (loss)", unit: "", go, explain: "Cross entropy of the next word." }),
    }
    this.stages = [...byId("stages").children]
    byId("kind").addEventListener("change", () => pick(byId("kind").selectedIndex))
    this.predictions = {}
  }

  /** Lay out a run, beside run A where two are compared. */
  lay({ main, other, first, sentence, transitions }) {
    const { classes } = main
    Object.assign(this, { main, other, first, transitions })
    this.predictions = {}
    const shown = Array.from({ length: Math.min(2, classes.K) }, (_, i) => (first + i) % classes.K)
    const { told, names } = tell(classes, { ...main.result, ...main.head }, main.measured, shown)
    this.told = told
    this.stages.forEach((item, at) => say(item, names[at]))
    this._cards(shown)
    this._kinds(classes)
    const most = shown.map((k) => peaks(classes, k, main.head.attention))
    const theirs = other === null ? [] : shown.map((k) => peaks(other.classes, k, other.head.attention))
    const entries = most.map((of) => chosen(classes, of))
    const highest = Math.max(...[...most, ...theirs].flatMap((of) => [...of.values()]))
    // one axis for all cards, whose end stays while a slider is turned a little
    const axis = { end: ENDS.find((end) => end >= highest) ?? 1, left: widest(shown.map((k, at) => [classes, entries[at]])) }
    shown.forEach((k, at) => {
      const title = `“… ${classes.word(classes.query[k])}” → “${classes.word(classes.next[k])}”`
      say(this.cards[at].title, title)
      this.cards[at].bars.lay(classes, k, entries[at], axis, title)
    })
    this.shown = shown
    this.entries = entries
    this.sentence.lay(classes, first, sentence)
    this._layCurves()
  }

  /** What a rung says of the run that is laid out; null takes it away. */
  predict(rung, result) {
    this.predictions[rung] = result === null ? null : new Shown(this.main.classes, result)
    this._layCurves()
  }

  _cards(shown) {
    if (this.cards.length !== shown.length) {
      this.cards = shown.map(() => {
        const title = h("h3", {}), box = h("div", { class: "card class-card" }, title)
        return { title, box, bars: new Bars(box) }
      })
      this.root.replaceChildren(...this.cards.map((card) => card.box))
    }
  }

  /** The kinds to choose from: made anew only where they are others, so that the focus stays. */
  _kinds(classes) {
    const { K } = classes, select = byId("kind")
    const names = Array.from({ length: K }, (_, k) =>
      `${classes.word(classes.query[k])} → ${classes.word(classes.next[k])} (${k + 1} of ${K})`)
    const same = select.length === K && names.every((name, k) => select.options[k].textContent === name)
    if (!same) select.replaceChildren(...names.map((name) => h("option", {}, name)))
    select.selectedIndex = this.first
  }

  _layCurves() {
    const { main, other, predictions } = this
    // where all words are shared, or none is, their attention is a flat line
    const shared = main.series("common").values
    const anyShared = Math.max(...shared) - Math.min(...shared) > 0.02
    for (const [name, curve] of Object.entries(this.curves)) {
      const what = name === "common" && !anyShared ? "leader" : name
      curve.title = { common: "Attention on shared words", leader: "Attention of the leading words", words: curve.title, loss: curve.title }[what]
      say(curve.chart.previousSibling, curve.title)
      const series = { main: main.series(what), a: other?.series(what) }
      const ranged = [...series.main.values, ...(series.a?.values ?? [])].filter(Number.isFinite)
      for (const [rung, shown] of Object.entries(predictions)) {
        if (shown !== null && what !== "loss") series[rung] = shown.series(what)
      }
      curve.lay({
        steps: main.result.steps, series, clock: main.result.clock, transitions: this.transitions,
        range: [what === "loss" ? 0 : Math.min(...ranged), Math.max(...ranged)],
      })
    }
    if (this.position !== undefined) this.draw(this.position)
  }

  /** Show a moment: a position between records. */
  draw(position) {
    if (this.main === undefined) return
    const { main, other } = this
    this.position = position = Math.min(position, main.result.steps.length - 1)
    const step = main.step(position)
    const shares = main.between(main.head.attention, position)
    const logits = main.between(main.head.logits, position)
    const theirs = other?.between(other.head.attention, other.at(step))
    const { sgd, corrected, "polarisation-class": polarisation } = this.predictions
    const theory = sgd ?? polarisation ?? corrected ?? null
    const said = theory?.between(theory.head.attention, position) ?? null
    this.cards.forEach((card, at) => {
      const k = this.shown[at]
      const of = theirs ? sameToken(main.classes, other.classes, k, theirs) : null
      card.bars.draw(shares, of, said)
    })
    const { K } = main.classes, r = Math.round(position)
    const confidence = main.result.confidence ? main.result.confidence[r * K + this.first] : null
    this.sentence.draw(logits, confidence)
    for (const curve of Object.values(this.curves)) curve.draw(position)
    const { stage, words } = this.told[r]
    this.stages.forEach((item, at) => {
      const now = at === stage
      if ((item.getAttribute("aria-current") === "step") !== now) {
        if (now) item.setAttribute("aria-current", "step")
        else item.removeAttribute("aria-current")
      }
      item.classList.toggle("past", at < stage)
    })
    say(byId("story"), words)
    const last = main.result.steps.at(-1)
    const unit = main.result.clock === "time" ? "time" : "step"
    say(byId("step-shown"), `${unit} ${number(Math.round(step))} of ${number(last)}`)
    byId("moment").setAttribute("aria-valuetext", `${unit} ${Math.round(step)} of ${last}`)
  }
}

/** The value of another run at the same word of the same class; 0 where it has none. */
function sameToken(classes, others, k, values) {
  const found = new Map()
  for (let i = others.offsets[k]; i < others.offsets[k + 1]; i++) found.set(others.tokens[i], i)
  return (entry) => {
    const i = found.get(classes.tokens[entry])
    return i === undefined ? 0 : values(i)
  }
}
