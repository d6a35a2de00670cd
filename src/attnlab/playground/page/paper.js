/** For readers of the paper: its words and formulas, each with one sentence. Typeset as MathML. */
import { byId, h } from "./dom.js"

const MATH = "http://www.w3.org/1998/Math/MathML"
const m = (tag, ...children) => {
  const element = document.createElementNS(MATH, tag)
  element.append(...children)
  return element
}
const i = (name) => m("mi", name)
const o = (sign) => {
  const element = m("mo", sign)
  if ("()".includes(sign)) element.setAttribute("stretchy", "false")
  return element
}
const prime = (name) => m("msup", i(name), o("′"))
const n = (value) => m("mn", value)
const row = (...parts) => m("mrow", ...parts)
const sub = (base, index) => m("msub", base, index)
const frac = (top, bottom) => m("mfrac", row(...top), row(...bottom))
const given = (name) => row(sub(i(name), row(i("l"), o("|"), i("n"))))
const dot = (base) => m("mover", base, o("˙"))

const FOLDS = [
  ["Sequence classes and P(l|n)", "A kind of sentence is a class: its last word is the query m, the word to guess is n, and the words before are drawn from P(l|m,n); a token of several classes is common (“shared”), one of a single class is distinct (“telling”). Section 3.2.",
    () => row(i("P"), o("("), i("l"), o("|"), i("m"), o(","), i("n"), o(")"))],
  ["Attention (Eq. 5)", "The bars: for long sentences, attention of class n to token l is its frequency times the exponential of its logit, normalised.",
    () => row(given("c"), o("="), frac([i("P"), o("("), i("l"), o("|"), i("n"), o(")"), m("msup", i("e"), sub(i("z"), row(i("m"), i("l"))))],
      [m("munder", o("∑"), m("mrow", prime("l"))), i("P"), o("("), prime("l"), o("|"), i("n"), o(")"), m("msup", i("e"), sub(i("z"), row(i("m"), prime("l"))))]))],
  ["The gradient (Lemma 1)", "What moves the decoder Y and the attention logits z at every step; the page trains with exactly this, in double precision.",
    () => row(sub(dot(i("z")), i("m")), o("="), sub(i("η"), i("Z")), m("munder", o("∑"), i("n")), i("P"), o("("), i("n"), o(")"), o(" "),
      m("mtext", "diag"), o("("), sub(i("f"), i("n")), o(")"), o("("), i("I"), o("−"), sub(i("f"), i("n")), m("msubsup", i("f"), i("n"), o("⊤")), o(")"),
      i("Y"), o("("), sub(i("x"), i("n")), o("−"), sub(i("α"), i("n")), o(")"))],
  ["The reduced dynamics (Eq. 10)", "Theorem 1 replaces the decoder by a closed form, and attention then follows this law; the dotted green curve is its corrected form (docs/errata.md), the dashed one keeps the decoder that SGD trains.",
    () => row(sub(dot(i("z")), i("m")), o("="), sub(i("η"), i("Z")), i("γ"), o("("), i("t"), o(")"), m("munder", o("∑"), i("n")), m("mtext", "diag"), o("("), sub(i("f"), i("n")), o(")"),
      m("munder", o("∑"), row(prime("n"), o("≠"), i("n"))), sub(i("β"), row(i("n"), prime("n"))), o("("), sub(i("f"), i("n")), m("msubsup", i("f"), i("n"), o("⊤")), o("−"), i("I"), o(")"), sub(i("f"), prime("n")))],
  ["Distinct gain, common lose (Theorem 2)", "Under Eq. 10 the logits of distinct tokens rise and that of a single common token falls: the shared words fade.",
    () => row(sub(dot(i("z")), row(i("m"), i("l"))), o(">"), n("0"), m("mtext", "\u00a0for\u00a0"), i("l"), o("∈"), sub(i("G"), i("DT")), o("("), i("n"), o(")"))],
  ["The frequent get ahead (Theorem 3)", "Among the distinct tokens of a class the relative gain grows in proportion to the initial one: the most frequent wins.",
    () => row(sub(i("r"), row(i("l"), o("/"), prime("l"), o("|"), i("n"))), o("("), i("t"), o(")"), o("="), sub(i("r"), row(i("l"), o("/"), prime("l"), o("|"), i("n"))), o("("), n("0"), o(")"), o(" "), sub(i("χ"), i("l")), o("("), i("t"), o(")"))],
  ["Scan and snap: t₀′ and t₀ (Lemma 9, Theorem 4)", "The vertical lines: up to t₀′ attention scans, from t₀ on it moves only with the logarithm of time; in steps with momentum they are converted (theory.momentum_steps).",
    () => row(sub(i("t"), n("0")), o("="), frac([n("2"), o("("), n("1"), o("+"), sub(i("ω"), n("1")), o(")"), i("K"), i("ln"), o("⁡"), i("M")], [sub(i("η"), i("Y"))]))],
]

export function foldouts() {
  byId("foldouts").replaceChildren(...FOLDS.map(([title, words, formula]) => {
    const math = m("math", formula())
    math.setAttribute("display", "block")
    return h("details", {}, h("summary", {}, title), h("div", { class: "formula", tabindex: 0, role: "region", "aria-label": title }, math), h("p", {}, words))
  }))
}
