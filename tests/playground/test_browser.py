"""The page in a real browser: it shows the simulator's own numbers, and stays in order."""

from __future__ import annotations

import asyncio
import http.client
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import chromium
import numpy as np
import pytest

from attnlab import load, simulate
from attnlab.data.class_files import format_classes
from attnlab.playground import run as run_module
from attnlab.playground import story
from attnlab.playground.frames import class_title
from attnlab.playground.run import run
from attnlab.playground.setting import MOST_WRITTEN, Setting
from attnlab.playground.state import State, to_query

PATH = chromium.find()
pytestmark = pytest.mark.skipif(PATH is None, reason="no Chromium here: apt-get install chromium")
pytest.importorskip("playwright", reason="no Playwright here: pip install playwright")
pytest.importorskip("panel", reason="no Panel here: pip install 'attnlab[play]'")

START = State(Setting(steps=50))  # one shape for all tests, hence one compilation
WORDS = """\
vocabulary: [the, of, votes, year, was, born, elected]
classes:
  - {query: was, next: born, probs: {the: 0.5, year: 0.5}}
  - {query: was, next: elected, probs: {the: 0.25, of: 0.25, votes: 0.5}}
"""
PATIENCE = 300_000  # ms: a busy machine compiles slowly


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The playground, served from a thread of this process."""
    from attnlab.playground import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    up = threading.Event()
    servers: list[Any] = []

    def work() -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        servers.append(serve.server(port=chosen))
        servers[0].start()
        up.set()
        servers[0].io_loop.start()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert up.wait(PATIENCE / 1000)
    yield chosen
    servers[0].io_loop.add_callback(servers[0].io_loop.stop)
    thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.launched(str(PATH)) as running:
        yield running


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Make pages that share nothing with those of other tests."""
    contexts: list[Any] = []

    def made(width: int = 1280) -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}))
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE)
        return page

    yield made
    for context in contexts:
        context.close()


@pytest.fixture
def open_page(new_page: Callable[..., Any], port: int) -> Callable[..., Any]:
    """Open a page in a state and wait for its first bars."""

    def opened(query: str = to_query(START)) -> Any:
        page = new_page()
        page.goto(address(port, query))
        ready(page)
        return page

    return opened


@pytest.fixture
def page(open_page: Callable[..., Any]) -> Any:
    """A page in the state START."""
    return open_page()


def address(port: int, query: str) -> str:
    return f"http://127.0.0.1:{port}/?{query}"


def ready(page: Any) -> None:
    chart(page, "a 0").locator("path.distinct").wait_for(state="attached")
    page.get_by_role("button", name="play").wait_for()


def chart(page: Any, name: str) -> Any:
    return page.locator(f"[data-chart='{name}']")


DRAWN = """
(figure) => {
  const place = (line) => Number(line.getAttribute("d").match(/^M[\\d.-]+ ([\\d.-]+)/)[1])
  const label = (text) => Number(text.textContent)
  const texts = [...figure.querySelectorAll("text.right[x]")] // those of the axes
  const grid = [...figure.querySelectorAll("path.grid")].map(place)
  const zero = grid[0]
  const unit = (grid[1] - zero) / (label(texts[1]) - label(texts[0]))
  const bars = ["common", "distinct"].flatMap((kind) =>
    [...figure.querySelector(`path.${kind}`).getAttribute("d").matchAll(
      /M[\\d.-]+ ([\\d.-]+)V([\\d.-]+)/g)])
  return bars.filter((bar) => Math.abs(Number(bar[1]) - zero) < 1)
    .map((bar) => (Number(bar[2]) - zero) / unit)
}
"""
FINE = 2e-3  # of the axis: a fraction of a pixel


def expect_bars(page: Any, name: str, wanted: np.ndarray) -> None:
    """Wait for bars that are drawn to these heights, as read off the axis beside them."""
    drawn = np.array([])
    deadline = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < deadline:
        if chart(page, name).count():
            drawn = np.array(chart(page, name).evaluate(DRAWN))
        if drawn.shape == wanted.shape and np.abs(drawn - wanted).max() < FINE * wanted.max():
            return
        page.wait_for_timeout(50)
    np.testing.assert_allclose(drawn, wanted, atol=FINE * wanted.max())


