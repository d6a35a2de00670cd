"""Static pages in a headless Chromium, as Lighthouse would look at them.

    ./lab bench pages out/site/index.html out/report.html page.html

For each page, at 1280 and 390 pixels, light and dark: how far its layout shifts while it loads and
is scrolled (the sum of layout-shift entries; Lighthouse calls up to 0.1 good), its size with all
that it loads, texts whose contrast is too low and other faults that axe-core finds, whether it
sticks out of the screen, and errors on its console. Ends with 1 where a page is over a limit.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import chromium  # noqa: E402

SIZES = ((1280, 800), (390, 844))
MOST_SHIFT, MOST_MEGABYTES = 0.05, 8.0
AXE = ROOT / "tests" / "support" / "axe" / "axe.min.js"
SHIFTS = """
globalThis.shifted = 0
new PerformanceObserver((list) => list.getEntries().forEach((of) => { shifted += of.value }))
  .observe({ type: "layout-shift", buffered: true })
"""
SCROLL = """
async () => {
  for (let y = 0; y < document.documentElement.scrollHeight && y < 20_000; y += innerHeight) {
    scrollTo(0, y)
    await new Promise((done) => setTimeout(done, 60))
  }
  return shifted
}
"""
# axe does not see that a formula is text
FAULTS = """
async () => (await axe.run({ resultTypes: ["violations"], iframes: false, preload: false }))
  .violations.map(({ id, nodes }) => [id, nodes.filter(({ html }) => !html.includes("<math"))])
  .filter(([, nodes]) => nodes.length)
  .map(([id, nodes]) => [id, nodes.length, nodes[0].target.join(" ")])
"""


def measured(browser: Any, address: str, width: int, height: int, dark: bool) -> dict[str, Any]:
    """Return what is measured of a page at a size and in a colour scheme."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        bypass_csp=True,
    )
    page, errors, bytes_loaded = context.new_page(), [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda of: of.type == "error" and errors.append(of.text))
    page.on("requestfinished", lambda of: bytes_loaded.append(of.sizes()["responseBodySize"]))
    page.add_init_script(SHIFTS)
    page.goto(address, wait_until="load")
    page.wait_for_timeout(1500)
    shifted = page.evaluate(SCROLL)
    page.evaluate(AXE.read_text())
    found = {
        "shift": round(shifted, 4),
        "megabytes": round(sum(bytes_loaded) / 1e6, 2),
        "wider": page.evaluate("document.documentElement.scrollWidth") - width,
        "faults": page.evaluate(FAULTS),
        "errors": errors,
    }
    context.close()
    return found


def over(found: dict[str, Any]) -> bool:
    """Say whether a page is over a limit."""
    large = found["shift"] > MOST_SHIFT or found["megabytes"] > MOST_MEGABYTES
    return large or found["wider"] > 0 or bool(found["faults"] or found["errors"])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench pages", description=__doc__)
    parser.add_argument("pages", nargs="+", help="Files or addresses.")
    options = parser.parse_args(arguments)
    path = chromium.find()
    if path is None:
        sys.exit("no Chromium here: apt-get install chromium")
    bad = 0
    print(f"{'page':44} {'width':>5} {'':5} {'shift':>7} {'MB':>6}  faults")
    with chromium.launched(path) as browser:
        for given in options.pages:
            address = given if "://" in given else Path(given).resolve().as_uri()
            for width, height in SIZES:
                for dark in (False, True):
                    found = measured(browser, address, width, height, dark)
                    told = [f"{id} ({count}): {where}" for id, count, where in found["faults"]]
                    told += [f"{found['wider']} px too wide"] if found["wider"] > 0 else []
                    told += found["errors"]
                    bad += over(found)
                    row = f"{given[-44:]:44} {width:5} {'dark' if dark else 'light':5} "
                    row += f"{found['shift']:7.4f} {found['megabytes']:6.2f}  "
                    print(row + ("; ".join(told) or "-"), flush=True)
    sys.exit(1 if bad else 0)
