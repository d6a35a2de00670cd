/**
 * The page in a notebook: put together by assembled.js, which stands before this, in a frame of its
 * own. What is turned there comes back as the model's `state`.
 */
/** Runs in the frame: what the page does not compute itself is asked of the kernel. */
function asking() {
  const waiting = new Map()
  let last = 0
  globalThis.attnlabAsk = (verb, document, signal) => new Promise((resolve, reject) => {
    const id = ++last
    waiting.set(id, resolve)
    parent.postMessage({ attnlab: "ask", question: { id, verb, document } }, "*")
    signal?.addEventListener("abort", () => {
      waiting.delete(id)
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
  frame.title = "attnlab playground"
  frame.style.cssText = "width:100%;height:820px;border:0"
  const begin = `globalThis.attnlabWorker = ${JSON.stringify(made.worker)};
    globalThis.attnlabStart = ${JSON.stringify(model.get("state")).replaceAll("<", "\\u003c")};
    globalThis.attnlabTell = (state) => parent.postMessage({ attnlab: "state", state }, "*");
    (${asking})();`
  frame.srcdoc = files["/index.html"]
    .replaceAll(/<link rel="modulepreload"[^>]*>/g, "") // which no address would answer here
    .replace('<link rel="stylesheet" href="style.css">', () => `<style>${files["/style.css"]}</style><script>${begin}</script>`)
    .replace('src="main.js"', () => `src="${made.main}"`)
  const hear = ({ source, data }) => {
    if (source !== frame.contentWindow) return
    if (data?.attnlab === "ask") model.send(data.question)
    if (data?.attnlab !== "state") return
    model.set("state", data.state)
    model.save_changes()
  }
  const answer = ({ id, status }, [content]) => {
    frame.contentWindow?.postMessage({ attnlab: "answer", id, status, content }, "*")
  }
  const follow = () => {
    const page = frame.contentWindow?.attnlabPage, state = model.get("state")
    if (page && JSON.stringify(page.state) !== JSON.stringify(state)) page.put(state)
  }
  addEventListener("message", hear)
  model.on("change:state", follow)
  model.on("msg:custom", answer)
  el.append(frame)
  return () => {
    removeEventListener("message", hear)
    model.off("change:state", follow)
    model.off("msg:custom", answer)
    for (const address of made.all.values()) URL.revokeObjectURL(address)
  }
}

export default { render }
