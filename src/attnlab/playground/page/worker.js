/**
 * The worker: trains and predicts off the page's own thread.
 *
 * {id, document, rungs?, steps?} asks for a run, and then for predictions at its moments. Every
 * answer carries the id. The next request, or {id, cancel: true}, ends the one under way: work is
 * done in pieces of a few milliseconds, between which messages are heard.
 */
import { InputError } from "./simulator/errors.js"
import { Run } from "./simulator/run.js"
import { Prediction } from "./theory/prediction.js"

const PIECE = 8 // milliseconds
let current = -1
const channel = new MessageChannel()
let proceed = null
channel.port1.onmessage = () => proceed()
const pause = () => new Promise((resolve) => {
  proceed = resolve
  channel.port2.postMessage(0) // sooner than a timeout, later than a message that waits
})

async function finish(work, id) {
  while (!work.advance(PIECE)) {
    await pause()
    if (current !== id) return false
  }
  return true
}

async function answer({ id, document, rungs = [], steps = null }) {
  try {
    let moments = steps
    if (moments === null) {
      const run = new Run(document)
      if (!(await finish(run, id))) return
      moments = run.result.steps
      postMessage({ id, kind: "run", result: run.result })
    }
    for (const rung of rungs) {
      const prediction = new Prediction(document, rung, moments)
      if (!(await finish(prediction, id))) return
      postMessage({ id, kind: "prediction", rung, result: prediction.result })
    }
    postMessage({ id, kind: "done" })
  } catch (error) {
    if (!(error instanceof InputError)) console.error(error) // a fault of ours, with its place
    postMessage({ id, kind: "error", said: error.message })
  }
}

addEventListener("message", ({ data }) => {
  current = data.cancel ? -1 : data.id
  if (!data.cancel) answer(data)
})
