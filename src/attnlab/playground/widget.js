/**
 * The page in a notebook: its modules arrive as text, become addresses of this document, and run in a
 * frame of their own. What is turned there comes back as the model's `state`.
 */
const IMPORT = /(\b(?:from|import)\s*\(?\s*)"(\.[^"]+)"/g

function assembled(files) {
  const made = new Map()
  const at = (path) => {
    if (!made.has(path)) {
      const base = `http://page${path}`
      const text = files[path].replace(IMPORT, (_, before, name) => `${before}"${at(new URL(name, base).pathname)}"`)
      made.set(path, URL.createObjectURL(new Blob([text], { type: "text/javascript" })))
    }
    return made.get(path)
  }
  return { main: at("/main.js"), worker: at("/worker.js"), all: made }
}

function render({ model, el }) {
  const files = model.get("files"), made = assembled(files)
  const frame = document.createElement("iframe")
  frame.title = "attnlab playground"
  frame.style.cssText = "width:100%;height:820px;border:0"
  const begin = `globalThis.attnlabWorker = ${JSON.stringify(made.worker)};
    globalThis.attnlabStart = ${JSON.stringify(model.get("state")).replaceAll("<", "\\u003c")};
    globalThis.attnlabTell = (state) => parent.postMessage({ attnlab: "state", state }, "*");`
  frame.srcdoc = files["/index.html"]
    .replaceAll(/<link rel="modulepreload"[^>]*>/g, "") // which no address would answer here
    .replace('<link rel="stylesheet" href="style.css">', () => `<style>${files["/style.css"]}</style><script>${begin}</script>`)
    .replace('src="main.js"', () => `src="${made.main}"`)
  const hear = ({ source, data }) => {
    if (source !== frame.contentWindow || data?.attnlab !== "state") return
    model.set("state", data.state)
    model.save_changes()
  }
  const follow = () => {
    const page = frame.contentWindow?.attnlabPage, state = model.get("state")
    if (page && JSON.stringify(page.state) !== JSON.stringify(state)) page.put(state)
  }
  addEventListener("message", hear)
  model.on("change:state", follow)
  el.append(frame)
  return () => {
    removeEventListener("message", hear)
    model.off("change:state", follow)
    for (const address of made.all.values()) URL.revokeObjectURL(address)
  }
}

export default { render }
