"""A playground on a port of its own, and pages of it that share nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any
from urllib.parse import quote

import page_files
import pytest
from small_run import PATIENCE

from attnlab.playground import server as module
from attnlab.playground.server import Server, serving
from attnlab.playground.workers import Workers

FORGET = "() => { try { localStorage.clear() } catch {} }"  # a frame may have none


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    # on a busy machine its minute is soon over for a process that begins to compute, and its ten
    # seconds for a browser, which is left with half of the page
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "REQUEST_SECONDS", PATIENCE / 1000)
        with serving(port=0, workers=Workers(seconds=PATIENCE / 1000)) as running:
            yield running


@pytest.fixture(scope="session")
def sources() -> Iterator[str]:
    """The page as its modules, which a test may import one by one."""
    with page_files.served() as address:
        yield f"{address}/index.html"


@pytest.fixture(scope="module")
def unused(browser: Any) -> Iterator[dict[str, list[Any]]]:
    """Contexts of the browser without pages, by their settings: a new one for each page takes as
    long as the page."""
    contexts: dict[str, list[Any]] = defaultdict(list)
    yield contexts
    for context in chain.from_iterable(contexts.values()):
        context.close()


@pytest.fixture
def open_page(
    browser: Any, unused: dict[str, list[Any]], server: Server
) -> Iterator[Callable[..., Any]]:
    """Open the page in a state, and wait for its bars unless it is to have none."""
    used: list[tuple[str, Any]] = []

    def opened(
        state: dict[str, Any] | None = None,
        *,
        address: str | None = None,
        bars: bool = True,
        width: int = 1280,
        motion: bool = False,
        dark: bool = False,
        strict: bool = False,
    ) -> Any:
        settings = {
            "viewport": {"width": width, "height": 800},
            "reduced_motion": "no-preference" if motion else "reduce",
            "color_scheme": "dark" if dark else "light",
            "bypass_csp": not strict,  # what waits for the page evaluates text in it
        }
        free = unused[str(settings)]
        context = free.pop() if free else browser.new_context(**settings)
        used.append((str(settings), context))
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        fragment = "" if state is None else f"#s={quote(json.dumps(state))}"
        page.goto(f"{address or server.url}{fragment}")
        if bars:
            page.wait_for_selector("#live[data-drawn]", state="attached")
        return page

    yield opened
    for settings, context in used:
        for page in context.pages:
            page.evaluate(FORGET)
            page.close()
        unused[settings].append(context)
