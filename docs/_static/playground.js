// Opens the embedded playground, and the links beside it, on the experiment that a page asks for;
// embedded, it shows that experiment alone, without title and tour.
const root = new URL("..", import.meta.url) // of the site
const { byName, stateOf } = await import(new URL("playground/experiments.js", root))
const { toLink } = await import(new URL("playground/state.js", root))

for (const place of document.querySelectorAll("[data-experiment]")) {
  const link = `${new URL("playground/index.html", root)}#${toLink(stateOf(byName(place.dataset.experiment)))}`
  place.addEventListener("load", () => {
    const style = place.contentDocument.createElement("style")
    style.textContent = "header, #experiments, #tour, #paper { display: none !important } body { padding: 0 !important }"
    place.contentDocument.head.append(style)
  })
  place.setAttribute(place.tagName === "IFRAME" ? "src" : "href", link)
}