@lru_cache
def attention(setting: Setting) -> Any:
    """What `simulate` itself gives."""
    result = simulate(
        setting.sequence_classes, setting.engine, **setting.arguments(), progress=False
    )
    return result["attention"].isel(seed=0)


def heights(setting: Setting, *, sequence_class: int, frame: int = -1) -> np.ndarray:
    """The attention on the support of a class."""
    of_class = attention(setting).isel(sequence_class=sequence_class)
    shown: np.ndarray = of_class.values[frame, setting.sequence_classes.support(sequence_class)]
    return shown


def turn(page: Any, slider: str, *keys: str) -> None:
    page.get_by_role("slider", name=slider, exact=True).focus()
    for key in keys:
        page.keyboard.press(key)


def seeded(seed: int) -> State:
    return State(START.a.turned("seed", seed))


def wait_for(page: Any, condition: Callable[[], bool]) -> None:
    """Wait for something that no page shows, while its messages come and go."""
    deadline = time.monotonic() + PATIENCE / 1000
    while not condition():
        assert time.monotonic() < deadline
        page.wait_for_timeout(20)


def test_a_slider_moves_the_bars_to_the_simulators_numbers(page: Any) -> None:
    expect_bars(page, "a 0", heights(START.a, sequence_class=0))
    turn(page, "decoder rate η_Y", "ArrowRight")
    moved = START.a.turned("eta_y", 2.0)
    expect_bars(page, "a 0", heights(moved, sequence_class=0))
    expect_bars(page, "a 1", heights(moved, sequence_class=1))
    page.wait_for_url("**eta_y**")


SENT = """
window.sent = []
const send = WebSocket.prototype.send
WebSocket.prototype.send = function (data) {
  window.sent.push(String(data))
  send.call(this, data)
}
"""


def test_playing_and_scrubbing_stay_in_the_browser(new_page: Callable[..., Any], port: int) -> None:
    told = story.tell(run(START.a).result, START.a.sequence_classes, first=0)
    page = new_page()
    page.add_init_script(SENT)
    page.goto(address(port, to_query(START)))
    page.get_by_text("Theorem 4: scanning ends").wait_for()  # the theory, which comes last
    page.evaluate("window.sent.length = 0")
    turn(page, "time", "Home", "ArrowRight", "ArrowRight", "ArrowRight")
    expect_bars(page, "a 1", heights(START.a, sequence_class=1, frame=3))
    assert page.locator("p.story").first.inner_text() == told[3]
    page.get_by_label("speed, frames a second").select_option("40")
    page.get_by_role("button", name="play").click()
    page.get_by_role("button", name="play").wait_for()  # it stops at the end
    expect_bars(page, "a 1", heights(START.a, sequence_class=1))
    page.get_by_role("button", name="one frame back").click()
    expect_bars(page, "a 1", heights(START.a, sequence_class=1, frame=-2))
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("End")
    page.keyboard.press(" ")  # plays from wherever the focus is of no use
    expect_bars(page, "a 1", heights(START.a, sequence_class=1))
    assert page.evaluate("window.sent") == [], "the server was told about frames"


def test_two_runs_side_by_side(page: Any) -> None:
    page.get_by_label("In B, change").select_option("attention rate η_Z")
    turn(page, "attention rate η_Z, in B", "End")
    other = START.a.turned("eta_z", 50.0)
    expect_bars(page, "b 0", heights(other, sequence_class=0))
    expect_bars(page, "a 0", heights(START.a, sequence_class=0))
    assert page.locator("p.story.other").inner_text().startswith("B: ")
    page.get_by_label("In B, change").select_option("nothing: one run")
    page.locator("p.story.other").wait_for(state="hidden")


def test_a_link_opens_the_same_page(page: Any, open_page: Callable[..., Any]) -> None:
    turn(page, "seed", "ArrowRight", "ArrowRight")
    wanted = heights(seeded(2).a, sequence_class=0)
    expect_bars(page, "a 0", wanted)
    page.wait_for_url("**seed%22%3A2%7D**")
    second = open_page(page.url.partition("?")[2])
    expect_bars(second, "a 0", wanted)
    assert second.url == page.url


