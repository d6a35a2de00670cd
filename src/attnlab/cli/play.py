"""attnlab play: the playground in the browser."""

from __future__ import annotations

import threading
import webbrowser
from typing import Annotated

import typer

from attnlab.cli.arguments import PRESETS, completing
from attnlab.cli.printing import say

HELP = """Open the playground: watch attention train in the browser.

The page computes in the browser; what it does not compute itself (a residual connection, several
heads, continuous time, large classes) it asks of this process. It needs no network and listens on
this machine only, unless --address says otherwise. Stop it with Ctrl-C. CLASSES, a preset or a file
(classes such as `attnlab text classes` writes, or a simulation), is what the page opens on.

\b
Examples:
  attnlab play
  attnlab play classes.yaml
  attnlab play --port 8080 --no-browser
  attnlab play --address 0.0.0.0 --origin lab.example.org:5006 --no-browser
"""


def play_verb(
    classes: Annotated[
        str | None,
        typer.Argument(
            help="A preset, or a file of sequence classes or of a simulation, to open the page on.",
            autocompletion=completing(*PRESETS),
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")
    ] = 5006,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    origin: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT under which other machines reach it; may be repeated."),
    ] = None,
) -> None:
    from attnlab.playground.server import serve

    start = None
    if classes is not None:
        from attnlab.playground.opening import opening

        start = opening(classes)

    def up(url: str) -> None:
        say(f"attnlab: the playground is at {url} (stop it with Ctrl-C)", error=True)
        if browser:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    serve(port=port, address=address, origins=origin or (), start=start, up=up)
