/** The local API of `attnlab play`: what the page does not compute itself. */
import { InputError } from "./simulator/errors.js"

function gone() {
  throw new InputError("attnlab does not answer any more: start it again with attnlab play, or undo")
}

const marked = () => document.querySelector("meta[name='attnlab-api']")?.content

/** How to ask: over HTTP where the page was served with an API, by its frame's owner in a notebook. */
export class Api {
  constructor() {
    this.address = marked() ?? null
    this.ask = globalThis.attnlabAsk ?? null // of a notebook's kernel
  }

  get isThere() {
    return this.address !== null || this.ask !== null
  }

  /** The state that the page was asked to open on, or null. */
  async start() {
    if (this.address === null) return null
    const answer = await fetch(`${this.address}/start`).catch(gone)
    return answer.ok ? answer.json() : null
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
    const answer = this.ask !== null ? await this.ask(verb, document, signal)
      : await fetch(`${this.address}/${verb}`, {
        method: "POST", signal, headers: { "Content-Type": "application/json" },
        body: JSON.stringify(document),
      }).catch((error) => (signal?.aborted ? Promise.reject(error) : gone()))
    if (!answer.ok) {
      const said = await answer.json().catch(() => ({ error: `attnlab answered ${answer.status}` }))
      throw new InputError(said.error)
    }
    return answer
  }
}
