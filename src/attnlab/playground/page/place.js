/** Where the worker and the libraries are: beside this file. In a page of one file: single_place.js. */
const LIBRARIES = { "js-yaml": "js-yaml/js-yaml.mjs", gifenc: "gifenc/gifenc.esm.js" }

export const makeWorker = () => new Worker(new URL("worker.js", import.meta.url), { type: "module" })
export const library = (name) => import(`./vendor/${LIBRARIES[name]}`)

/** A page of many files cannot be saved as one. */
export const pageWith = null
