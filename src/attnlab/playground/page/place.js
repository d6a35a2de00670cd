/** Where the worker is: beside this file, unless whoever assembled the page has made one script of it. */
export function makeWorker() {
  if (globalThis.attnlabWorker) return new Worker(globalThis.attnlabWorker)
  return new Worker(new URL("worker.js", import.meta.url), { type: "module" })
}
