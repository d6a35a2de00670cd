"""Executors run groups: one small protocol, and what all of them share."""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from typing import Protocol

import xarray as xr

from attnlab.files.numerics import numerics
from attnlab.sweeping.group import NUMBERS, Group, Tell, run_group

RETRIES = 3  # of a group whose worker died


@dataclass(frozen=True)
class Answer:
    """Result of a group, or the cause of its failure and the traceback."""

    dataset: xr.Dataset | None = None
    cause: str = ""
    traceback: str = ""


Answers = Generator[tuple[Group, Answer], None, None]


class Executor(Protocol):
    """Runs groups: takes the next one when there is room, and returns every one as it ends.

    A driver that has to stop closes it. Results come back to the driver, which alone writes:
    workers need no disk in common with it. tell: called with the fraction of the current group, by
    executors that know it.
    """

    def run(self, groups: Iterator[Group], tell: Tell) -> Answers: ...


def attempt(
    group: Group, tell: Tell | None = None, expected: Mapping[str, int | str] | None = None
) -> Answer:
    """Run a group; an error is an answer too.

    expected: the driver's numerics, where the worker's installation may be another.
    """
    try:
        here = numerics(*NUMBERS)
        if expected not in (None, here):
            raise RuntimeError(
                f"this worker's installation makes other numbers ({here}) than the driver's "
                f"({expected}); install the same versions there"
            )
        return Answer(run_group(group, tell))
    except Exception as problem:
        cause = f"{type(problem).__name__}: {problem}"
        return Answer(cause=cause, traceback=traceback.format_exc())


def become_worker() -> None:
    """Prepare a process for running groups beside others."""
    # Each worker takes accelerator memory as it needs it, instead of most of it at once.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    parent = multiprocessing.parent_process()
    if parent is not None:  # a driver that is killed cannot end its workers
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
