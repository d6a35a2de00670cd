/**
 * The page without a server: its modules are texts, of which the page makes addresses.
 *
 * A worker may not load those where the page was opened from a file. So what it needs becomes one
 * script: each module a function that gives its exports, after those that it imports.
 */
const FROM = /(\b(?:from|import)\s*\(?\s*)"(\.[^"]+)"/g
const IMPORT = /^import (\{[^}]*\}) from "(\.[^"]+)"$/gm
const EXPORT = /^export (?=(?:async )?(?:const|class|function\*?) (\w+))/gm

const beside = (path, name) => new URL(name, `http://page${path}`).pathname

function addressOf(text) {
  return URL.createObjectURL(new Blob([text], { type: "text/javascript" }))
}

function linked(path, files, made) {
  if (!made.has(path)) {
    const named = (_, before, name) => `${before}"${linked(beside(path, name), files, made)}"`
    made.set(path, addressOf(files[path].replace(FROM, named)))
  }
  return made.get(path)
}

function bundled(path, files) {
  const names = new Map(), scripts = []
  const add = (one) => {
    if (names.has(one)) return names.get(one)
    names.set(one, `module${names.size}`)
    const exported = []
    const text = files[one]
      .replace(IMPORT, (_, what, name) => `const ${what.replaceAll(" as ", ": ")} = ${add(beside(one, name))}`)
      .replace(EXPORT, (_, name) => (exported.push(name), ""))
    scripts.push(`const ${names.get(one)} = (() => {\n${text}\nreturn { ${exported.join(", ")} }\n})()`)
    return names.get(one)
  }
  add(path)
  return scripts.join("\n")
}

function assembled(files) {
  const all = new Map()
  const main = linked("/main.js", files, all), worker = addressOf(bundled("/worker.js", files))
  return { main, worker, all: all.set("worker", worker) }
}
