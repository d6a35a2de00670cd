/** One sampled sentence, its words shaded by the attention that each gets. */
import { h, percent } from "../dom.js"
import { Random } from "../simulator/random.js"

const WORDS = 9

export class Sentence {
  constructor(root) {
    this.root = root
  }

  /** Draw a sentence of class k, the same for the same number. */
  lay(classes, k, number) {
    const random = new Random(226 + 31 * number + k)
    const begin = classes.offsets[k], end = classes.offsets[k + 1]
    this.classes = classes
    this.k = k
    this.entries = Array.from({ length: WORDS }, () => {
      let u = random.uniform(), i = begin
      while (i < end - 1 && u > classes.values[i]) u -= classes.values[i++]
      return i
    })
    this.words = this.entries.map((i) => {
      const token = classes.tokens[i]
      return h("span", { class: `token ${classes.isCommon(token) ? "shared" : "telling"}` }, classes.word(token))
    })
    this.next = h("strong", { class: "next" }, classes.word(classes.next[k]))
    this.sure = h("span", { class: "sure" })
    this.root.replaceChildren(
      ...this.words.flatMap((word) => [word, " "]),
      h("span", { class: "token query" }, classes.word(classes.query[k])), " ",
      h("span", { class: "arrow", "aria-hidden": "true" }, "→"), " ", this.next, " ", this.sure,
    )
  }

  /** Within the sentence a word gets exp(z); `confidence` of the next word, or null. */
  draw(logit, confidence) {
    const highest = Math.max(...this.entries.map(logit))
    const weights = this.entries.map((i) => Math.exp(logit(i) - highest))
    const total = weights.reduce((sum, w) => sum + w, 0)
    this.words.forEach((word, at) => {
      const share = weights[at] / total
      word.style.setProperty("--share", Math.min(1, share * 1.6 + 0.02).toFixed(3))
      word.title = `${percent(share)} of attention`
    })
    this.sure.textContent = confidence === null ? "" : `${percent(confidence)} sure`
  }
}
