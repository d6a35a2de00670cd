/** Takes the place of place.js in a page of one file: the worker and the libraries are texts. */
const texts = TEXTS
const address = (text) => URL.createObjectURL(new Blob([text], { type: "text/javascript" }))
const page = document.documentElement.outerHTML // before anything is drawn

export const makeWorker = () => new Worker(address(texts["worker.js"]))
export const library = (name) => import(address(texts[name]))

/** The page as it was loaded, beginning with a state. */
export function pageWith(start) {
  const begin = JSON.stringify({ start }).replaceAll("<", "\\u003c")
  return `<!doctype html>\n${page.replace(/(id="begin">)[^<]*/, (_, tag) => tag + begin)}`
}
