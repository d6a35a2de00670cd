/** What one takes along: the data (CSV), a picture (SVG, PNG), an animation (GIF). */
import { svg } from "./dom.js"
import { library } from "./place.js"
import { quoted } from "./tables.js"

export function save(name, blob) {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}

/** A row for each moment, class and word that it draws. */
export function csv({ classes, result, head, measured }) {
  const lines = ["step,class,query,next,word,shared,probability,attention,logit,entropy,common_mass,loss"]
  const { K, size } = classes
  result.steps.forEach((step, r) => {
    for (let k = 0; k < K; k++) {
      for (let i = classes.offsets[k]; i < classes.offsets[k + 1]; i++) {
        const token = classes.tokens[i]
        lines.push([
          step, k, quoted(classes.name(classes.query[k])), quoted(classes.name(classes.next[k])), quoted(classes.name(token)),
          Number(classes.isCommon(token)), classes.values[i], head.attention[r * size + i], head.logits[r * size + i],
          measured.entropy[r * K + k], measured.commonMass[r * K + k], result.loss[r],
        ].join(","))
      }
    }
  })
  return `${lines.join("\n")}\n`
}

const DRAWN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "font-size", "font-weight", "text-anchor", "visibility"]

/** A chart as elements that look the same without the page's style sheet. */
function plain(chart) {
  const copy = chart.cloneNode(true)
  const from = [chart, ...chart.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")]
  from.forEach((element, at) => {
    const style = getComputedStyle(element)
    for (const name of DRAWN) to[at].setAttribute(name, style.getPropertyValue(name))
    to[at].removeAttribute("class")
  })
  return copy
}

// eslint-disable-next-line no-control-regex
const NOT_IN_XML = /[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g

/** Everything on the stage as one picture: sentence, story, bars and curves. */
export function picture() {
  const style = getComputedStyle(document.body)
  const ink = style.color, paper = style.backgroundColor
  const width = 960, margin = 24
  const root = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, "font-family": "system-ui, sans-serif" })
  const text = (words, x, y, size, weight = "normal") =>
    svg("text", { x, y, fill: ink, "font-size": size, "font-weight": weight }, words)
  root.append(svg("rect", { width: "100%", height: "100%", fill: paper }))
  let y = margin + 14
  root.append(text(document.getElementById("step-shown").textContent, margin, y, 15, "bold"))
  y += 24
  y = sentence(root, margin, y, ink)
  // two lines, whatever it says: all frames of an animation have one height
  wrapped(document.getElementById("story").textContent, 125).slice(0, 2).forEach((line, at) => {
    root.append(text(line, margin, y + 18 * at, 13))
  })
  y += 48
  const side = (boxes, name) => {
    const each = (width - 2 * margin) / Math.max(2, boxes.length)
    const heights = boxes.map((box, at) => {
      const x = margin + at * each, chart = box.querySelector("svg")
      const [, , wide, high] = chart.getAttribute("viewBox").split(" ").map(Number)
      const copy = plain(chart), height = (high * (each - 12)) / wide
      for (const [key, value] of Object.entries({ x, y: y + 8, width: each - 12, height })) copy.setAttribute(key, value)
      root.append(text(box.querySelector(name).textContent, x, y, 13, "bold"), copy)
      return height
    })
    y += Math.max(...heights) + 36
  }
  side([...document.querySelectorAll("#classes .class-card")], "h3")
  side([...document.querySelectorAll("#curves figure")], "figcaption")
  root.setAttribute("height", Math.round(y))
  root.setAttribute("viewBox", `0 0 ${width} ${Math.round(y)}`)
  const whole = new XMLSerializer().serializeToString(root).replace(NOT_IN_XML, "\ufffd")
  return { text: whole, width, height: Math.round(y) }
}

function sentence(root, x0, y, ink) {
  let x = x0
  for (const word of document.querySelectorAll("#sentence > *")) {
    const wide = Math.max(10, word.textContent.length * 9.2 + 12)
    if (x + wide > 936) {
      x = x0
      y += 28
    }
    if (word.classList.contains("token")) {
      const style = getComputedStyle(word)
      root.append(svg("rect", { x, y: y - 16, width: wide - 4, height: 22, rx: 4, fill: style.backgroundColor }))
    }
    root.append(svg("text", { x: x + 4, y, fill: ink, "font-size": 15, "font-weight": word.tagName === "STRONG" ? "bold" : "normal" }, word.textContent))
    x += wide
  }
  return y + 28
}

function wrapped(words, letters) {
  const lines = [""]
  for (const word of words.split(" ")) {
    if (lines.at(-1).length + word.length > letters) lines.push("")
    lines[lines.length - 1] += `${word} `
  }
  return lines
}

/** A picture drawn onto a canvas, `scale` times as large. */
async function painted({ text, width, height }, scale) {
  const image = new Image()
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }))
  image.src = address
  await image.decode()
  const canvas = document.createElement("canvas")
  canvas.width = width * scale
  canvas.height = height * scale
  canvas.getContext("2d", { willReadFrequently: true }).drawImage(image, 0, 0, canvas.width, canvas.height)
  URL.revokeObjectURL(address)
  return canvas
}

export async function png() {
  const canvas = await painted(picture(), 2)
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"))
}

/** An animation of the whole run: `go(fraction)` shows a moment, `told(done)` hears how far it is. */
export async function gif(go, told, { frames = 48, delay = 120 } = {}) {
  const { GIFEncoder, applyPalette, quantize } = await library("gifenc")
  const encoder = GIFEncoder()
  for (let at = 0; at < frames; at++) {
    go(at / (frames - 1))
    const canvas = await painted(picture(), 0.8)
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
    const palette = quantize(data, 128)
    encoder.writeFrame(applyPalette(data, palette), canvas.width, canvas.height, {
      palette, delay: at === frames - 1 ? 2000 : at === 0 ? 1000 : delay,
    })
    told((at + 1) / frames)
    await new Promise((resolve) => setTimeout(resolve))
  }
  encoder.finish()
  return new Blob([encoder.bytes()], { type: "image/gif" })
}
