/**
 * Bars of attention: a row for each word of a class, shared words first, each by its frequency.
 *
 * The dash is where attention starts, P(l|n); the diamond is what the theory says; the hollow bar is
 * run A where two are compared. What is drawn is kept and moved, never made anew for a frame.
 */
import { h, percent, set, svg } from "../dom.js"

export const MOST_SHOWN = 24
const ROW = 22, RIGHT = 46, WIDTH = 400, TOP = 4
const WIDEST = 116 // a name; what is longer is cut

const pen = document.createElement("canvas").getContext("2d")

/** A name and its width, in the largest letters of the style sheet; cut where it is too wide. */
function fitted(name) {
  const width = pen.measureText(name).width
  if (width <= WIDEST) return { text: name, width }
  const signs = [...name]
  do signs.pop()
  while (pen.measureText(`${signs.join("")}…`).width > WIDEST)
  return { text: `${signs.join("")}…`, width: WIDEST }
}

const shownName = (classes, i) => fitted(classes.word(classes.tokens[i]).slice(0, 100))

/** Where bars begin, so that the longest name of all cards fits. */
export function widest(cards) {
  pen.font = `16px ${getComputedStyle(document.body).fontFamily}`
  return 14 + Math.max(20, ...cards.flatMap(([classes, entries]) => entries.map((i) => shownName(classes, i).width)))
}

/** The entries of a class, each with the most that it is ever attended; none where it is not there. */
export function peaks({ offsets, size }, k, attention) {
  const most = new Map()
  for (let i = offsets[k]; i < offsets[k + 1]; i++) {
    let highest = 0
    for (let at = i; at < attention.length; at += size) highest = Math.max(highest, attention[at])
    most.set(i, highest)
  }
  return most
}

/** Which entries are shown, in order: all, or those that are ever attended most. */
export function chosen(classes, most) {
  const shared = (i) => classes.isCommon(classes.tokens[i])
  const kept = [...most].sort((a, b) => b[1] - a[1]).slice(0, MOST_SHOWN).map(([i]) => i)
  return kept.sort((a, b) => shared(b) - shared(a) || classes.values[b] - classes.values[a] || a - b)
}

export class Bars {
  constructor(root) {
    this.note = h("p", { class: "shown-note" })
    this.chart = svg("svg", { class: "bars", role: "img", preserveAspectRatio: "xMinYMin meet" })
    root.append(this.chart, this.note)
    this.axis = svg("g", { class: "bar-axis", "aria-hidden": "true" })
    this.rows = []
  }

  /** Lay out the words of class k on an axis that begins at `left` and has `end` at its end. */
  lay(classes, k, entries, { left, end }, title) {
    Object.assign(this, { entries, left, end })
    const names = entries.map((i) => shownName(classes, i))
    const height = TOP + entries.length * ROW + 20
    const parts = [0, 0.5, 1].map((part) => [this._x(part * end), percent(part * end)])
    this.axis.replaceChildren(...parts.flatMap(([x, words]) => [
      svg("line", { x1: x, x2: x, y1: height - 20, y2: height - 15 }), svg("text", { x, y: height - 3 }, words)]))
    set(this.chart, { viewBox: `0 0 ${WIDTH} ${height}`, "data-class": k })
    this.total = classes.offsets[k + 1] - classes.offsets[k]
    this.title = title
    this.kind = classes.K > 2 ? `kind ${k + 1} of ${classes.K}, ` : ""
    const same = this.rows.length === entries.length
    if (!same) {
      this.rows = entries.map((_, r) => this._row(r))
      this.chart.replaceChildren(...this.rows.map((row) => row.group), this.axis)
    }
    this.rows.forEach((row, r) => {
      const token = classes.tokens[entries[r]], name = classes.word(token)
      row.label.textContent = names[r].text
      const role = classes.isCommon(token) ? "shared" : "telling"
      row.hover.textContent = `“${name}”, a ${role} word: ${percent(classes.values[entries[r]])} of the words of this kind of sentence`
      set(row.group, { "data-token": token })
      set(row.label, { x: this.left - 7 })
      set(row.track, { x: this.left, width: WIDTH - this.left - RIGHT })
      set(row.bar, { class: role, x: this.left })
      set(row.other, { x: this.left })
      set(row.start, { x1: this._x(classes.values[entries[r]]), x2: this._x(classes.values[entries[r]]) })
    })
  }

  _x(share) {
    return this.left + ((WIDTH - this.left - RIGHT) * Math.min(share, this.end)) / this.end
  }

  _row(r) {
    const y = TOP + r * ROW
    const hover = svg("title")
    const row = {
      label: svg("text", { y: y + 15, class: "word" }), hover,
      track: svg("rect", { y: y + 3, height: ROW - 6, class: "track", rx: 2 }),
      bar: svg("rect", { y: y + 3, height: ROW - 6, width: 0, rx: 2 }),
      other: svg("rect", { y: y + 3, height: ROW - 6, width: 0, class: "other", rx: 2 }),
      start: svg("line", { y1: y + 1, y2: y + ROW - 1, class: "start" }),
      theory: svg("path", { class: "theory-mark", visibility: "hidden" }),
      value: svg("text", { x: WIDTH - 2, y: y + 15, class: "value" }),
      y: y + ROW / 2,
    }
    row.group = svg("g", {}, hover, row.track, row.bar, row.other, row.start, row.theory, row.label, row.value)
    return row
  }

  /** Heights of all entries of a record; `other` of run A, `theory` of the prediction, or null. */
  draw(shares, other, theory) {
    let sum = 0
    this.rows.forEach((row, r) => {
      const share = shares(this.entries[r])
      sum += share
      set(row.bar, { width: (this._x(share) - this.left).toFixed(1) })
      const theirs = other === null ? 0 : this._x(other(this.entries[r])) - this.left
      set(row.other, { width: theirs.toFixed(1) })
      row.value.textContent = percent(share)
      if (theory === null) set(row.theory, { visibility: "hidden" })
      else {
        const x = this._x(theory(this.entries[r])).toFixed(1)
        set(row.theory, { visibility: "visible", d: `M${x} ${row.y - 5}l4 5l-4 5l-4 -5z` })
      }
    })
    const shown = this.rows.length
    this.note.textContent = shown === this.total
      ? `${this.kind}all ${shown} words shown`
      : `${this.kind}${shown} of ${this.total} words shown: they have ${percent(sum)} of attention`
    set(this.chart, { "aria-label": `${this.title}: ${this._summary(shares)}` })
  }

  _summary(shares) {
    const order = this.entries.map((i, r) => [shares(i), this.rows[r].label.textContent])
    return order.sort((a, b) => b[0] - a[0]).slice(0, 3).map(([share, name]) => `${name} ${percent(share)}`).join(", ")
  }
}