def test_errors_stay_in_their_session_and_leave_it_in_use(
    page: Any, open_page: Callable[..., Any]
) -> None:
    second = open_page()
    second.get_by_text("Your own classes").click()
    bad = {"name": "bad.yaml", "mimeType": "text/yaml", "buffer": b"!!python/object:os.system {}"}
    second.set_input_files("input[type=file]", files=bad)
    second.get_by_role("alert").filter(has_text="bad.yaml").wait_for()
    large = {**bad, "name": "large.yaml", "buffer": b"x" * (MOST_WRITTEN + 1)}
    second.set_input_files("input[type=file]", files=large)
    second.get_by_role("alert").filter(has_text="takes up to").wait_for()
    # nothing of that reaches another
    turn(page, "seed", "ArrowRight")
    expect_bars(page, "a 0", heights(seeded(1).a, sequence_class=0))
    assert page.get_by_role("alert").count() == 0
    # and that page is in use
    words = {**bad, "name": "words.yaml", "buffer": WORDS.encode()}
    second.set_input_files("input[type=file]", files=words)
    second.get_by_text("class 1: query was → next elected").wait_for()
    second.get_by_label("weight of token of in class 1").fill("0.5")
    second.keyboard.press("Enter")
    # which shows under the pointer: of is the second of three tokens
    chart(second, "a 1").locator("svg").hover(position={"x": 250, "y": 80})
    tip = chart(second, "a 1").locator(".tip").filter(has_text="P(l|n) 0.5000")
    tip.filter(has_text="token of (distinct)").filter(has_text="by the end it").wait_for()


def test_the_classes_of_a_text_are_loaded_and_looked_through_without_a_link(page: Any) -> None:
    from attnlab.text import estimate_classes, open_corpus

    classes = estimate_classes(open_corpus("builtin"))
    text = format_classes(classes, suffix=".yaml")
    page.get_by_text("Your own classes").click()
    file = {"name": "classes.yaml", "mimeType": "text/yaml", "buffer": text.encode()}
    page.set_input_files("input[type=file]", files=file)
    note = f"24 of {classes.support(0).size} tokens, the most attended"
    chart(page, "a 0").get_by_text(note).wait_for()
    assert chart(page, "a 0").locator("svg").get_by_text("the", exact=True).is_visible()
    page.get_by_text("too long for a link").wait_for()
    page.get_by_role("button", name="Copy link").wait_for(state="hidden")
    assert page.url.partition("?")[2] == ""
    page.get_by_label("classes shown, from").select_option(class_title(classes, 16))
    chart(page, "a 3").get_by_text(class_title(classes, 19)).wait_for()
    page.get_by_label("Start from").select_option("Fig. 4: SGD on Syn-Small")
    page.get_by_role("button", name="Copy link").wait_for()
    page.wait_for_url("**fig4**")


def test_the_link_is_copied(page: Any) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_a_link_out_of_bounds_is_refused_on_a_page_that_fits_a_telephone_and_works_offline(
    new_page: Callable[..., Any], port: int
) -> None:
    page = new_page(width=375)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address(port, "s=%7B%22a%22%3A%7B%22steps%22%3A1e9%7D%7D"))
    ready(page)
    page.get_by_role("alert").filter(has_text="steps: expected from 1 to 20000").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    play = page.get_by_role("button", name="play")
    play.scroll_into_view_if_needed()
    box = play.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 375
    here = (f"http://127.0.0.1:{port}/", "blob:", "data:")
    assert [url for url in requests if not url.startswith(here)] == []


class Wire:
    """What a page and its server say to each other; `hold` keeps what the page says from when it
    has fetched its document, until `release`."""

    def __init__(self, page: Any, *, hold: bool = False) -> None:
        self.kept: list[str] = []
        self.fetched = threading.Event()
        self._hold, self._holds = hold, False
        page.route_web_socket("**/ws?*", self._connect)

    def _connect(self, end: Any) -> None:
        self.page_end, self.server_end = end, end.connect_to_server()
        self.page_end.on_message(self._up)
        self.server_end.on_message(self._down)

    def _up(self, message: Any) -> None:
        if self._holds:
            self.kept.append(str(message))
        else:
            self.server_end.send(message)

    def _down(self, message: Any) -> None:
        if "PULL-DOC-REPLY" in str(message):
            self._holds = self._hold
            self.fetched.set()
        self.page_end.send(message)

    def release(self) -> None:
        self._holds = False
        for message in self.kept:
            self.server_end.send(message)

    def cut(self) -> None:
        self.server_end.close()
        self.page_end.close()


