"""attnlab play: the playground in the browser."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path
from typing import Any

from attnlab.cli.printing import say, say_written
from attnlab.files.errors import InputError


def play_verb(
    given: str | None = None,
    *,
    port: int = 5006,
    browser: bool = True,
    address: str = "127.0.0.1",
    origin: list[str] | None = None,
    links: str | None = None,
    out: Path | None = None,
    **settings: Any,
) -> None:
    """Open the playground: watch attention train in the browser.

    The page computes in the browser; what it does not compute itself (a residual connection,
    several heads, continuous time, large classes) it asks of this process. It needs no network and
    listens on this machine only, unless --address says otherwise. Stop it with Ctrl-C. The page
    opens on a preset, on a file of classes (such as `attnlab text classes` writes), on a file of a
    run, or on a file that the page saved; options change the run, as in attnlab simulate. A preset
    or classes without options take 200 steps with eta-y 2 and eta-z 5, so that attention visibly
    moves.

    \b
    Examples:
      attnlab play
      attnlab play classes.yaml
      attnlab play classes.yaml --eta-y 10 --gradient population --steps 400
      attnlab play --port 8080 --no-browser
      attnlab play classes.yaml --out page.html
      attnlab play --address 0.0.0.0 --origin lab.example.org:5006 --no-browser

    Page
    ----
    out
        Write the page to this file instead: it opens anywhere, without attnlab.
    links
        Address of a published page, for "Copy link"; by default that of this server.

    Server
    ------
    port
        Port to listen on; 0: any that is free.
    browser
        Open the page in a browser.
    address
        Address to listen on.
    origin
        HOST:PORT under which other machines reach it; may be repeated.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"port: expected a number from 0 to 65535, got {port}")
    start = None
    if given is not None:
        from attnlab.playground.opening import opening

        start = opening(given, **settings)
    elif settings:
        option = next(iter(settings)).replace("_", "-")
        raise InputError(f"{option}: changes a run; name a preset or a file to open the page on")

    if out is not None:
        from attnlab.files.atomic import write_text
        from attnlab.playground.single_page import single_page

        write_text(out, single_page(start, address=links))
        say_written(out)
        return
    from attnlab.playground.server import serve

    def up(url: str) -> None:
        say(f"attnlab: the playground is at {url} (stop it with Ctrl-C)", error=True)
        if browser:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    serve(port=port, address=address, origins=origin or (), start=start, links=links, up=up)
