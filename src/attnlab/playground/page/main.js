/** The page: state in, runs asked for, drawn; one flow, from a control to the bars. */
import { Api } from "./api.js"
import { classesFile, commandLine, python, yaml } from "./code.js"
import { ControlPanel } from "./controls.js"
import { byId, h, say } from "./dom.js"
import { BY_PAPER, EXPERIMENTS, OWN, byName, stateOf } from "./experiments.js"
import { csv, gif, picture, png, save } from "./export.js"
import { foldouts } from "./paper.js"
import { pageWith } from "./place.js"
import { Player, reducedMotion } from "./player.js"
import { regression } from "./regression.js"
import { Dropped, Runner } from "./runner.js"
import { InputError } from "./simulator/errors.js"
import { classesOf, outside } from "./simulator/run.js"
import { changed, settingsOf } from "./simulator/settings.js"
import { Shown, Stage } from "./stage.js"
import { History, LONGEST_LINK, RUNGS, fromLink, makeState, readState, toLink } from "./state.js"
import { silence, speaksOf, transitions } from "./theory/prediction.js"
import { Tour } from "./tour.js"
import { WordsEditor } from "./words.js"

const DIM_AFTER = 60 // ms: a run that is there sooner is not announced
const TELL_AFTER = 800 // ms: one that takes longer is
const PREDICT_AFTER = 80 // ms: while one drags, the bars have the processor to themselves

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"]

/** What the page was made with: {start, api, address}, all of which may be missing. */
const MADE = JSON.parse(byId("begin").textContent || "{}")

/** Whether others reach this page under its address. */
const isPublic = () => location.protocol.startsWith("http") && !LOOPBACK.includes(location.hostname)

class Page {
  constructor(api, state) {
    this.api = api
    this.runner = new Runner(api)
    this.history = new History(state)
    this.stage = new Stage({
      go: (record) => { this.player.pause(); this.player.go(record) },
      pick: (first) => this.put({ ...this.state, first }),
    })
    this.player = new Player((position) => {
      this.stage.draw(position)
      this._linkSoon() // once it rests
    }, () => {
      this._announce()
      this.tour.offer()
    })
    this.panel = new ControlPanel(byId("controls"), (control, value) => this._turn(control, value))
    this.words = new WordsEditor((classes, drag) => this.edit((of) => changed(of, { task: { classes } }), drag),
      (document) => this.open(readState(document)))
    this.tour = new Tour()
    this.wishes = 0
    this._buttons()
    this._chips()
    foldouts()
    regression()
    addEventListener("hashchange", () => this._followLink())
    if (MADE.api === "parent") {
      addEventListener("message", ({ source, data }) => source === parent && data?.attnlab === "follow" && this._follow(data.state))
    }
  }

  get state() {
    return this.history.state
  }

  /** The run that controls turn: B where two are compared. */
  get document() {
    return this.state.b ?? this.state.a
  }

  put(state, control = "") {
    this.history.put(makeState(state), control)
    return this.show()
  }

  /** Show what a link or a file holds, at its moment. */
  async open({ moment, ...state }) {
    await this.put(state)
    this._to(moment)
  }

  /** Go to a step, where one is said. */
  _to(moment) {
    if (moment > 0 && this.stage.main) this.player.go(this.stage.main.at(moment))
  }

  /** What a link or a file holds: the state, and the moment where one has stopped on the way. */
  get whole() {
    const { position, last } = this.player
    const moment = position > 0 && position < last ? Number(this.stage.main.step(position).toPrecision(4)) : 0
    return { ...this.state, moment }
  }

  /** Change the run that is turned. */
  edit(change, control) {
    const { state } = this
    const next = change(this.document)
    return this.put(state.b === null ? { ...state, a: next, experiment: "" } : { ...state, b: next, experiment: "" }, control)
  }

  _turn(control, value) {
    this.player.pause()
    this.edit((of) => control.write(of, value), control.id)
  }

  /** Show the state: controls at once, charts as soon as the run is there. */
  async show() {
    const { state, document: of } = this
    const wish = ++this.wishes
    this.panel.show(of)
    this.words.show(settingsOf(of).classes)
    this._say(state)
    this._linkSoon()
    if (MADE.api === "parent") parent.postMessage({ attnlab: "state", state }, "*")
    const live = byId("live")
    const stale = (is) => {
      live.classList.toggle("stale", is)
      live.setAttribute("aria-busy", String(is))
    }
    const dim = setTimeout(() => stale(true), DIM_AFTER)
    const wait = setTimeout(() => say(byId("waiting"), outside(of) ? "attnlab computes this…" : "training…"), TELL_AFTER)
    try {
      for (const asked of [of, state.a]) this._refuse(asked)
      const result = await this.runner.run(of)
      if (wish !== this.wishes) return
      const before = state.b === null ? null : await this.runner.run(state.a)
      if (wish !== this.wishes) return
      this._draw(state, of, result, before)
      stale(false)
    } catch (error) {
      if (error instanceof Dropped || wish !== this.wishes) return
      stale(true)
      this._problem(error)
    } finally {
      clearTimeout(dim)
      clearTimeout(wait)
      if (wish === this.wishes) say(byId("waiting"), "")
    }
  }

