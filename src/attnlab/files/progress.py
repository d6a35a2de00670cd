"""Progress messages: nothing for two seconds, then what is being done and how far it is.

A bar on a terminal, lines elsewhere. Imports nothing heavy: messages appear while the rest loads.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Literal, Protocol, TypeVar

from attnlab.files.errors import visible

PATIENCE = 2.0  # seconds before the first message
INTERVAL = 10.0  # between lines; on a terminal one line changes instead
LOADING = "loading JAX"
CLEARED = "\r\x1b[K"
LOOK_SECONDS = 0.1  # between looks at a thread, so that Ctrl-C is answered


def on_terminal() -> bool:
    """Return whether messages go to a terminal; Python has no stderr where it was closed."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def waiting(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a status line with the seconds so far, after two seconds."""
    begun = time.monotonic()
    if quiet:
        yield
    else:
        with repeating(
            lambda: f"attnlab: {what} ({time.monotonic() - begun:.0f} s)", in_place=on_terminal()
        ):
            yield


@contextmanager
def repeating(words: Callable[[], str], *, in_place: bool = False) -> Iterator[None]:
    """Print a line on stderr after two seconds and then every ten, or one that changes in place."""
    start, end = (CLEARED, "") if in_place else ("", "\n")
    shown = False

    def show() -> None:
        nonlocal shown
        shown = True
        print(f"{start}{visible(words())}", end=end, file=sys.stderr, flush=True)

    try:
        with every(1.0 if in_place else INTERVAL, show):
            yield
    finally:
        if shown and in_place:
            print(CLEARED, end="", file=sys.stderr, flush=True)


@contextmanager
def every(interval: float, act: Callable[[], None]) -> Iterator[None]:
    """Act after two seconds and then at intervals, in a thread, while the block runs."""
    over = threading.Event()

    def repeat() -> None:
        pause = PATIENCE
        while not over.wait(pause):
            act()
            pause = interval

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def in_words(seconds: float) -> str:
    """Return a time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds > 365 * 86400:
        return "years"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


Item = TypeVar("Item")
Here = TypeVar("Here")
There = TypeVar("There")
Progress = Callable[[float], None] | Literal[False]  # called with the fraction done


def in_turn(
    items: Sequence[Item], progress: Progress
) -> Iterator[tuple[Item, Callable[[float], None]]]:
    """Yield each item with a function that reports the fraction of it done; items count equally."""
    for i, item in enumerate(items):

        def report(fraction: float, i: int = i) -> None:
            if progress:
                progress((i + fraction) / len(items))

        yield item, report
        report(1.0)


Choice = bool | Literal["auto"] | Callable[[float], None]
FIRST = "compiling"  # what is done before there is progress


class Report(Protocol):
    """Function that reports the amount of work just done."""

    def __call__(self, amount: float, note: str | None = None) -> None: ...


@contextmanager
def reporting(choice: Choice, total: float, what: str) -> Iterator[Report]:
    """Yield a function to call with the amount of work just done.

    "auto" shows a bar with an estimate on a terminal, and elsewhere a line every ten seconds, once
    the work has taken two; True shows the bar in any case; False nothing. A function is called with
    the fraction done instead. A `note` given with the amount, such as the loss, is shown with it.
    """
    tally = _Tally(total, visible(what), tell=choice if callable(choice) else None)
    if choice is True or (choice == "auto" and on_terminal()):
        with _bar(tally, at_once=choice is True):
            yield tally.add
    elif choice == "auto":
        with repeating(tally.words):
            yield tally.add
    else:
        yield tally.add


class _Tally:
    """Sum of the work done, and the fraction."""

    def __init__(self, total: float, what: str, tell: Callable[[float], None] | None) -> None:
        self.total, self.what, self.tell = total, what, tell
        self.done, self.note = 0.0, FIRST
        self.first: tuple[float, float] | None = None  # when progress began, and what was done then
        self.lock = threading.Lock()

    def add(self, amount: float, note: str | None = None) -> None:
        with self.lock:  # batches of runs report from their own threads
            self.done += amount
            self.note = note or ("" if self.done else FIRST)
            if self.first is None and self.done:
                self.first = time.monotonic(), self.done
            if self.tell is not None:
                self.tell(self.fraction)

    @property
    def fraction(self) -> float:
        return min(self.done / self.total, 1.0)

    @property
    def title(self) -> str:
        return f"{self.what}: {self.note}" if self.note else self.what

    def words(self) -> str:
        """Return the title, the percentage done and an estimate of the time left."""
        if self.first is None:
            return self.title
        begun, before = self.first
        pace = (self.done - before) / max(time.monotonic() - begun, 1e-9)
        rest = max(self.total - self.done, 0.0)  # rounding may leave a little less than nothing
        left = f", {in_words(rest / pace)} left" if pace else ""
        return f"{self.title}: {100 * self.fraction:.0f} %{left}"


@contextmanager
def _bar(tally: _Tally, *, at_once: bool) -> Iterator[None]:
    """Show a bar that follows the tally; without a total it moves to and fro."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        Remaining(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(tally.title, total=None)

    def follow(fraction: float) -> None:
        total = tally.total if tally.done else None
        bar.update(task, completed=tally.done, total=total, description=tally.title)

    tally.tell = follow
    if at_once:
        bar.start()
    try:
        with every(INTERVAL, bar.start):  # which does nothing where it is shown
            yield
    finally:
        bar.stop()


def side_by_side(here: Callable[[], Here], there: Callable[[], There]) -> tuple[Here, There]:
    """Run two functions at the same time, and return both results.

    `there` runs in a thread of its own, `here` in this one: while one compiles in Python, the
    other can run. An exception of `here` goes on at once; one of `there` when `here` is done.
    Signals come to the main thread: `here` is for work that keeps what it has when it is stopped.
    """
    future = Future[There]()

    def go() -> None:
        try:
            future.set_result(there())
        except BaseException as problem:
            future.set_exception(problem)

    threading.Thread(target=go, name="attnlab side_by_side").start()
    done = here()
    while not wait([future], LOOK_SECONDS).done:
        pass
    return done, future.result()