def test_a_run_that_ends_before_the_page_is_drawn_is_not_missed(
    new_page: Callable[..., Any], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Panel throws away what changes between the browser's fetching of the document and the news
    that it is drawn; here the run ends just then, and a while passes before the news arrives."""
    page = new_page()
    wire = Wire(page, hold=True)
    ended = threading.Event()

    def timely(*data: Any, **arguments: Any) -> Any:
        assert wire.fetched.wait(PATIENCE / 1000)
        result = simulate(*data, **arguments)
        ended.set()
        return result

    monkeypatch.setattr(run_module, "simulate", timely)
    page.goto(address(port, to_query(seeded(3))))
    wait_for(page, lambda: ended.is_set() and any("document_ready" in each for each in wire.kept))
    for _ in range(20):  # the server has gone round often enough to take the run
        assert get(port, "/favicon.ico")[0] == 200
    wire.release()
    ready(page)
    expect_bars(page, "a 0", heights(seeded(3).a, sequence_class=0))
    page.get_by_role("button", name="Copy link").wait_for()  # what is around the charts came too


def test_pages_that_are_opened_at_once_all_show_their_runs(
    new_page: Callable[..., Any], port: int
) -> None:
    pages = {seed: new_page() for seed in (4, 5, 6)}
    for seed, page in pages.items():
        page.goto(address(port, to_query(seeded(seed))), wait_until="commit")
    for seed, page in pages.items():
        expect_bars(page, "a 0", heights(seeded(seed).a, sequence_class=0))


def test_a_page_whose_connection_was_cut_opens_anew_where_it_was(
    new_page: Callable[..., Any], port: int
) -> None:
    page = new_page()
    wire = Wire(page)
    page.goto(address(port, to_query(START)))
    ready(page)
    turn(page, "seed", "ArrowRight")
    page.wait_for_url("**seed%22%3A1%7D**")
    with page.expect_navigation():
        wire.cut()
    expect_bars(page, "a 0", heights(seeded(1).a, sequence_class=0))
    turn(page, "seed", "ArrowRight")
    expect_bars(page, "a 0", heights(seeded(2).a, sequence_class=0))


def test_a_heavy_run_holds_up_nobody_else_and_ends_when_its_page_is_closed(
    page: Any, new_page: Callable[..., Any], port: int, endless: Any
) -> None:
    heavy = new_page()
    heavy.goto(address(port, to_query(seeded(endless.seed))))
    heavy.get_by_text("computing…").wait_for()
    turn(page, "seed", "ArrowRight")
    expect_bars(page, "a 0", heights(seeded(1).a, sequence_class=0))
    assert heavy.get_by_text("computing…").is_visible()
    assert endless.begun.is_set() and not endless.ended.is_set()
    heavy.close()
    assert endless.ended.wait(PATIENCE / 1000)


def test_a_run_is_given_up_for_a_newer_wish(
    new_page: Callable[..., Any], port: int, endless: Any
) -> None:
    page = new_page()
    page.goto(address(port, to_query(seeded(endless.seed))))
    page.get_by_text("computing…").wait_for()
    turn(page, "seed", "Home")
    expect_bars(page, "a 0", heights(START.a, sequence_class=0))
    assert endless.ended.is_set()
    page.get_by_text("computing…").wait_for(state="detached")


CONTROLS = """
() => {
  const problems = [], ids = new Set(), levels = []
  const name = (e) => (e.getAttribute("aria-label") || e.getAttribute("title")
    || [...(e.labels ?? [])].map((label) => label.textContent).join(" ")
    || (e.matches("button, summary, a") ? e.textContent : "")).trim()
  const walk = (root) => {
    for (const e of root.querySelectorAll("*")) {
      if (e.matches("input, select, textarea, button, summary, a[href]") && !name(e))
        problems.push(`no name: ${e.outerHTML.slice(0, 120)}`)
      if (e.matches("img") && !e.hasAttribute("alt")) problems.push("no alt")
      if (Number(e.getAttribute("tabindex") ?? 0) > 0) problems.push("tabindex")
      if (e.matches("h1, h2, h3, h4")) levels.push(Number(e.tagName[1]))
      if (e.id && root === document) {
        if (ids.has(e.id)) problems.push(`twice: ${e.id}`)
        ids.add(e.id)
      }
      if (e.shadowRoot) walk(e.shadowRoot)
    }
  }
  walk(document)
  if (!document.documentElement.lang) problems.push("no lang")
  if (!document.title) problems.push("no title")
  if (levels.filter((level) => level === 1).length !== 1) problems.push("not one h1")
  levels.forEach((level, i) => {
    if (i && level > levels[i - 1] + 1) problems.push(`h${level} after h${levels[i - 1]}`)
  })
  return problems
}
"""
CONTRAST = """
() => {
  const rgba = (text) => text.match(/[\\d.]+/g).map(Number)
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0)
  const ground = (e) => {
    for (let at = e; at; at = at.parentElement ?? at.getRootNode().host) {
      const colour = rgba(getComputedStyle(at).backgroundColor)
      if ((colour[3] ?? 1) > 0) return colour
    }
    return [255, 255, 255]
  }
  const poor = []
  const walk = (root) => {
    for (const e of root.querySelectorAll("*")) {
      const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())
      if (own && e.checkVisibility() && !e.matches("style, script, :disabled, option")) {
        const [a, b] = [light(rgba(getComputedStyle(e).color)), light(ground(e))]
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
        if (ratio < 4.5) poor.push(`${ratio.toFixed(2)}: ${e.outerHTML.slice(0, 100)}`)
      }
      if (e.shadowRoot) walk(e.shadowRoot)
    }
  }
  walk(document)
  return poor
}
"""


def test_controls_have_names_text_has_contrast_and_headings_their_order(page: Any) -> None:
    assert page.evaluate(CONTROLS) == []
    assert page.evaluate(CONTRAST) == []


def test_the_keyboard_reaches_the_controls_and_shows_where_it_is(page: Any) -> None:
    focused = """() => {
      let e = document.activeElement
      while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement
      return [e.getAttribute("aria-label") ?? e.labels?.[0]?.textContent ?? e.textContent,
              getComputedStyle(e).outlineStyle]
    }"""
    page.mouse.click(1, 1)  # so that the next Tab starts at the top
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(focused)
        seen.append(name)
        if name == "play":
            assert outline != "none"
            break
    assert "play" in seen
    assert any("decoder rate" in name for name in seen)


def get(port: int, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE / 1000)
    connection.request("GET", path, headers=headers or {})
    answer = connection.getresponse()
    status = answer.status
    content = b"" if status == 101 else answer.read()
    connection.close()
    return status, content


def test_downloads_are_the_run_on_the_screen(port: int, tmp_path: Path) -> None:
    import pandas

    query = to_query(START)
    status, content = get(port, f"/download/run.nc?{query}")
    (tmp_path / "run.nc").write_bytes(content)
    assert status == 200
    assert load(tmp_path / "run.nc")["attention"].equals(run(START.a).result["attention"])
    _, content = get(port, f"/download/run.csv?{query}")
    assert len(pandas.read_csv(io.BytesIO(content))) == run(START.a).moments.size * 40
    _, content = get(port, f"/download/run.png?{query}")
    assert content.startswith(b"\x89PNG")
    status, content = get(port, "/download/run.nc?s=%7B%22a%22%3A%7B%22steps%22%3A1e9%7D%7D")
    assert (status, content.startswith(b"link: steps")) == (400, True)
    assert get(port, f"/download/other.nc?{query}")[0] == 404


def test_only_its_own_pages_may_open_a_websocket(port: int) -> None:
    headers = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": "bokeh, token",
    }  # fmt: skip
    refused, _ = get(port, "/ws", {**headers, "Origin": "http://evil.example"})
    assert refused == 403
    own, _ = get(port, "/ws", {**headers, "Origin": f"http://127.0.0.1:{port}"})
    assert own != 403