  /** What needs the API, where there is none: say which command would show it. */
  _refuse(of) {
    const why = outside(of)
    if (!why || this.api.isThere) return
    const where = typeof settingsOf(of).classes === "string" ? "" : " (“Show code” has classes.json)"
    const error = new Error(`The page does not compute ${why} by itself. With attnlab installed, these show it${where}:`)
    error.commands = ["attnlab play", commandLine(of)]
    throw error
  }

  _draw(state, of, result, before) {
    byId("problem").hidden = true
    document.body.classList.remove("loading")
    const classes = classesOf(settingsOf(of).classes)
    const first = Math.min(state.first, classes.K - 1)
    const main = new Shown(classes, result)
    const other = before === null ? null : new Shown(classesOf(settingsOf(state.a).classes), before)
    const { t0Prime, t0 } = transitions(of, classes)
    const speaks = !silence(of, "sgd", classes)
    this.stage.lay({ main, other, first, sentence: state.sentence, transitions: speaks ? [[t0Prime, "t₀′"], [t0, "t₀"]] : [] })
    this.player.lay(result.steps.length)
    document.body.classList.toggle("comparing", other !== null)
    byId("live").dataset.drawn = String(Number(byId("live").dataset.drawn ?? 0) + 1)
    this._predict(of, classes, result)
    clearTimeout(this.announcing)
    this.announcing = setTimeout(() => this.player.playing || this._announce(), 800)
  }

  _predict(of, classes, result) {
    const silent = Object.fromEntries(RUNGS.map((rung) => [rung, silence(of, rung, classes)]))
    for (const rung of RUNGS) byId(`rung-${rung}`).parentElement.hidden = silent[rung] !== ""
    const spoken = this.state.rungs.filter((rung) => !silent[rung])
    say(byId("theory-note"), RUNGS.every((rung) => silent[rung]) ? silent[RUNGS.find((rung) => speaksOf(of, rung)) ?? RUNGS[0]] : "")
    document.body.classList.toggle("with-theory", spoken.length > 0)
    const heard = (said) => {
      if (said.kind === "prediction") this.stage.predict(said.rung, said.result)
      else if (said.kind === "error") say(byId("theory-note"), said.said)
    }
    this.runner.drop()
    clearTimeout(this.predicting)
    this.predicting = setTimeout(() => this.runner.predict(of, spoken, result.steps, heard), PREDICT_AFTER)
  }

  _say(state) {
    const experiment = byName(state.experiment)?.name ?? ""
    for (const part of document.querySelectorAll("#experiments button, #look p")) {
      if (part.dataset.name === experiment) part.setAttribute("aria-current", "true")
      else part.removeAttribute("aria-current")
    }
    this._reveal()
    byId("undo").disabled = this.history.past.length === 0
    byId("redo").disabled = this.history.future.length === 0
    for (const rung of RUNGS) byId(`rung-${rung}`).checked = state.rungs.includes(rung)
    const comparing = state.b !== null
    byId("compare").hidden = comparing
    byId("swap").hidden = byId("uncompare").hidden = !comparing
    say(byId("compare-note"), comparing ? "Hollow bars and grey lines are A. The controls turn B." : "Then turn anything: it is drawn over what you see now.")
  }

  _problem(error) {
    const box = byId("problem")
    document.body.classList.remove("loading")
    box.replaceChildren(h("p", {}, error.message), ...(error.commands ?? []).map((line) => h("pre", {}, command(line))))
    box.hidden = false
  }

  _announce() {
    if (this.stage.told) say(byId("summary"), `${byId("step-shown").textContent}. ${byId("story").textContent}`)
  }

  // -- experiments, links, buttons ------------------------------------------------------------

