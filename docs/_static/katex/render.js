// Typesets what extension/katex.py has left as LaTeX; a formula that cannot be read stays, in red.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".formula")) {
    const displayMode = place.tagName === "DIV"
    katex.render(place.textContent, place, { displayMode, throwOnError: false })
  }
})
