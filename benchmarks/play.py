"""The playground in a real headless Chromium: first paint, first bars, from a slider to new bars.

The page is served by `attnlab play` on loopback and opened cold (a new browser context, nothing
cached). It plays: the time between frames, and how long it draws in each. Then sliders of Syn-Small
(100 steps, T = 128, batch 128: Fig. 4's protocol) are moved; the clock starts when the slider moves
and stops when the frame with the new bars has been painted.

With --opens N, pages are opened and closed instead, beside --busy loops, every second one while a
run of the API is under way; counted are pages without bars, and the server's memory.

With --pictures FOLDER, the pictures that docs/playground.md shows are taken.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import chromium  # noqa: E402

DOCUMENT: dict[str, Any] = {
    "task": {"name": "sequences", "classes": "family", "length": 128},
    "gradient": {"name": "batches", "size": 128},
    "eta_y": 1,
    "eta_z": 1,
    "init": "zero",
    "motion": {"name": "steps", "steps": 100, "optimizer": {"name": "sgd", "momentum": 0.9}},
    "seeds": [0],
    "record": {"geometric": 100},
}
SLIDERS = {"eta_y": range(2, 9), "eta_z": range(2, 9), "common_mass": range(1, 8), "seed": range(9)}
MEASURE = """
([name, index]) => new Promise((done, failed) => {
  const slider = document.getElementById(`control-${name}`)
  const live = document.getElementById("live")
  const late = setTimeout(() => failed(new Error(`${name} at ${index}: no bars`)), 30_000)
  const watch = new MutationObserver(() => {
    watch.disconnect()
    requestAnimationFrame(() => requestAnimationFrame(() => {
      clearTimeout(late)
      done(performance.now() - begun)
    }))
  })
  watch.observe(live, { attributes: true, attributeFilter: ["data-drawn"] })
  const begun = performance.now()
  slider.value = index
  slider.dispatchEvent(new Event("input"))
})
"""
PAINTS = """
() => Object.fromEntries(performance.getEntriesByType("paint").map((of) => [of.name, of.startTime]))
"""
BARS = """
() => new Promise((done) => {
  const live = document.getElementById("live")
  const there = () => live.dataset.drawn !== undefined
  if (there()) return done(performance.now())
  new MutationObserver(() => there() && done(performance.now())).observe(live, { attributes: true })
})
"""
FRAMES = """
() => new Promise((done) => {
  const { player } = attnlabPage, { draw } = player, frames = [], drawing = []
  player.draw = (position) => {
    const begun = performance.now()
    draw(position)
    drawing.push(performance.now() - begun)
  }
  let before
  const next = (now) => {
    if (before !== undefined) frames.push(now - before)
    before = now
    if (player.playing) requestAnimationFrame(next)
    else done({ frames, drawing })
  }
  player.go(0)
  player.play()
  requestAnimationFrame(next)
})
"""


def report(name: str, milliseconds: list[float]) -> None:
    ordered = sorted(milliseconds)
    p95 = ordered[min(round(0.95 * len(ordered)), len(ordered) - 1)]
    print(
        f"{name:34} median {statistics.median(ordered):6.1f} ms   p95 {p95:6.1f} ms   "
        f"n = {len(ordered)}",
        flush=True,
    )


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """`attnlab play` on a free port: its address and its process."""
    entry = ["-c", "from attnlab.cli import main; main()"]
    command = [sys.executable, *entry, "play", "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://\S+/", line):
                yield found[0], process.pid
                break
    finally:
        process.terminate()
        process.wait()


@contextmanager
def busy(loops: int) -> Iterator[None]:
    command = [sys.executable, "-c", "while True: pass"]
    with ExitStack() as stack:
        for _ in range(loops):
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.kill)
        yield


def cold(browser: Any, address: str, times: int) -> None:
    """First paint and first bars of pages that have nothing cached."""
    paints, bars = [], []
    for _ in range(times):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(address, wait_until="commit")
        page.wait_for_selector("#live", state="attached")
        bars.append(page.evaluate(BARS))
        paints.append(page.evaluate(PAINTS)["first-contentful-paint"])
        context.close()
    report("first paint, cold", paints)
    report("first bars, cold", bars)


def plays(browser: Any, address: str) -> None:
    """Between the frames of a play, and what drawing takes of them."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page.goto(address)
    page.wait_for_selector("path.line.sgd[d^=M]", state="attached")
    found = page.evaluate(FRAMES)
    report("between frames while it plays", found["frames"])
    report("drawing a frame", found["drawing"])


def sliders(browser: Any, address: str, rounds: int) -> None:
    """From a slider to new bars."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page.goto(f"{address}#s={quote(json.dumps({'a': DOCUMENT}))}")
    page.wait_for_selector("#live[data-drawn]", state="attached")
    every: list[float] = []
    for name, indices in SLIDERS.items():
        found = []
        for index in list(indices) * rounds:
            found.append(page.evaluate(MEASURE, [name, index]))
            page.wait_for_timeout(150)
        report(f"slider {name}", found)
        every += found
    report("all sliders", every)


def memory(pid: int) -> float:
    """Resident megabytes of a process and its children."""
    out = subprocess.run(
        ["ps", "-o", "rss=", "--pid", str(pid), "--ppid", str(pid)], capture_output=True, text=True
    ).stdout
    return sum(map(int, out.split())) / 1024


def opens(browser: Any, address: str, pid: int, count: int) -> None:
    """Open pages that ask for a run of the API, and close every second one while it computes."""
    whole = {"task": "family", "gradient": "population"}
    empty = 0
    begun = memory(pid)
    for i in range(count):
        document = {**DOCUMENT, **whole, "motion": {"name": "flow", "time": 1000.0 + i}}
        page = browser.new_page()
        page.goto(f"{address}#s={quote(json.dumps({'a': document}))}", wait_until="commit")
        if i % 2:
            page.wait_for_timeout(50)
        else:
            try:
                page.wait_for_selector("#live[data-drawn]", state="attached", timeout=120_000)
            except Exception:
                empty += 1
        page.close()
        if i in (count // 10, count - 1):
            print(f"after {i + 1} pages: {memory(pid):.0f} MB (at the start {begun:.0f} MB)")
    print(f"{count} pages opened and closed, {empty} stayed empty")


def pictures(browser: Any, address: str, folder: Path) -> None:
    """The first example at its end, wide and on a phone, light and dark."""
    for name, width, height in (("playground", 1280, 1280), ("playground-phone", 375, 1500)):
        for scheme, suffix in (("light", ""), ("dark", "-dark")):
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                reduced_motion="reduce",
            )
            page.add_init_script("localStorage.setItem('attnlab-tour-done', '1')")
            page.goto(address)
            page.wait_for_selector("path.line.sgd[d^=M]", state="attached")
            page.evaluate("attnlabPage.player.go(attnlabPage.player.last)")
            page.screenshot(path=folder / f"{name}{suffix}.png")
            page.close()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench play", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--opens", type=int, default=0)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args(arguments)
    path = chromium.find()
    if path is None:
        sys.exit("no Chromium here: apt-get install chromium")
    print(f"{os.cpu_count()} cores")
    with server() as (address, pid), chromium.launched(path) as browser, busy(options.busy):
        time.sleep(1)
        if options.pictures:
            pictures(browser, address, options.pictures)
        elif options.opens:
            opens(browser, address, pid, options.opens)
        else:
            cold(browser, address, 10)
            plays(browser, address)
            sliders(browser, address, options.rounds)