  _chips() {
    const chip = (words, name, act) => h("button", { type: "button", "data-name": name, onclick: act }, words)
    const group = (paper, ...chips) => h("div", { role: "group", "aria-label": paper }, h("span", {}, paper), chips)
    byId("experiments").replaceChildren(
      ...[...BY_PAPER].map(([paper, all]) => group(paper, ...all.map((of) => chip(of.title, of.name, () => this.start(of))))),
      group("Linear ICL", chip("One drop or a staircase", null, () => {
        const { firstElementChild: details } = byId("regression")
        details.open = true
        details.scrollIntoView({ behavior: reducedMotion() ? "auto" : "smooth" })
      })),
    )
    // all in one place, one visible: there is room for the longest
    byId("look").replaceChildren(...[OWN, ...EXPERIMENTS].map((of) => h("p", { "data-name": of.name },
      of.look, " ", h("span", { class: "source" }, of.source))))
  }

  /** On a phone the experiments are one row, scrolled: to where the one shown is. */
  _reveal() {
    const row = byId("experiments"), chip = row.querySelector("[aria-current]")
    if (!chip) return
    const left = chip.offsetLeft - row.offsetLeft
    const isSeen = left >= row.scrollLeft && left + chip.offsetWidth <= row.scrollLeft + row.clientWidth
    if (!isSeen) row.scrollLeft = left - 40
  }

  /** Open an experiment: from the start, and playing, unless motion is unwelcome. */
  async start(experiment) {
    this.player.pause()
    const shown = this.put({ ...stateOf(experiment), rungs: this.state.rungs })
    const wish = this.wishes
    await shown
    if (wish !== this.wishes) return // something else was wished for meanwhile
    if (reducedMotion()) this.player.go(this.player.last)
    else {
      this.player.go(0)
      if (byId("problem").hidden) this.player.play()
    }
  }

  _linkSoon() {
    clearTimeout(this.linking)
    this.linking = setTimeout(() => {
      const link = toLink(this.whole)
      this.link = link.length <= LONGEST_LINK ? link : "" // rather none than that of another run
      if (location.protocol.startsWith("http")) history.replaceState(null, "", `#${this.link}`)
    }, 150)
  }

