"""attnlab play: the playground in the browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from attnlab.cli.arguments import PRESETS, completing
from attnlab.cli.printing import say
from attnlab.files.errors import InputError
from attnlab.files.progress import waiting

HELP = """Open the playground: see attention scan and snap in the browser.

It needs the extra `play` (pip install 'attnlab[play]'; ./lab play installs it) and no network. It
listens on this machine only, unless --address says otherwise. Stop it with Ctrl-C. CLASSES, a
preset or a file such as `attnlab text classes` writes, is what the page opens on.

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
            help="A preset or a file of sequence classes to open the page on.",
            autocompletion=completing(*PRESETS),
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5006,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    origin: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT under which other machines reach it; may be repeated."),
    ] = None,
) -> None:
    from attnlab.playground import require_extra

    with waiting("starting the playground"):
        try:
            require_extra()
        except ImportError as error:
            raise InputError(f"play: {error}") from error
        from attnlab.data import classes_from
        from attnlab.playground.presets import DEFAULT, beginning
        from attnlab.playground.serve import serve, server

        start = DEFAULT.state if classes is None else beginning(classes_from(classes))
        made = server(port=port, address=address, origins=origin or (), start=start)
    page = f"http://{'127.0.0.1' if address == '0.0.0.0' else address}:{port}/"
    say(f"attnlab: the playground is at {page} (stop it with Ctrl-C)", error=True)
    if browser:
        made.io_loop.add_callback(webbrowser.open, page)
    serve(made, start)
