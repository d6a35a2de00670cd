"""The playground's response: from a slider to new bars, in a real headless Chromium.

The clock starts when the slider moves (its pause of 15 ms is included) and stops when the frame
with the new bars has been drawn. First the rates, the overlap and the seed of Syn-Small (Fig. 4's
protocol: 100 steps, T = 128, batch 128) after the warm-up, whose programs are compiled; then a
change of shape, which compiles one.

With --opens N, pages with new runs are opened instead, one after the other beside --busy loops, and
those that stay empty are counted. Before every second one a page is closed while it computes. The
runs are of several lengths, so that they end at any moment of the making of a page.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import chromium  # noqa: E402

LENGTHS = (100, 500, 1000, 2000)  # steps
MEASURE = """
([name, index]) => new Promise((done, failed) => {
  const inside = (root, fits) => {
    for (const each of root.querySelectorAll("*")) {
      if (fits(each)) return each
      const found = each.shadowRoot && inside(each.shadowRoot, fits)
      if (found) return found
    }
  }
  const label = inside(document, (e) => e.matches("label") && e.textContent.startsWith(name))
  const slider = label.querySelector("input")
  const bars = inside(document, (e) => e.matches("[data-chart='a 0'] path.distinct"))
  const chart = bars.closest("svg")
  const drawn = () => chart.querySelector("path.distinct").getAttribute("d")
  const before = drawn()
  const late = setTimeout(() => failed(new Error(`${name} at ${index}: no bars`)), 30_000)
  const painted = () => { clearTimeout(late); done(performance.now() - begun) }
  const watch = new MutationObserver(() => {
    if (drawn() === before) return
    watch.disconnect()
    requestAnimationFrame(() => requestAnimationFrame(painted)) // the frame after has been painted
  })
  watch.observe(chart, { attributes: true, childList: true, subtree: true })
  const begun = performance.now()
  slider.value = index
  slider.dispatchEvent(new Event("input"))
})
"""


def measure(page: Any, slider: str, indices: list[int]) -> list[float]:
    """Milliseconds for each position that a slider is moved to."""
    found = []
    for index in indices:
        found.append(page.evaluate(MEASURE, [slider, index]))
        page.wait_for_timeout(700)  # let the prediction arrive before the next turn
    return found


def report(name: str, milliseconds: list[float]) -> None:
    ordered = sorted(milliseconds)
    p95 = ordered[min(round(0.95 * len(ordered)), len(ordered) - 1)]
    print(f"{name:34} median {statistics.median(ordered):6.0f} ms   p95 {p95:6.0f} ms   "
          f"n = {len(ordered)}", flush=True)  # fmt: skip


def address(url: str, **setting: Any) -> str:
    """The page that opens with such a run of Syn-Small."""
    return f"{url}?{urlencode({'s': json.dumps({'a': setting})})}"


def seconds_to_bars(browser: Any, page_address: str, patience: float) -> float | None:
    """How long a new page takes to draw its first bars; nothing when it stays empty."""
    from playwright.sync_api import TimeoutError

    context = browser.new_context()
    page = context.new_page()
    begun = time.perf_counter()
    try:
        page.goto(page_address, timeout=1000 * patience)
        bars = page.locator("[data-chart='a 0'] path.distinct")
        bars.wait_for(state="attached", timeout=1000 * patience)
        return time.perf_counter() - begun
    except TimeoutError:
        return None
    finally:
        context.close()


def close_while_computing(browser: Any, page_address: str, patience: float) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(page_address, timeout=1000 * patience)
    page.get_by_role("heading", level=1).wait_for(timeout=1000 * patience)
    context.close()


def open_many(browser: Any, url: str, opens: int, patience: float) -> None:
    """Open pages whose runs are new, and count those that stay empty."""
    found: dict[bool, list[float | None]] = {False: [], True: []}
    for i in range(opens):
        after_closing = i % 2 == 1
        if after_closing:
            close_while_computing(browser, address(url, seed=2 * i, steps=20_000), patience)
        steps = LENGTHS[i // 2 % len(LENGTHS)]
        taken = seconds_to_bars(browser, address(url, seed=2 * i + 1, steps=steps), patience)
        found[after_closing].append(taken)
        if (i + 1) % 20 == 0:
            print(f"{i + 1} opened", file=sys.stderr, flush=True)
    times = sorted(taken for group in found.values() for taken in group if taken is not None)
    empty = {name: f"{group.count(None)} of {len(group)}" for name, group in found.items()}
    print(f"stayed empty: {empty[False]}, and {empty[True]} after a computing page was closed   "
          f"first bars: median {statistics.median(times):.1f} s, longest {times[-1]:.1f} s",
          flush=True)  # fmt: skip


@contextmanager
def serving(port: int) -> Iterator[str]:
    """The address of a playground in a process of its own."""
    command = ["from attnlab.cli import main; main()", "play", "--no-browser"]
    server = subprocess.Popen([sys.executable, "-c", *command, "--port", str(port)], env=os.environ)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait()


@contextmanager
def busy_loop() -> Iterator[None]:
    """A process that never rests."""
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def move_sliders(browser: Any, url: str, rounds: int, settle: float) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    begun = time.perf_counter()
    page.goto(address(url))  # Syn-Small, 100 steps
    first = page.locator("[data-chart='a 0'] path.distinct")
    first.wait_for(state="attached", timeout=120_000)
    page.get_by_role("slider", name="decoder rate").wait_for()
    print(f"page with its first run: {time.perf_counter() - begun:.1f} s", flush=True)
    page.wait_for_timeout(1000 * settle)
    measure(page, "decoder rate", [6, 7])  # a browser warms up too
    found: dict[str, list[float]] = {}
    for turn in range(rounds):
        # another seed each time, so that no run is one that is kept
        found.setdefault("seed", []).extend(measure(page, "seed", [2 * turn + 1]))
        for name, positions in (
            ("decoder rate", [2, 3, 4, 6, 8]),
            ("attention rate", [3, 4, 6, 7, 5]),
            ("overlap", [3, 4, 5, 6]),
        ):
            found.setdefault(name, []).extend(measure(page, name, positions))
    for name, milliseconds in found.items():
        report(name, milliseconds)
    report("all of these", [each for group in found.values() for each in group])
    report("common tokens (compiles)", measure(page, "common tokens", [3, 2]))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench play", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=5086)
    parser.add_argument("--settle", type=float, default=60.0, help="seconds for the warm-up")
    parser.add_argument("--opens", type=int, help="open so many pages instead")
    parser.add_argument("--busy", type=int, default=0, help="busy loops beside the server")
    parser.add_argument(
        "--patience", type=float, default=120.0, help="seconds after which a page counts as empty"
    )
    options = parser.parse_args(arguments)
    path = chromium.find()
    if path is None:
        sys.exit("bench play: needs Chromium; install it (Debian: apt-get install chromium)")
    with ExitStack() as stack:
        url = stack.enter_context(serving(options.port))
        browser = stack.enter_context(chromium.launched(path))
        if options.opens is None:
            move_sliders(browser, url, options.rounds, options.settle)
            return
        seconds_to_bars(browser, address(url), 10 * options.patience)  # it compiles first
        for _ in range(options.busy):
            stack.enter_context(busy_loop())
        open_many(browser, url, options.opens, options.patience)
