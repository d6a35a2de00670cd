"""The playground's response: from a slider to new bars, in a real headless Chromium.

The clock starts when the slider moves (its pause of 15 ms is included) and stops when the frame
with the new bars has been drawn. First the rates, the overlap and the seed of Syn-Small (Fig. 4's
protocol: 100 steps, T = 128, batch 128) after the warm-up, whose programs are compiled; then a
change of shape, which compiles one.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import chromium  # noqa: E402

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


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench play", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=5086)
    parser.add_argument("--settle", type=float, default=60.0, help="seconds for the warm-up")
    options = parser.parse_args(arguments)
    path = chromium.find()
    if path is None:
        sys.exit("bench play: needs Chromium; install it (Debian: apt-get install chromium)")
    command = ["from attnlab.cli import main; main()", "play", "--no-browser"]
    server = subprocess.Popen(
        [sys.executable, "-c", *command, "--port", str(options.port)], env=os.environ
    )
    try:
        url = f"http://127.0.0.1:{options.port}/"
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", options.port)).close()
                break
            except OSError:
                time.sleep(0.2)
        with chromium.launched(path) as browser:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            begun = time.perf_counter()
            page.goto(url + "?s=%7B%22a%22%3A%7B%7D%7D")  # Syn-Small, 100 steps
            first = page.locator("[data-chart='a 0'] path.distinct")
            first.wait_for(state="attached", timeout=120_000)
            page.get_by_role("slider", name="decoder rate").wait_for()
            print(f"page with its first run: {time.perf_counter() - begun:.1f} s", flush=True)
            page.wait_for_timeout(1000 * options.settle)
            measure(page, "decoder rate", [6, 7])  # a browser warms up too
            found: dict[str, list[float]] = {}
            for turn in range(options.rounds):
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
    finally:
        server.terminate()
        server.wait()
