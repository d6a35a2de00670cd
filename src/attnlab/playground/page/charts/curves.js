/** Curves of a run against the step on a logarithmic axis, with the theory and its times. */
import { h, number, percent, set, svg } from "../dom.js"

const WIDTH = 300, HEIGHT = 176, LEFT = 42, RIGHT = 10, TOP = 22, BOTTOM = 36

/** A round number of ticks that covers [low, high]. */
function ticks(low, high) {
  const span = high - low || 1, unit = 10 ** Math.floor(Math.log10(span / 2))
  const step = [1, 2, 5, 10].map((n) => n * unit).find((s) => span / s <= 4)
  const found = []
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * span; v += step) found.push(v)
  return found
}

export class Curve {
  /** go(record): called when one points at a moment. */
  constructor(root, { title, unit, explain, go }) {
    this.unit = unit
    this.title = title
    this.clip = `clip-${unit}-${Math.random().toString(36).slice(2)}`
    this.grid = svg("g", { class: "grid" })
    this.times = svg("g", { class: "times" })
    this.lines = { a: svg("path", { class: "line a" }), main: svg("path", { class: "line main" }) }
    this.theory = {
      corrected: svg("path", { class: "line theory corrected" }), sgd: svg("path", { class: "line theory sgd" }),
      "polarisation-class": svg("path", { class: "line theory sgd" }),
    }
    this.cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM })
    this.dot = svg("circle", { class: "dot", r: 4 })
    const drawn = svg("g", { "clip-path": `url(#${this.clip})` }, Object.values(this.theory), this.lines.a, this.lines.main)
    this.chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curve", role: "img" },
      svg("clipPath", { id: this.clip }, svg("rect", { x: LEFT, y: TOP - 3, width: WIDTH - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM + 6 })),
      this.grid, this.times, drawn, this.cursor, this.dot)
    root.append(h("figure", { class: "curve-figure" }, h("figcaption", { title: explain }, title), this.chart))
    const point = (event) => {
      const box = this.chart.getBoundingClientRect()
      go(this._nearest(((event.clientX - box.left) / box.width) * WIDTH))
    }
    this.chart.addEventListener("pointerdown", (event) => {
      this.chart.setPointerCapture(event.pointerId)
      point(event)
    })
    this.chart.addEventListener("pointermove", (event) => event.buttons && point(event))
  }

  /** steps of the run; times {t0Prime, t0}; clock "step" or "time". */
  lay({ steps, series, range, transitions, clock }) {
    this.steps = steps
    this.last = Math.log1p(steps[steps.length - 1])
    const [low, high] = range
    const room = (high - low || 1) * 0.06
    this.range = [low - room, high + room]
    const grid = [], bottom = HEIGHT - BOTTOM
    for (const value of ticks(low, high)) {
      const y = this._y(value)
      grid.push(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }),
        svg("text", { x: LEFT - 6, y: y + 4, class: "tick y" }, this.unit === "%" ? percent(Number(value.toPrecision(6))) : number(Number(value.toPrecision(6)))))
    }
    const end = steps[steps.length - 1]
    const every = end > 1e4 ? 100 : 10
    for (let step = 0; step <= end; step = step === 0 ? (end > 1e4 ? 10 : 1) : step * every) {
      const x = this._x(step), atEnd = x > WIDTH - RIGHT - 14
      grid.push(svg("text", { x: atEnd ? WIDTH - 2 : x, y: HEIGHT - 20, class: atEnd ? "tick x last" : "tick x" }, number(step)))
    }
    grid.push(svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 4, class: "axis" }, clock === "time" ? "time" : "training step"))
    this.grid.replaceChildren(...grid)
    const times = []
    transitions.forEach(([value, name], at) => {
      if (!(value <= end)) return
      const x = this._x(value)
      times.push(svg("line", { x1: x, x2: x, y1: TOP - 8, y2: bottom }), svg("text", at ? { x: x + 2, y: TOP - 9 } : { x: x - 2, y: TOP - 9, class: "before" }, name))
    })
    this.times.replaceChildren(...times)
    for (const [name, line] of Object.entries({ ...this.lines, ...this.theory })) {
      const values = series[name]
      set(line, { d: values ? this._path(values.steps, values.values) : "" })
    }
    this.main = series.main
    set(this.chart, {
      "aria-label": `${this.title}: from ${this._worded(series.main.values[0])} to ${this._worded(series.main.values.at(-1))}`,
    })
  }

  _worded(value) {
    return this.unit === "%" ? `${Math.round(100 * value)} percent` : number(value)
  }

  _x(step) {
    return LEFT + ((WIDTH - LEFT - RIGHT) * Math.log1p(step)) / this.last
  }

  _y(value) {
    const [low, high] = this.range
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))
  }

  _path(steps, values) {
    let path = ""
    for (let r = 0; r < steps.length; r++) {
      if (!Number.isFinite(values[r])) continue
      path += `${path ? "L" : "M"}${this._x(steps[r]).toFixed(1)} ${this._y(values[r]).toFixed(1)}`
    }
    return path
  }

  _nearest(x) {
    const far = Array.from(this.steps, (step) => Math.abs(this._x(step) - x))
    return far.indexOf(Math.min(...far))
  }

  /** The moment shown, between records. */
  draw(position) {
    const r = Math.floor(position), part = position - r, next = Math.min(r + 1, this.steps.length - 1)
    const step = this.steps[r] + part * (this.steps[next] - this.steps[r])
    const { values } = this.main
    const x = this._x(step).toFixed(1)
    set(this.cursor, { x1: x, x2: x })
    set(this.dot, { cx: x, cy: this._y(values[r] + part * (values[next] - values[r])).toFixed(1) })
  }
}
