/** Elements made from text, never from markup, so that names are shown as they are. */
const SVG = "http://www.w3.org/2000/svg"

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value)
    else element.setAttribute(name, value === true ? "" : value)
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined))
  return element
}

export const h = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children)
export const svg = (tag, attributes, ...children) =>
  made(document.createElementNS(SVG, tag), attributes, children)

export const byId = (id) => document.getElementById(id)

/** Set attributes of an element, leaving alone what is as it should be. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text = String(value)
    if (element.getAttribute(name) !== text) element.setAttribute(name, text)
  }
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text
}

export function percent(share) {
  const value = 100 * share
  if (value < 0.1) return value === 0 ? "0%" : "<0.1%"
  return value >= 9.5 ? `${Math.round(value)}%` : `${value.toFixed(1)}%`
}

/** A number as one writes it: 0.05, 12, 5,000. */
export function number(value) {
  if (Math.abs(value) >= 1e6) return value.toExponential(0).replace("e+", "e")
  return value >= 1000 ? value.toLocaleString("en") : String(Number(value.toPrecision(3)))
}
