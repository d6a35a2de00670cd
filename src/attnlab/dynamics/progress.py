"""A progress bar that appears only when there is something to wait for."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

PATIENCE = 2.0  # seconds before a bar is shown

Choice = bool | Literal["auto"] | Callable[[float], None]


class Report(Protocol):
    """Says how much work was just done."""

    def __call__(self, amount: float, note: str | None = None) -> None: ...


@contextmanager
def reporting(choice: Choice, total: float, what: str) -> Iterator[Report]:
    """Yield a function to call with the amount of work just done.

    "auto" shows a bar with an estimate on a terminal once the work has taken two seconds; True
    shows it in any case; False never. A function is called with the fraction done instead. A
    `note` given with the amount, such as the loss, stands before the bar.
    """
    done, lock = 0.0, threading.Lock()
    if callable(choice):
        report = choice

        def tell(amount: float, note: str | None = None) -> None:
            nonlocal done
            with lock:  # batches of runs report from their own threads
                done += amount
                report(min(done / total, 1.0))

        yield tell
        return
    if choice is False or (choice == "auto" and not sys.stderr.isatty()):
        yield lambda amount, note=None: None
        return

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(), TextColumn("left"), Remaining(),
    )  # fmt: skip
    bar: Any = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    begun, shown = time.monotonic(), False

    def advance(amount: float, note: str | None = None) -> None:
        nonlocal shown
        if not shown and (choice is True or time.monotonic() - begun > PATIENCE):
            bar.start()
            shown = True
        bar.update(task, advance=amount, description=f"{what}: {note}" if note else None)

    try:
        yield advance
    finally:
        if shown:
            bar.stop()
