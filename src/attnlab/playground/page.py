"""The page: one person's session. Controls on one side, what happens on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html import escape
from threading import Event
from typing import Any

import panel as pn
from bokeh.document import without_document_lock
from bokeh.models import CustomJS

from attnlab.dynamics import Diverged
from attnlab.files.errors import InputError
from attnlab.playground import code, user_data
from attnlab.playground.frames import ClassFrames, class_title
from attnlab.playground.panel_controls import ControlPanel
from attnlab.playground.prediction import Prediction, predict
from attnlab.playground.presets import PRESETS, guide
from attnlab.playground.run import Cancelled, Run, run
from attnlab.playground.setting import MOST_WRITTEN
from attnlab.playground.stage import SHOWN, Stage
from attnlab.playground.state import State, link
from attnlab.playground.widgets import (
    BROWSER,
    Check,
    Copy,
    Fold,
    Text,
    Upload,
    Weights,
    set_changed,
)

# A session waits for one run at a time, so that it takes one of these threads at most.
POOL = ThreadPoolExecutor(4, thread_name_prefix="playground")
TITLE = "Scan and snap: a playground"
LEAD = (
    "A one-layer transformer learns which token comes next. Watch where its attention goes: it "
    "<em>scans</em> the tokens, turns from common to distinct ones, and then <em>snaps</em> and "
    "freezes."
)
BUSY = (
    '<p class="busy" role="status">computing… (what is new is compiled first, for some seconds)</p>'
)
# ms before one is told to wait (words that come and go move the page), and before a run is given
# up for a newer wish (quick ones are shown while a slider moves)
PATIENCE = 400
DRAWING = 150  # ms in which the browser has the processor to draw a run, before theory takes it
TOO_LONG = (
    "These classes are too long for a link: to share this, share their file, and load it there. "
    "The command line under “Show code” writes the run to a file."
)
FREE = "Turn the controls, then play."
FOLDED = ("Data", "Training", "Model")
ROLES = {True: "common", False: "distinct"}
STYLE = (BROWSER / "page.css").read_text(encoding="utf-8")
OPEN_ANEW = (BROWSER / "open_anew.js").read_text(encoding="utf-8")


class Page:
    """A page in a given state. `document` is the Bokeh document of a served page; without one (in
    a notebook) runs are computed while one waits."""

    def __init__(self, state: State, *, document: Any = None, problem: str = "") -> None:
        self.state = state
        self.document = document
        self.stage = Stage()
        self.controls = ControlPanel(self._turn, self._compare)
        self._asked = document is None  # by the browser, once it has drawn the page
        self._unasked: list[Callable[[], None]] = []  # changes that wait for that
        self._gone = False
        self._wanted: State | None = None
        self._computing: State | None = None
        self._stop = Event()  # of what is computed
        self._shown: State | None = None
        self._showing = False
        self._make_widgets()
        self.layout = self._lay_out()
        self._reflect()
        if problem:
            self.message.html = _problem(problem)
        if document is not None:
            pn.state.onload(self._answer)
            document.on_event("connection_lost", lambda event: self._leave())
            document.on_session_destroyed(lambda context: self._leave())
            document.js_on_event("connection_lost", CustomJS(code=OPEN_ANEW))
        self._start(keep_message=bool(problem))

    # -- what its browser does ------------------------------------------------------------------

    def _answer(self) -> None:
        """The page is drawn, and asks for what has changed since it was made."""
        self._asked = True
        unasked, self._unasked = self._unasked, []
        for change in unasked:
            change()

    def _leave(self) -> None:
        """The page is closed: nothing more is computed for it, or shown on it."""
        self._gone = True
        self._stop.set()

    def _change(self, change: Callable[[], None]) -> None:
        """Change the page, once it has asked. Panel throws away what changes before (its `hold`):
        it takes the browser to fetch the page later, but that may have fetched it already."""
        if self._gone:
            return
        if self._asked:
            change()
        else:
            self._unasked.append(change)

    # -- what a person does ---------------------------------------------------------------------

    def _turn(self, name: str, value: Any) -> None:
        self._try(lambda: self.state.with_setting(self.state.a.turned(name, value)))

    def _compare(self, name: str, value: Any) -> None:
        if not name:
            self._try(lambda: replace(self.state, b=None, compare=""))
        else:
            alone = replace(self.state, b=None, compare="")
            self._try(lambda: alone.with_change(name, value))

    def _look(self, **changed: Any) -> None:
        if not self._showing:
            self._try(lambda: replace(self.state, view=replace(self.state.view, **changed)))

    def _begin(self, name: str) -> None:
        if not self._showing and name:
            self._try(lambda: PRESETS[name].state)

    def _load(self, message: dict[str, Any]) -> None:
        self._own(lambda: user_data.from_file(str(message["name"]), str(message["text"])), first=0)

    def _edit(self, message: dict[str, Any]) -> None:
        classes = self.state.a.sequence_classes
        token = int(classes.in_play[int(message["row"])])
        self._own(
            lambda: user_data.written(
                user_data.with_probability(
                    classes, sequence_class=int(message["column"]), token=token,
                    probability=float(message["weight"]),
                )
            )
        )  # fmt: skip

    def _own(self, make: Callable[[], str], **look: Any) -> None:
        def changed() -> State:
            free = replace(self.state, view=replace(self.state.view, guide="", **look))
            return free.with_setting(replace(self.state.a, written=make()))

        self._try(changed)

    # -- from a wish to a picture ---------------------------------------------------------------

    def _try(self, make: Callable[[], State]) -> None:
        """Go to another state, or say why that cannot be and stay."""
        self._change(lambda: self._go(make))

    def _go(self, make: Callable[[], State]) -> None:
        try:
            self.state = make()
        except InputError as error:
            self.message.html = _problem(str(error))
            self._reflect()
            return
        self._start()
        self._reflect()  # while it is computed

    def _start(self, keep_message: bool = False) -> None:
        """Compute the state's runs; while one computation is under way only the last wish waits."""
        if not keep_message:
            self.message.html = ""
        self._wanted = self.state
        if self._computing is None:
            self._next()
        stop = self._stop
        self._later(PATIENCE, lambda: self._hurry(stop))

    def _hurry(self, stop: Event) -> None:
        """Say that it takes long, and give up what has been computed for so long in vain."""
        if self._computing is None:
            return
        if not self.message.html:
            self.message.html = BUSY
        wanted = self._wanted
        if wanted is not None and replace(wanted, view=self._computing.view) != self._computing:
            stop.set()

    def _next(self) -> None:
        state, self._wanted = self._wanted, None
        self._computing = state
        if state is not None:
            stop = self._stop = Event()
            self._do(lambda: _runs(state, stop), lambda runs: self._show(state, runs))

    def _show(self, state: State, runs: dict[str, Run]) -> None:
        self._shown, self._computing = state, None
        self.stage.show(runs["a"], runs.get("b"), state.view)
        self._show_texts(state)
        if self.message.html == BUSY:
            self.message.html = ""
        if self._wanted is not None:
            self._next()
        elif state.view.theory:
            self._later(DRAWING, lambda: self._predict(state, runs))

    def _predict(self, state: State, runs: dict[str, Run]) -> None:
        if self._shown is state and self._computing is None:
            self._do(
                lambda: {name: predict(of.setting) for name, of in runs.items()},
                lambda found: self._overlay(state, found),
            )

    def _overlay(self, state: State, found: dict[str, Prediction]) -> None:
        if self._shown is state:  # else it is too late
            self.stage.predict(found)

    def _later(self, milliseconds: int, work: Callable[[], None]) -> None:
        """Call after a while; in a notebook, now."""
        if self.document is None:
            work()
        else:
            self.document.add_timeout_callback(lambda: self._change(work), milliseconds)

    def _do(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Work in a thread, then back on the page; an error is shown here and nowhere else."""

        def attempt() -> Callable[[], None]:
            try:
                done = work()
            except Cancelled:
                return self._next
            except (InputError, Diverged) as error:
                words = str(error)
                return lambda: self._fail(words)
            except Exception as error:  # a fault of ours: say so, and leave the page in use
                words = f"{type(error).__name__}: {error}. This is a fault of attnlab; report it."
                return lambda: self._fail(words)
            return lambda: then(done)

        if self.document is None:
            attempt()()
            return
        document = self.document
        attempted = POOL.submit(attempt)

        @without_document_lock
        async def wait() -> None:
            after = await asyncio.wrap_future(attempted)
            if not self._gone:  # there would be no document
                document.add_next_tick_callback(
                    lambda: self._change(lambda: _together(document, after))
                )

        # Not from the thread itself, which would race with the making of the session.
        document.add_next_tick_callback(wait)

    def _fail(self, words: str) -> None:
        self.message.html = _problem(words)
        self._next()

    # -- what is around the charts --------------------------------------------------------------

    def _make_widgets(self) -> None:
        self.preset = pn.widgets.Select(
            label="Start from",
            options={"your own settings": "", **{p.title: p.name for p in PRESETS.values()}},
            sizing_mode="stretch_width",
            margin=(0, 0, 6, 0),
        )
        self.preset.param.watch(lambda event: self._begin(event.new), "value")
        self.theory = Check(label="show what the theory predicts")
        self.theory.param.watch(lambda event: self._look(theory=event.new), "value")
        self.first = pn.widgets.Select(label="classes shown, from", width=280)
        self.first.param.watch(lambda event: self._look(first=event.new), "value")
        self.head = pn.widgets.Select(label="head shown", width=120)
        self.head.param.watch(lambda event: self._look(head=event.new), "value")
        self.guide, self.message = Text(), Text()
        self.tokens = Fold(title="Tokens of the first class shown")
        self.code, self.downloads = Fold(title="Show code"), Text(visible=False)
        self.link = Copy(label="Copy link", visible=False)
        self.upload = Upload(
            label="Load a YAML or JSON file of classes", most=MOST_WRITTEN,
            on_message=self._load,
        )  # fmt: skip
        self.weights = Weights(on_message=self._edit)
        self.weights_note = Text()

    def _lay_out(self) -> Any:
        controls = self.controls
        sidebar = _grid(
            "sidebar",
            Text(html="<h2>Experiment</h2>"),
            self.preset,
            *controls.group("Main"),
            Text(html="<h2>Compare</h2>"),
            controls.which,
            controls.value,
            Text(html="<h2>More</h2>"),
            *(Fold(title=name, parts=controls.group(name)) for name in FOLDED),
            Fold(title="Your own classes", parts=[self.upload, self.weights_note, self.weights]),
        )
        content = _grid(
            "content",
            self.guide,
            self.message,
            _grid("row", self.theory, self.first, self.head),
            self.stage,
            self.tokens,
            self.code,
            _grid("row", self.link, self.downloads),
        )
        return _grid("page", Text(html=f"<h1>{TITLE}</h1><p class='lead'>{LEAD}</p>"),
                    _grid("columns", sidebar, content))  # fmt: skip

    def _reflect(self) -> None:
        """Put all widgets where the state is."""
        state = self.state
        classes = state.a.sequence_classes
        self._showing = True
        try:
            self.controls.show(state)
            self.preset.value = state.view.guide if guide(state) else ""
            self.theory.value = state.view.theory
            shown = SHOWN["b"] if state.b is not None else SHOWN["a"]
            starts = [*range(0, max(len(classes) - shown, 0), shown), max(len(classes) - shown, 0)]
            options = {class_title(classes, k): k for k in starts}
            set_changed(self.first, options=options, visible=len(classes) > shown)
            self.first.value = state.view.first if state.view.first in starts else 0
            set_changed(self.head, options={f"head {h}": h for h in range(state.a.heads)})
            set_changed(
                self.head, value=min(state.view.head, state.a.heads - 1), visible=state.a.heads > 1
            )
        finally:
            self._showing = False
        preset = guide(state)
        title, look = (preset.title, preset.look) if preset else ("Your own settings", FREE)
        self.guide.html = f"<h2>{escape(title)}</h2><p>{escape(look)}</p>"
        self._reflect_weights()

    def _reflect_weights(self) -> None:
        classes = self.state.a.sequence_classes
        fits = user_data.editable(classes)
        self.weights.visible = fits
        self.weights_note.html = (
            "<p>P(token | class). Change one; the others of its class make room.</p>"
            if fits
            else "<p>Too many probabilities to edit here; load a file.</p>"
        )
        if fits:
            set_changed(
                self.weights,
                tokens=[classes.token_name(int(token)) for token in classes.in_play],
                classes=[f"class {k}" for k in range(len(classes))],
                weights=user_data.columns(classes),
            )

    def _show_texts(self, state: State) -> None:
        self.tokens.html = _token_table(self.stage.first)
        setting, query = state.a, link(state)
        note = ""
        if setting.written is not None:
            note = (
                f"<p>where {code.FILE} is</p>{_pre(code.classes_file(setting))}"
                if query
                else f"<p>where {code.FILE} is the file of these classes</p>"
            )
        self.code.html = (
            f"<h3>Python</h3>{_pre(code.python(setting))}"
            f"<h3>Command line</h3>{_pre(code.command_line(setting))}{note}"
        )
        served = self.document is not None
        self.link.visible, self.downloads.visible = served and bool(query), served
        self.link.text = f"?{query}" if query else ""
        if served and pn.state.location is not None:
            pn.state.location.search = self.link.text
        if not query:
            self.downloads.html = f"<p>{TOO_LONG}</p>"
            return
        files = (("run.nc", "data (netCDF)"), ("run.csv", "data (CSV)"), ("run.png", "picture"))
        links = (
            f'<a href="download/{name}?{escape(query)}" download="{name}">{text}</a>'
            for name, text in files
        )
        self.downloads.html = f"<p>Download run A: {' · '.join(links)}</p>"


def _runs(state: State, stop: Event) -> dict[str, Run]:
    runs = {"a": run(state.a, stop=stop)}
    if state.b is not None:
        runs["b"] = run(state.b, stop=stop)
    return runs


def _together(document: Any, change: Callable[[], None]) -> None:
    """Send all that a change touches to the browser as one message."""
    from panel.io import hold

    with hold(document):
        change()


def _grid(name: str, *parts: Any) -> Any:
    """Parts laid out by the class `name` of page.css."""
    return pn.Column(
        *parts, css_classes=[name], stylesheets=[STYLE], sizing_mode="stretch_width", margin=0
    )


def _problem(words: str) -> str:
    return f'<p class="problem" role="alert">{escape(words)}</p>'


def _pre(text: str) -> str:
    return f'<pre tabindex="0">{escape(text)}</pre>'


def _token_table(of: ClassFrames) -> str:
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("token", "role", "P(l|n)", "the theory claims", "by the end")
    )
    columns = (of.facts[name] for name in ("token", "common", "probability", "claimed", "actual"))
    rows = "".join(
        f'<tr><th scope="row">{escape(token)}</th><td>{ROLES[common]}</td><td>{p:.4f}</td>'
        f"<td>{claimed}</td><td>{actual}</td></tr>"
        for token, common, p, claimed, actual in zip(*columns, strict=True)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    note = f"<p>{of.note}</p>" if of.note else ""
    return f'{note}<div class="scroll" tabindex="0">{table}</div>'
