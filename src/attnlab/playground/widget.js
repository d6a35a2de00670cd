/**
 * The page in a notebook: put together by assembled.js, which stands before this, in a frame of its
 * own. What is turned there comes back as the model's `state`.
 */
/** Runs in the frame: what the page does not compute itself is asked of the kernel. */
function asking() {
  const waiting = new Map()
  globalThis.attnlabAsk = (verb, document, signal) => new Promise((resolve, reject) => {
    const id = `${Math.random()}` // a widget may be shown twice, and its kernel hears both
    waiting.set(id, resolve)
    parent.postMessage({ attnlab: "ask", question: { id, verb, document } }, "*")
    signal?.addEventListener("abort", () => {
      if (!waiting.delete(id)) return
      parent.postMessage({ attnlab: "ask", question: { id, cancel: true } }, "*")
      reject(signal.reason)
    })
  })
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || data?.attnlab !== "answer") return
    waiting.get(data.id)?.(new Response(data.content, { status: data.status }))
    waiting.delete(data.id)
  })
}

function render({ model, el }) {
  const files = model.get("files"), made = assembled(files)
  const frame = document.createElement("iframe")
  const begun = model.get("state").a ? model.get("state") : null // else the page's first example
  frame.title = "attnlab playground"
  frame.style.cssText = "width:100%;height:820px;border:0"
  const begin = `globalThis.attnlabWorker = ${JSON.stringify(made.worker)};
    globalThis.attnlabStart = ${JSON.stringify(begun).replaceAll("<", "\\u003c")};
    globalThis.attnlabTell = (state) => parent.postMessage({ attnlab: "state", state }, "*");
    (${asking})();`
  frame.srcdoc = files["/index.html"]
    .replaceAll(/<link rel="modulepreload"[^>]*>/g, "") // which no address would answer here
    .replace('<link rel="stylesheet" href="style.css">', () => `<style>${files["/style.css"]}</style><script>${begin}</script>`)
    .replace('src="main.js"', () => `src="${made.main}"`)
  const asked = new Set() // of the kernel, and not answered yet
  let early = false // whether Python set a state before the page was there
  const hear = ({ source, data }) => {
    if (source !== frame.contentWindow) return
    if (data?.attnlab === "ask") {
      asked[data.question.cancel ? "delete" : "add"](data.question.id)
      model.send(data.question)
    }
    if (data?.attnlab !== "state") return
    if (early) {
      early = false
      return follow()
    }
    model.set("state", data.state)
    model.save_changes()
  }
  const answer = ({ id, status }, [content]) => {
    if (!asked.delete(id)) return
    frame.contentWindow?.postMessage({ attnlab: "answer", id, status, content }, "*")
  }
  const follow = () => {
    const page = frame.contentWindow?.attnlabPage, state = model.get("state")
    early = !page
    if (page && JSON.stringify(page.state) !== JSON.stringify(state)) page.follow(state)
  }
  addEventListener("message", hear)
  model.on("change:state", follow)
  model.on("msg:custom", answer)
  el.append(frame)
  return () => {
    for (const id of asked) model.send({ id, cancel: true })
    removeEventListener("message", hear)
    model.off("change:state", follow)
    model.off("msg:custom", answer)
    for (const address of made.all.values()) URL.revokeObjectURL(address)
  }
}

export default { render }
