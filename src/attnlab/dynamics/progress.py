"""How far the work is: a bar on a terminal, lines elsewhere, where there is time to wait."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from attnlab.names import visible
from attnlab.waiting import INTERVAL, every, in_words, repeating

Choice = bool | Literal["auto"] | Callable[[float], None]
FIRST = "compiling"  # what is done before there is progress


class Report(Protocol):
    """Says how much work was just done."""

    def __call__(self, amount: float, note: str | None = None) -> None: ...


@contextmanager
def reporting(choice: Choice, total: float, what: str) -> Iterator[Report]:
    """Yield a function to call with the amount of work just done.

    "auto" shows a bar with an estimate on a terminal, and elsewhere a line every ten seconds, once
    the work has taken two; True shows the bar in any case; False nothing. A function is called with
    the fraction done instead. A `note` given with the amount, such as the loss, is told with it.
    """
    tally = _Tally(total, visible(what), tell=choice if callable(choice) else None)
    if choice is True or (choice == "auto" and sys.stderr.isatty()):
        with _bar(tally, at_once=choice is True):
            yield tally.add
    elif choice == "auto":
        with repeating(tally.words):
            yield tally.add
    else:
        yield tally.add


class _Tally:
    """Adds up what was done, and tells the fraction."""

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
        """The title, how much is done, and an estimate of how long the rest takes."""
        if self.first is None:
            return self.title
        begun, before = self.first
        pace = (self.done - before) / max(time.monotonic() - begun, 1e-9)
        left = f", {in_words((self.total - self.done) / pace)} left" if pace else ""
        return f"{self.title}: {100 * self.fraction:.0f} %{left}"


@contextmanager
def _bar(tally: _Tally, *, at_once: bool) -> Iterator[None]:
    """A bar that follows the tally; without a total it moves to and fro."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(), TextColumn("left"),
        Remaining(),
    )  # fmt: skip
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
