"""Tries the playground's widget in a real JupyterLab and in a real marimo; not part of the tests.

    python tests/support/front_ends.py jupyterlab    # or marimo; both come by pip

In Chromium (playwright): the page is drawn, a slider is turned and read in Python, and Python sets
a simulation that the page asks the kernel for. It prints what it saw.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import chromium

PORT, PATIENCE = 8977, 240_000
SHOW = (
    'page = attnlab.play(attnlab.Simulation("syn-small", gradient="population", '
    "motion=attnlab.Steps(30)))"
)
OTHER = 'attnlab.Simulation("syn-small", motion=attnlab.Flow(100.0))'
MARIMO = f"""
import marimo
app = marimo.App()
@app.cell
def _():
    import attnlab, marimo as mo
    {SHOW.replace("attnlab.play", "mo.ui.anywidget(attnlab.play", 1)})
    page
    return attnlab, mo, page
@app.cell
def _(mo, page):
    page.value
    mo.md(f"read {{page.widget.simulation.eta_z}}")
    return
@app.cell
def _(attnlab, mo, page):
    mo.ui.button(label="set", on_click=lambda _: setattr(page.widget, "simulation", {OTHER}))
    return
"""
CELLS = [
    f"import attnlab\n{SHOW}\npage",
    'print("read", page.simulation.eta_z)',
    f"page.simulation = {OTHER}",
]


def jupyterlab(folder: Path) -> list[Any]:
    """A notebook, and what serves it."""
    cells = [
        {
            "cell_type": "code",
            "id": f"cell{i}",
            "metadata": {},
            "outputs": [],
            "source": text,
            "execution_count": None,
        }
        for i, text in enumerate(CELLS)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "try.ipynb").write_text(json.dumps(book))
    return [
        "jupyterlab",
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={PORT}",
        "--allow-root",
        "--ServerApp.token=",
        "--ServerApp.password=",
        f"--ServerApp.root_dir={folder}",
    ]


def marimo(folder: Path) -> list[Any]:
    """An app, and what serves it."""
    (folder / "try.py").write_text(MARIMO)
    return [
        "marimo",
        "run",
        folder / "try.py",
        "--headless",
        "--host=127.0.0.1",
        f"--port={PORT}",
        "--no-token",
    ]


def wait_for_port() -> None:
    """Until the server listens."""
    deadline = time.monotonic() + PATIENCE / 1000
    while True:
        try:
            socket.create_connection(("127.0.0.1", PORT), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the server does not listen"
            time.sleep(0.5)


def use(page: Any, name: str) -> None:
    """Turn and read, set and see."""
    lab = name == "jupyterlab"
    cells = page.locator(".jp-Notebook .jp-CodeCell")

    def run(number: int) -> None:
        cells.nth(number).locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")

    if lab:  # which runs nothing before its kernel is there
        page.get_by_text("| Idle").wait_for()
        run(0)
    frame = page.frame_locator('iframe[title="attnlab playground"]')
    frame.locator("#live[data-drawn]").wait_for(state="attached")
    print("drawn:", frame.locator("#step-shown").inner_text())
    slider = frame.locator("#control-eta_z")
    slider.focus()
    slider.press("ArrowRight")
    time.sleep(5)  # until the kernel has heard of it
    if lab:
        run(1)
    page.get_by_text("read 2.0").wait_for()
    print("read in Python: eta_z = 2.0")
    if lab:
        run(2)
    else:
        page.get_by_text("set", exact=True).click()
    frame.locator("#step-shown", has_text="of 100").wait_for()
    print("set in Python:", frame.locator("#step-shown").inner_text())


def main(name: str) -> None:
    make, place = {"jupyterlab": (jupyterlab, "lab/tree/try.ipynb"), "marimo": (marimo, "")}[name]
    with tempfile.TemporaryDirectory() as made:
        command = [sys.executable, "-m", *make(Path(made))]
        server = subprocess.Popen(command, cwd=made, stderr=subprocess.DEVNULL)
        try:
            wait_for_port()
            path = chromium.find()
            assert path is not None, "no Chromium here: apt-get install chromium"
            with chromium.launched(path) as browser:
                page = browser.new_page(viewport={"width": 1280, "height": 1150})
                page.set_default_timeout(PATIENCE)
                page.goto(f"http://127.0.0.1:{PORT}/{place}")
                use(page, name)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
