/** In-context regression: one drop or a staircase, as small population flows in the page. */
import { Curve } from "./charts/curves.js"
import { byId, h, number, say } from "./dom.js"
import { InContextRegression } from "./simulator/regression.js"

const TASK = new InContextRegression([0.4, 0.3, 0.2, 0.1], 31)
const LAST = 2e4, RECORDS = 400
const TIMES = [0, ...Array.from({ length: RECORDS }, (_, i) => LAST ** (i / (RECORDS - 1)))]
const KINDS = [
  { separate: false, title: "Key and query as one matrix", explain: "The loss falls once, from a plateau.", heads: 8 },
  { separate: true, title: "Key and query apart", explain: "It falls in steps: one principal component after another.", heads: 5 },
]

/** The two curves, trained when the section is opened first, and anew from another start. */
export function regression() {
  const root = byId("regression-curves"), again = byId("regression-again")
  let seed = 0, curves = null
  const train = () => {
    curves ??= KINDS.map(({ title, explain }) => new Curve(root, { title, unit: "loss", explain, go: () => {} }))
    const ends = KINDS.map(({ separate, heads }, i) => {
      const start = TASK.start({ separate, heads, std: 0.01, seed })
      const values = TASK.train({ separate, start, times: TIMES })
      curves[i].lay({
        steps: TIMES, clock: "time", range: [0, TASK.trace], transitions: [],
        series: { main: { steps: TIMES, values } },
      })
      curves[i].draw(TIMES.length - 1)
      return values.at(-1)
    })
    say(byId("regression-note"), `The losses end at ${ends.map(number).join(" and ")}. Key and query apart can rest at ` +
      `${TASK.levels.map(number).join(", ")}, with none to all of the components learned. Start ${seed + 1}.`)
  }
  again.addEventListener("click", () => { seed += 1; train() })
  byId("regression").firstElementChild.addEventListener("toggle", () => { if (curves === null) train() }, { once: true })
}
