/**
 * The page in a notebook, in a frame of its own. What is turned there comes back as the model's
 * `state`; what the page does not compute itself is asked of the kernel.
 */
function render({ model, el }) {
  const frame = document.createElement("iframe")
  const { a, ...rest } = model.get("state") // without a run: the page's first example
  const begin = JSON.stringify({ api: "parent", start: a && { a, ...rest } }).replaceAll("<", "\\u003c")
  frame.title = "attnlab playground"
  frame.style.cssText = "width:100%;height:820px;border:0"
  frame.srcdoc = model.get("page").replace(/(id="begin">)[^<]*/, (_, tag) => tag + begin)
  const asked = new Set() // of the kernel, and not answered yet
  let isThere = false, early = false // whether Python set a state before the page was there
  let shown = "" // state of the page
  const say = (message) => frame.contentWindow?.postMessage(message, "*")
  const hear = ({ source, data }) => {
    if (source !== frame.contentWindow) return
    if (data?.attnlab === "ask") {
      asked[data.question.cancel ? "delete" : "add"](data.question.id)
      model.send(data.question)
    }
    if (data?.attnlab !== "state") return
    isThere = true
    shown = JSON.stringify(data.state)
    if (early) {
      early = false
      return follow()
    }
    model.set("state", data.state)
    model.save_changes()
  }
  const answer = ({ id, status }, [content]) => {
    if (asked.delete(id)) say({ attnlab: "answer", id, status, content })
  }
  const follow = () => {
    const state = model.get("state")
    early = !isThere
    if (isThere && JSON.stringify(state) !== shown) say({ attnlab: "follow", state })
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
  }
}

export default { render }
