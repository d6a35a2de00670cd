"""How long work is watched: a bar on a terminal, lines elsewhere, nothing with --json."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from attnlab.waiting import repeating


@contextmanager
def watching(
    quiet: bool, *, bar: Callable[[], AbstractContextManager[Any]], lines: Callable[[], Any]
) -> Iterator[Any]:
    """The watcher that fits where stderr goes; None where nothing is to be said. That of lines has
    words for how far the work is, which are said every ten seconds."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with bar() as shown:
            yield shown
    else:
        shown = lines()
        with repeating(shown.words):
            yield shown
