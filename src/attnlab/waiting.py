"""What is said to those who wait: nothing for two seconds, then what they wait for.

Stands on nothing, so that it can be said while the rest is loading.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attnlab.names import visible

PATIENCE = 2.0  # seconds before a word
INTERVAL = 10.0  # between lines; on a terminal one line changes instead
LOADING = "loading JAX"
CLEARED = "\r\x1b[K"


@contextmanager
def waiting(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Say what is waited for, and for how long, where it takes more than two seconds."""
    begun = time.monotonic()

    def words() -> str:
        return f"attnlab: {what} ({time.monotonic() - begun:.0f} s)"

    if quiet:
        yield
    elif sys.stderr.isatty():
        shown = False

        def show() -> None:
            nonlocal shown
            shown = True
            print(f"{CLEARED}{visible(words())}", end="", file=sys.stderr, flush=True)

        try:
            with every(1.0, show):
                yield
        finally:
            if shown:
                print(CLEARED, end="", file=sys.stderr, flush=True)
    else:
        with repeating(words):
            yield


@contextmanager
def repeating(words: Callable[[], str]) -> Iterator[None]:
    """Print a line on stderr after two seconds, and then every ten."""

    def tell() -> None:
        print(visible(words()), file=sys.stderr, flush=True)

    with every(INTERVAL, tell):
        yield


@contextmanager
def every(interval: float, act: Callable[[], None]) -> Iterator[None]:
    """Act after two seconds and then at intervals, beside the block."""
    over = threading.Event()

    def beside() -> None:
        pause = PATIENCE
        while not over.wait(pause):
            act()
            pause = interval

    thread = threading.Thread(target=beside, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def in_words(seconds: float) -> str:
    """A time as a person would say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds > 365 * 86400:
        return "years"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
