/**
 * Runner: results of documents, from the worker or the API, the newest wish first.
 *
 * While a run is under way only the newest wish waits; a run that takes long is dropped for it, so
 * that dragging shows every run that is quick, and never one that nobody wants any more.
 */
import { makeWorker } from "./place.js"
import { outside } from "./simulator/run.js"

const PATIENCE = 250 // ms that a run may have before a newer wish ends it
const KEPT = 24

export class Dropped extends Error {}

export class Runner {
  constructor(api) {
    this.api = api
    this.kept = new Map()
    this.ids = 0
    this.lanes = { run: lane(), theory: lane() }
  }

  async run(document) {
    const key = JSON.stringify(document)
    if (this.kept.has(key)) {
      this._leave()
      return this.kept.get(key)
    }
    const found = outside(document) ? await this._ask(document) : await this._compute(document)
    this.kept.set(key, found)
    if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value)
    return found
  }

  /** What rungs say at the moments of a run: heard one by one; the last wish counts. */
  predict(document, rungs, steps, heard) {
    const { theory } = this.lanes
    const id = ++this.ids
    theory.worker ??= this._worker(theory)
    theory.current = { id, heard }
    theory.worker.postMessage({ id, document, rungs, steps })
  }

  /** What was asked of the theory is not wanted any more. */
  drop() {
    const { theory } = this.lanes
    if (theory.current === null) return
    theory.worker.postMessage({ id: theory.current.id, cancel: true })
    theory.current = null
  }

  /** What is under way is not wanted any more, here or there. */
  _leave() {
    this.asking?.abort()
    const { run } = this.lanes
    for (const wish of [run.waiting, run.current]) wish?.reject(new Dropped())
    if (run.current !== null) run.worker.postMessage({ id: run.current.id, cancel: true })
    run.waiting = run.current = null
  }

  async _ask(document) {
    this._leave()
    this.asking = new AbortController()
    const { signal } = this.asking
    try {
      return await this.api.simulate(document, signal)
    } catch (error) {
      throw signal.aborted ? new Dropped() : error
    }
  }

  _compute(document) {
    this.asking?.abort()
    return new Promise((resolve, reject) => {
      const { run } = this.lanes
      const wish = { document, resolve, reject, begun: 0 }
      run.waiting?.reject(new Dropped())
      run.waiting = wish
      if (run.current === null || performance.now() - run.current.begun > PATIENCE) this._begin(run)
      else setTimeout(() => run.waiting === wish && this._begin(run), PATIENCE)
    })
  }

  _begin(run) {
    run.current?.reject(new Dropped())
    run.worker ??= this._worker(run)
    run.current = { ...run.waiting, id: ++this.ids, begun: performance.now() }
    run.waiting = null
    run.current.heard = (said) => {
      if (said.kind === "run") run.current.resolve(said.result)
      else if (said.kind === "error") run.current.reject(new Error(said.said))
      if (said.kind === "run") return
      run.current = null
      if (run.waiting !== null) this._begin(run)
    }
    run.worker.postMessage({ id: run.current.id, document: run.current.document })
  }

  _worker(lane) {
    const worker = makeWorker()
    worker.onmessage = ({ data }) => {
      if (lane.current !== null && data.id === lane.current.id) lane.current.heard(data)
    }
    worker.onerror = (event) => {
      const why = event.message || "its file could not be loaded"
      lane.current?.heard({ kind: "error", said: `The page’s worker failed: ${why}. Reload the page.` })
    }
    return worker
  }
}

const lane = () => ({ worker: null, current: null, waiting: null })
