/**
 * Faults of YAML in our own words: what is wrong with a text that no parser takes, and what to do.
 *
 * The rules and words are those of files/yaml_faults.py, which says why; a test compares the two.
 */
export const ELSE = "expected `key: value` or `- item` here; check the indentation, colons and quotes around it"
export const COMPLEX_KEY = "a key that is a list or a mapping; keys are words or numbers"
export const MISPLACED_TAG = "a tag that does not fit its value; take it out"

// eslint-disable-next-line no-control-regex
const NOT_ALLOWED = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]/
const LEADING_TAB = /^ *\t\s*[^\s#]/
const BLOCK_TEXT = /[|>][-+0-9]*[ \t]*(#.*)?$/y
const NAME = /[\w-]+(?=[ \t,[\]{}]|$)/y
const TAG = /![^ \t,[\]{}]*/y
const KNOWN_TAGS = ["!", "!!str", "!!int", "!!float", "!!bool", "!!null", "!!seq", "!!map"]
const ESCAPE = /\\([0abt\tnvfre "/\\N_LP]|x[\da-fA-F]{2}|u[\da-fA-F]{4}|U00[\da-fA-F]{6}|$)/y
const AFTER_QUOTE = /[ \t]*([,:\]}]|#|$)/y
const CLOSE = { "[": "]", "{": "}" }
const SECOND = "a second document begins; keep one in a file"

/** {line, words} of the first fault of a known kind; null where there is none. */
export function fault(text) {
  return new Scan().lines(text.split(/\r\n|\r|\n/))
}

const matched = (pattern, line, at) => {
  pattern.lastIndex = at
  return pattern.exec(line)
}
const isBlank = (sign) => sign.trim() === ""
const notClosed = (sign) => `the bracket ${sign} is not closed; add ${CLOSE[sign]}, or put it in quotes`

/** Goes through a text as a reader's eye would: quotes, brackets, and what a value begins with. */
class Scan {
  constructor() {
    this.brackets = [] // those that are open, and their lines
    this.quote = null // that is open
    this.anchors = new Set()
    this.started = this.ended = false // the document
    this.block = null // lines that are indented more than this are text
  }

  lines(lines) {
    for (const [at, line] of lines.entries()) {
      const found = this._line(line, at + 1)
      if (found) return found
    }
    if (this.quote !== null) {
      const { sign, line } = this.quote
      return { line, words: `the quote ${sign} is not closed; close it, or put quotes around all` }
    }
    if (this.brackets.length === 0) return null
    const { sign, line } = this.brackets.at(-1)
    return { line, words: notClosed(sign) }
  }

  _line(line, number) {
    const bad = NOT_ALLOWED.exec(line)
    if (bad) {
      const code = bad[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")
      return { line: number, words: `the character U+${code} is not allowed; take it out` }
    }
    const indent = /^ */.exec(line)[0].length
    if (this.block !== null) {
      if (indent > this.block || isBlank(line)) return null
      this.block = null
    }
    let at = 0
    if (this.quote === null && this.brackets.length === 0) {
      if (LEADING_TAB.test(line)) return { line: number, words: "a tab in the indentation; indent with spaces" }
      const mark = line.slice(0, 3)
      if ((mark === "---" || mark === "...") && isBlank(line.slice(3, 4))) {
        const again = mark === "---" && this.started
        this.started = true
        this.ended = mark === "..."
        at = 3
        if (again) return { line: number, words: SECOND }
      } else if (line.startsWith("%") && !this.started) return null
    }
    const words = this._tokens(line, number, at)
    if (!words) return null
    return typeof words === "string" ? { line: number, words } : words
  }

  /** What is wrong in a line: words, or {line, words} where that is another one. */
  _tokens(line, number, at) {
    let fresh = this.quote === null // whether a value may begin
    let dashes = 0 // where what follows them begins
    while (at < line.length) {
      const sign = line[at], rest = line.slice(at + 1, at + 2), inside = this.brackets.length > 0
      if (this.quote !== null) {
        at = this._quoted(line, at)
        if (at < 0) return `${line.slice(-at - 1, 1 - at)} is no escape; write \\\\ for a backslash, or use single quotes`
        if (this.quote === null && !matched(AFTER_QUOTE, line, at)) {
          return "a quote closes before the end; double a quote that is meant"
        }
        fresh = false
      } else if (sign === " " || sign === "\t") at += 1
      else if (sign === "#" && (at === 0 || " \t".includes(line[at - 1]))) return null
      else if ("]}".includes(sign) && (inside || fresh)) {
        if (!inside) return `${sign} closes nothing; take it out, or put it in quotes`
        const open = this.brackets.pop()
        if (CLOSE[open.sign] !== sign) return { line: open.line, words: notClosed(open.sign) }
        at += 1
        fresh = false
      } else if ((sign === "," && inside) || (sign === ":" && (isBlank(rest) || (inside && ",[]{}".includes(rest))))) {
        at += 1
        fresh = true
      } else if (!fresh) at += 1
      else if ("-?".includes(sign) && isBlank(rest)) dashes = at += 1
      else {
        if (this.ended) return SECOND
        this.started = true
        if (sign === '"' || sign === "'") {
          this.quote = { sign, line: number }
          at += 1
        } else if (sign === "[" || sign === "{") {
          this.brackets.push({ sign, line: number })
          at += 1
        } else if ("&*!".includes(sign)) {
          const { wrong, end } = this._property(line, at)
          if (wrong) return wrong
          at = end
          fresh = sign !== "*"
        } else if ("@`%".includes(sign)) return `a value that begins with ${sign}; put it in quotes`
        else if (!inside && matched(BLOCK_TEXT, line, at)) {
          const alone = isBlank(line.slice(dashes, at))
          this.block = alone ? dashes - 1 : /^ *(?:- +)*/.exec(line)[0].length
          return null
        } else {
          at += 1
          fresh = false
        }
      }
    }
    return null
  }

  /** Where a quoted text ends, or the line; below zero, the place of what is no escape. */
  _quoted(line, at) {
    const { sign } = this.quote
    while (at < line.length) {
      if (line[at] === sign) {
        if (sign === "'" && line[at + 1] === "'") {
          at += 2
          continue
        }
        this.quote = null
        return at + 1
      }
      if (sign === '"' && line[at] === "\\") {
        const escape = matched(ESCAPE, line, at)
        if (escape === null || (escape[1][0] === "U" && parseInt(escape[1].slice(1), 16) > 0x10ffff)) return -at - 1
        at += escape[0].length
        continue
      }
      at += 1
    }
    return at
  }

  /** What is wrong with an anchor, an alias or a tag, if anything, and where it ends. */
  _property(line, at) {
    const sign = line[at]
    if (sign === "!") {
      const [tag] = matched(TAG, line, at)
      const words = `the tag ${tag.slice(0, 30)} is not known; take it out, or put it in quotes`
      return { wrong: KNOWN_TAGS.includes(tag) ? "" : words, end: at + tag.length }
    }
    const name = matched(NAME, line, at + 1)
    if (name === null || (sign === "*" && !this.anchors.has(name[0]))) {
      const shown = `${sign}${name ? name[0].slice(0, 30) : ""}`
      return { wrong: `${shown} stands for nothing; put it in quotes if it is a word`, end: at + 1 }
    }
    this.anchors.add(name[0])
    return { wrong: "", end: at + 1 + name[0].length }
  }
}
