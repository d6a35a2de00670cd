"""Executors: who runs the groups. One small protocol, and the local ones."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from typing import Protocol

import xarray as xr

from attnlab.results.code import code_digest
from attnlab.sweep.group import CODE, Group, run_group

RETRIES = 3  # of a group whose worker died


@dataclass(frozen=True)
class Outcome:
    """A group's result, or why there is none."""

    dataset: xr.Dataset | None = None
    cause: str = ""


Tell = Callable[[float], None]


class Executor(Protocol):
    """Runs groups: takes the next one when there is room for it, and gives them back as they end.

    Results come back to the driver, which alone writes: workers need no disk in common with it.
    tell: called with the fraction of the present group, by those who can.
    """

    def run(self, groups: Iterator[Group], tell: Tell) -> Iterator[tuple[Group, Outcome]]: ...


@dataclass(frozen=True)
class Local:
    """In this process, or in `workers` processes of this machine, which are spawned, not forked:
    JAX does not survive a fork. Call it from under `if __name__ == "__main__":`."""

    workers: int = 0

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise ValueError(f"workers: expected 0 (in process) or more, got {self.workers}")

    def run(self, groups: Iterator[Group], tell: Tell) -> Iterator[tuple[Group, Outcome]]:
        if not self.workers:
            return ((group, attempt(group, tell)) for group in groups)
        return self._in_processes(groups)

    def _in_processes(self, groups: Iterator[Group]) -> Iterator[tuple[Group, Outcome]]:
        waiting: list[Group] = []  # those whose worker died
        deaths: dict[str, int] = {}
        while True:
            pool = ProcessPoolExecutor(
                self.workers, multiprocessing.get_context("spawn"), initializer=become_worker
            )
            pending: dict[Future[Outcome], Group] = {}
            try:
                while True:
                    while len(pending) < self.workers:
                        group = waiting.pop() if waiting else next(groups, None)
                        if group is None:
                            break
                        waiting.append(group)  # until it is submitted: the pool may be broken
                        pending[pool.submit(attempt, group)] = waiting.pop()
                    if not pending:
                        return
                    for future in wait(pending, return_when=FIRST_COMPLETED).done:
                        yield pending[future], future.result()
                        del pending[future]
            except BrokenProcessPool:
                for group in pending.values():  # which of them it was, nobody can tell
                    deaths[group.key] = deaths.get(group.key, 0) + 1
                    if deaths[group.key] <= RETRIES:
                        waiting.append(group)
                    else:
                        yield group, Outcome(cause=f"its worker died {RETRIES + 1} times")
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def attempt(group: Group, tell: Tell | None = None, code: str | None = None) -> Outcome:
    """Run a group; what goes wrong is an outcome too.

    code: the driver's digest of the code, where the worker's installation may be another.
    """
    try:
        if code not in (None, code_digest(*CODE)):
            raise RuntimeError("this worker has another version of attnlab, JAX or NumPy installed")
        return Outcome(run_group(group, tell))
    except Exception as problem:
        return Outcome(cause=f"{type(problem).__name__}: {problem}")


def become_worker() -> None:
    """Prepare a process for running groups beside others."""
    # Each worker takes accelerator memory as it needs it, instead of most of it at once.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    parent = multiprocessing.parent_process()
    if parent is not None:  # a driver that is killed cannot say goodbye to its workers
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
