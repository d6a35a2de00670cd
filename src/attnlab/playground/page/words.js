/** One's own words: a table of weights to type in, drag, paste or load; nothing is lost without undo. */
import { byId, h, percent } from "./dom.js"
import { classesFromDocument } from "./simulator/classes.js"
import { classesOf } from "./simulator/run.js"
import { parseTable, readFile, toTable, weightOf, wordsOf } from "./tables.js"

const MOST_CELLS = 600
const MOST_NAMED = 5000

export class WordsEditor {
  /**
   * change(classes, drag) puts classes into the state, restore(document) all that a file of the page's
   * own holds; the page redraws and calls `show` again.
   */
  constructor(change, restore) {
    this.change = change
    this.restore = restore
    this.dialog = byId("words-dialog")
    byId("open-words").addEventListener("click", () => this.open())
  }

  open() {
    this.render()
    this.dialog.showModal()
  }

  /** The classes on the screen; drawn again where the table is open. */
  show(classes) {
    const given = withNames(classes)
    const again = this.dialog.open && JSON.stringify(given) !== JSON.stringify(this.document)
    this.document = given
    if (again) this._refresh()
  }

  /** Put a document into the state; `drag` names what is dragged, so that one drag is undone at once. */
  put(document, drag = "") {
    try {
      classesFromDocument(document)
    } catch (error) {
      this.problem(error.message)
      return
    }
    this.problem("")
    this.document = document
    this.change(document, drag)
    if (drag === "") this._refresh()
  }

  problem(words) {
    const box = this.dialog.querySelector(".problem")
    if (box) box.textContent = words
  }

  /** Draw the table again; what has the focus keeps it. */
  _refresh() {
    const inside = () => [...this.box.querySelectorAll("input, button")]
    const at = inside().indexOf(document.activeElement)
    this.box.replaceChildren(this._table())
    this.paste.value = this._cells() <= MOST_CELLS ? toTable(this.document) : ""
    inside()[at]?.focus({ preventScroll: true })
  }

  /** Begin to type in a name. */
  _focus(label) {
    const input = this.box.querySelector(`[aria-label="${CSS.escape(label)}"]`)
    input?.focus()
    input?.select()
  }

  render() {
    const close = h("button", { type: "button", class: "main", onclick: () => this.dialog.close() }, "Done")
    const file = h("input", { type: "file", class: "quiet", accept: ".yaml,.yml,.json,.csv", id: "words-file",
      onchange: async () => {
        const [chosen] = file.files
        if (!chosen) return
        try {
          const found = await readFile(chosen.name, new Uint8Array(await chosen.arrayBuffer()))
          if ("vocabulary" in found) this.put(found)
          else this.restore(found)
        } catch (error) {
          this.problem(error.message)
        }
        file.value = "" // the same file may be loaded again
      } })
    this.paste = h("textarea", { id: "words-paste", rows: 4, spellcheck: "false" })
    this.box = h("div", {})
    const take = h("button", { type: "button", onclick: () => {
      try {
        this.put(parseTable(this.paste.value))
      } catch (error) {
        this.problem(error.message)
      }
    } }, "Use this table")
    this.dialog.replaceChildren(
      h("h2", { id: "words-title", tabindex: -1, autofocus: true }, "Your own words"),
      h("p", { class: "hint" }, "Each column is a kind of sentence: its last word and the word that comes next. " +
        "Weights say how often a word occurs in it; only their proportions count. A word with a weight in " +
        "several columns is shared."),
      h("p", { class: "problem", role: "alert" }),
      this.box,
      h("div", { class: "dialog-row" },
        h("button", { type: "button", onclick: () => this._addWord() }, "Add a word"),
        h("button", { type: "button", onclick: () => this._addKind() }, "Add a kind of sentence"),
        file, h("label", { for: "words-file", class: "file" }, "Load a file (YAML, JSON, CSV)")),
      h("details", {}, h("summary", {}, "Paste a table"),
        h("label", { for: "words-paste" }, "First row: word, then “last word → next word” for each kind. Then a row of weights for each word."),
        this.paste, take),
      h("div", { class: "dialog-row end" }, close),
    )
    this._refresh()
  }

  _cells() {
    return wordsOf(this.document).length * this.document.classes.length
  }

