/** Where the worker is: beside this file, unless whoever assembled the page says otherwise. */
export function makeWorker() {
  const address = globalThis.attnlabWorker ?? new URL("worker.js", import.meta.url)
  return new Worker(address, { type: "module" })
}
