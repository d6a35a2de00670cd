/** The local API of `attnlab play`: what the page does not compute itself. */
import { InputError } from "./simulator/errors.js"

function gone() {
  throw new InputError("attnlab does not answer any more: start it again with attnlab play, or undo")
}

/** Ask over HTTP, as the server of `attnlab play` answers. */
const overHttp = (address) => (verb, document, signal) => fetch(`${address}/${verb}`, {
  method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(document),
}).catch((error) => (signal?.aborted ? Promise.reject(error) : gone()))

/** Ask the notebook whose frame this page is in. */
function ofParent() {
  const waiting = new Map()
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || data?.attnlab !== "answer") return
    waiting.get(data.id)?.(new Response(data.content, { status: data.status }))
    waiting.delete(data.id)
  })
  return (verb, document, signal) => new Promise((resolve, reject) => {
    const id = `${Math.random()}` // a widget may be shown twice, and its kernel hears both
    const ask = (question) => parent.postMessage({ attnlab: "ask", question: { id, ...question } }, "*")
    waiting.set(id, resolve)
    ask({ verb, document })
    signal?.addEventListener("abort", () => {
      if (!waiting.delete(id)) return
      ask({ cancel: true })
      reject(signal.reason)
    })
  })
}

export class Api {
  /** address: of a server, "parent" for the notebook around the page, or nothing. */
  constructor(address) {
    this.ask = address === "parent" ? ofParent() : address ? overHttp(address) : null
  }

  get isThere() {
    return this.ask !== null
  }

  /** The result of a document, in the shape of the worker's; `signal` ends the computation. */
  async simulate(document, signal) {
    const answer = await this._post("simulate", document, signal)
    const found = await answer.json()
    const heads = found.heads.map(({ attention, logits }) => ({
      attention: Float64Array.from(attention), logits: Float64Array.from(logits),
    }))
    return {
      clock: found.clock, steps: Float64Array.from(found.steps), loss: Float64Array.from(found.loss),
      confidence: null, heads, ...heads[0],
    }
  }

  async netcdf(document) {
    return (await this._post("netcdf", document)).blob()
  }

  async _post(verb, document, signal) {
    const answer = await this.ask(verb, document, signal)
    if (!answer.ok) {
      const said = await answer.json().catch(() => ({ error: `attnlab answered ${answer.status}` }))
      throw new InputError(said.error)
    }
    return answer
  }
}