  _table() {
    const { classes } = this.document
    const words = wordsOf(this.document)
    if (this._cells() > MOST_CELLS) {
      return h("p", {}, `${words.length} words and ${classes.length} kinds of sentences: too many to edit here; load a file instead.`)
    }
    const most = Math.max(...classes.flatMap((of) => Object.values(of.probs)))
    const head = h("tr", {}, h("th", { scope: "col" }, "word"), classes.map((of, k) => h("th", { scope: "col" },
      this._name(`Last word of kind ${k + 1}`, of.query, (name) => this._rename(k, "query", name)), " → ",
      this._name(`Next word of kind ${k + 1}`, of.next, (name) => this._rename(k, "next", name)),
      classes.length > 1 ? h("button", { type: "button", class: "small", "aria-label": `Remove kind ${k + 1}`,
        onclick: () => this._without(k) }, "×") : null)))
    const rows = words.map((word) => h("tr", {}, h("th", { scope: "row" },
      this._name(`Word ${word}`, word, (name) => this._renameWord(word, name))),
    classes.map((of, k) => {
      const total = Object.values(of.probs).reduce((sum, w) => sum + w, 0)
      const weight = weightOf(of, word)
      const shown = h("output", {}, percent(weight / total))
      const bar = h("input", { type: "range", min: 0, max: most, step: most / 100,
        "aria-label": `Weight of ${word} before ${of.next}`, oninput: () => {
          const value = Number(Number(bar.value).toPrecision(4))
          shown.textContent = percent(value / (total - weight + value || 1))
          this._weigh(k, word, value)
        } })
      bar.value = weight
      return h("td", {}, bar, shown)
    })))
    return h("div", { class: "table-box", tabindex: 0, role: "region", "aria-label": "Weights of words" },
      h("table", {}, h("thead", {}, head), h("tbody", {}, rows)))
  }

  _name(label, value, renamed) {
    const input = h("input", { type: "text", "aria-label": label, size: Math.max(4, value.toString().length),
      onchange: () => setTimeout(() => renamed(input.value.trim())) }) // when the focus has moved on
    input.value = value
    return input
  }

  _with(classes, drag = "", vocabulary = this.document.vocabulary) {
    this.put(withVocabulary({ ...this.document, vocabulary }, classes), drag)
  }

  _weigh(k, word, weight) {
    const classes = this.document.classes.map((of, at) => {
      if (at !== k) return of
      const { [word]: _, ...rest } = of.probs
      return { ...of, probs: weight > 0 ? { ...of.probs, [word]: weight } : rest }
    })
    this._with(classes, `weight ${k} ${word}`)
  }

  _rename(k, field, name) {
    const classes = this.document.classes.map((of, at) => (at === k ? { ...of, [field]: name } : of))
    const { query, next } = classes[k]
    const taken = classes.some((of, at) => at !== k && of.query === query && of.next === next)
    if (taken) this.problem(`“${query} → ${next}” has a column already; give another word.`)
    else if (name) this._with(classes)
    this._refresh()
  }

  _renameWord(word, name) {
    if (name !== word && wordsOf(this.document).includes(name)) this.problem(`“${name}” has a row already; give another name.`)
    else if (name && name !== word) {
      const named = (key) => (key === word ? name : key)
      this._with(this.document.classes.map((of) => ({
        ...of, probs: Object.fromEntries(Object.entries(of.probs).map(([key, value]) => [named(key), value])),
      })), "", this.document.vocabulary.map?.(named))
    }
    this._refresh()
  }

  _without(k) {
    this._with(this.document.classes.filter((_, at) => at !== k).map(({ prior, ...of }) => of))
  }

  _addWord() {
    const known = new Set(wordsOf(this.document))
    let n = 1
    while (known.has(`word${n}`)) n++
    const [first, ...rest] = this.document.classes
    const usual = Object.values(first.probs)
    const weight = usual.reduce((sum, w) => sum + w, 0) / usual.length
    this._with([{ ...first, probs: { ...first.probs, [`word${n}`]: Number(weight.toPrecision(3)) } }, ...rest])
    this._focus(`Word word${n}`)
  }

  _addKind() {
    const { classes } = this.document
    const last = classes.at(-1)
    let n = classes.length + 1
    while (classes.some((of) => of.next === `next${n}`)) n++
    this._with([...classes, { query: last.query, next: `next${n}`, probs: { ...last.probs, [`word${n}`]: Math.max(...Object.values(last.probs)) } }]
      .map(({ prior, ...of }) => of))
    this._focus(`Next word of kind ${classes.length + 1}`)
  }
}

/** Classes with words for tokens that have none, as the bars call them, so that words can be added. */
function withNames(classes) {
  if (Array.isArray(classes.vocabulary)) return classes
  const made = classesOf(classes)
  if (made.M <= MOST_NAMED) made.names = Array.from({ length: made.M }, (_, token) => made.word(token))
  return made.toDocument()
}

/** A document with these classes, whose words are all in its vocabulary; weights, not shares. */
function withVocabulary(document, classes) {
  const used = new Set(classes.flatMap((of) => [...Object.keys(of.probs), String(of.query), String(of.next)]))
  if (!Array.isArray(document.vocabulary)) return { ...document, normalize: true, classes }
  const kept = document.vocabulary.map(String)
  const unused = kept.length - kept.filter((word) => used.has(word)).length
  const before = new Set(document.classes.flatMap((of) => [...Object.keys(of.probs), String(of.query), String(of.next)]))
  // a word that was renamed or removed leaves the vocabulary; one that never occurred stays
  const stay = kept.filter((word) => used.has(word) || (unused > 0 && !before.has(word)))
  return { vocabulary: [...stay, ...[...used].filter((word) => !stay.includes(word))], normalize: true, classes }
}