  _followLink() {
    if (location.hash.replace(/^#/, "") === this.link) return
    try {
      const state = linked()
      if (state !== null) this.open(state)
    } catch (error) {
      this._problem(error)
    }
  }

  /** Show a state that the notebook around the page has set. */
  _follow(state) {
    try {
      this.put(state)
    } catch (error) {
      this._problem(error)
    }
  }

  _buttons() {
    const on = (id, act) => byId(id).addEventListener("click", act)
    on("undo", () => this.history.undo() && this.show())
    on("redo", () => this.history.redo() && this.show())
    on("compare", () => this.put({ ...this.state, b: this.state.a }))
    on("uncompare", () => this.put({ ...this.state, a: this.state.b, b: null }))
    on("swap", () => this.put({ ...this.state, a: this.state.b, b: this.state.a }))
    on("another", () => {
      const { K } = this.stage.main.classes, { first, sentence } = this.state
      this.put({ ...this.state, first: (first + 1) % K, sentence: sentence + 1 }, "another")
    })
    on("share", () => this._share())
    on("open-page", () => open(`${location.href.split(/[?#]/)[0]}#${toLink(this.whole)}`))
    on("save-page", () => this._savePage())
    byId("save-page").hidden = pageWith === null
    on("show-code", () => this._code())
    on("save-csv", () => save("attention.csv", new Blob([csv(this.stage.main)], { type: "text/csv" })))
    on("save-svg", () => save("attention.svg", new Blob([picture().text], { type: "image/svg+xml" })))
    on("save-png", () => this._save("save-png", "attention.png", png))
    on("save-gif", () => this._save("save-gif", "attention.gif", () => this._gif()))
    on("save-nc", () => this._save("save-nc", "run.nc", () => this.api.netcdf(this.document)))
    byId("save-nc").hidden = !this.api.isThere
    for (const rung of RUNGS) {
      byId(`rung-${rung}`).addEventListener("change", () =>
        this.put({ ...this.state, rungs: RUNGS.filter((of) => byId(`rung-${of}`).checked) }))
    }
    document.addEventListener("keydown", (event) => {
      const typing = event.target.matches("input[type=text], textarea")
      if (!(event.ctrlKey || event.metaKey) || typing) return
      const key = event.key.toLowerCase()
      if (key === "z" && !event.shiftKey) byId("undo").click()
      else if (key === "y" || (key === "z" && event.shiftKey)) byId("redo").click()
      else return
      event.preventDefault()
    })
  }

  async _share() {
    const link = toLink(this.whole)
    if (link.length > LONGEST_LINK) {
      save("playground.json", new Blob([JSON.stringify(this.whole, null, 2)], { type: "application/json" }))
      say(byId("saving"), "Too long for a link: saved as a file, which “Edit the words” loads and attnlab play opens.")
      return
    }
    const here = `${MADE.address ?? location.href.split("#")[0]}#${link}`
    if (MADE.address || isPublic() || pageWith === null) return this._copy(here)
    const dialog = byId("share-dialog")
    const button = (words, act) => h("button", { type: "button", onclick: () => { dialog.close(); act() } }, words)
    dialog.replaceChildren(
      h("h2", { id: "share-title" }, "Share what you see"),
      h("p", {}, "The address of this page works on this machine alone. As one file the page opens anywhere, from a mail or on any host, with the run that you see."),
      h("div", { class: "dialog-row" }, button("Save the page as one file", () => this._savePage()), button("Copy the link all the same", () => this._copy(here)),
        button("Close", () => {})),
    )
    dialog.showModal()
  }

  async _copy(address) {
    try {
      await navigator.clipboard.writeText(address)
      say(byId("share"), "Link copied")
    } catch {
      history.replaceState(null, "", `#${address.split("#")[1]}`)
      say(byId("share"), "It is in the address bar")
    }
    setTimeout(() => say(byId("share"), "Copy link"), 2500)
  }

  _savePage() {
    save("attention.html", new Blob([pageWith(this.whole)], { type: "text/html" }))
    say(byId("saving"), "attention.html is saved: a browser opens it, with this run, on any machine.")
  }

  /** Save what takes a while to make. */
  async _save(id, name, make) {
    byId(id).disabled = true
    say(byId("saving"), "…")
    try {
      save(name, await make())
      say(byId("saving"), `${name} is saved.`)
    } catch (error) {
      say(byId("saving"), error.message)
    } finally {
      byId(id).disabled = false
    }
  }

  async _gif() {
    this.player.pause()
    const { position } = this.player, wish = this.wishes
    try {
      return await gif((fraction) => {
        if (wish !== this.wishes) throw new Error("The run was changed: the animation is given up.")
        this.player.go(fraction * this.player.last)
      }, (done) => say(byId("saving"), `Drawing the animation: ${Math.round(100 * done)}%`))
    } finally {
      if (wish === this.wishes) this.player.go(position)
    }
  }

  async _code() {
    const of = this.document, run = await yaml(of), file = classesFile(of), dialog = byId("code-dialog")
    const block = (title, code) => [h("h3", {}, title), h("pre", { tabindex: 0, role: "region", "aria-label": title }, code)]
    dialog.replaceChildren(
      h("h2", { id: "code-title" }, "The same, without this page"),
      ...block("Command line", command(commandLine(of))), ...block("Python", h("code", {}, python(of))),
      ...block("run.yaml, for attnlab simulate run.yaml", h("code", {}, run)),
      ...(file ? [...block("classes.json", h("code", {}, file)), h("button", { type: "button",
        onclick: () => save("classes.json", new Blob([file], { type: "application/json" })) }, "Save classes.json")] : []),
      h("p", { class: "hint" }, "Without chance (sentences of infinite length, start all alike) the numbers are the same; with it, the seeds of the page and of Python draw different sentences."),
      h("div", { class: "dialog-row end" }, h("button", { type: "button", class: "main", onclick: () => dialog.close() }, "Done")),
    )
    dialog.showModal()
  }
}

/** A command line, broken between words and never at their hyphens. */
const command = (line) => h("code", {}, line.split(/( )/).map((part) => (part === " " ? part : h("span", { class: "word" }, part))))

/** The state of the address, checked; null where it has none. `#x=snap` names an experiment. */
function linked() {
  const name = new URLSearchParams(location.hash.slice(1)).get("x")
  if (name === null) return fromLink(location.hash)
  if (!byName(name)) throw new InputError(`link: no experiment is called ${name}; known: ${EXPERIMENTS.map((of) => of.name).join(", ")}`)
  return makeState(stateOf(byName(name)))
}

document.body.classList.toggle("embedded", new URLSearchParams(location.search).has("embed"))
let state, problem = null
try {
  state = linked() ?? makeState(MADE.start ?? stateOf(EXPERIMENTS[0]))
} catch (error) {
  problem = error
  state = makeState(stateOf(EXPERIMENTS[0]))
}
const page = new Page(new Api(MADE.api), { ...state, moment: 0 })
globalThis.attnlabPage = page // for tests
await page.show()
page._to(state.moment)
if (problem !== null) page._problem(problem)
const plays = state.moment === 0 && !reducedMotion() && byId("problem").hidden
if (!plays) page.tour.offer()
else if (page.wishes === 1) page.player.play()
