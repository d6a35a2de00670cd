"""Executors run groups: one small protocol, and what all of them share."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Protocol

import xarray as xr

from attnlab.files.errors import refuse_if
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
    """Prepare a process for running groups at the same time as others."""
    # Each worker takes accelerator memory as it needs it, instead of most of it at once.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    parent = multiprocessing.parent_process()
    if parent is not None:  # a driver that is killed cannot end its workers
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)


@dataclass(frozen=True)
class Local:
    """In this process, or in `workers` processes of this machine, which are spawned, not forked:
    JAX does not survive a fork. Call it from under `if __name__ == "__main__":`.

    Parameters
    ----------
    workers : int, optional
        Processes; 0 for this one.
    """

    workers: int = 0

    def __post_init__(self) -> None:
        refuse_if(self.workers < 0, "workers", "0 (in process) or more", self.workers)

    def run(self, groups: Iterator[Group], tell: Tell) -> Answers:
        if not self.workers:
            return ((group, attempt(group, tell)) for group in groups)
        return self._in_processes(groups)

    def _in_processes(self, groups: Iterator[Group]) -> Answers:
        # the workers go first, which ends what their threads are waiting for
        with ThreadPoolExecutor(self.workers) as threads, closing(_Workers()) as workers:
            pending: dict[Future[Answer], Group] = {}
            while True:
                while len(pending) < self.workers and (group := next(groups, None)) is not None:
                    pending[threads.submit(workers.attempt, group)] = group
                if not pending:
                    return
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    yield pending.pop(future), future.result()


class _Workers:
    """Processes, started when there is a group and no process is idle."""

    def __init__(self) -> None:
        self.idle: list[_Worker] = []
        self.living: set[_Worker] = set()
        self.closed = False
        self.lock = threading.Lock()

    def attempt(self, group: Group) -> Answer:
        """Run a group in a worker; where that dies, in another."""
        for _ in range(1 + RETRIES):
            worker = self._take()
            try:
                answer = worker.attempt(group)
            except (EOFError, OSError):
                self.living.remove(worker)
                worker.end()
            else:
                self.idle.append(worker)
                return answer
        return Answer(cause=f"its worker died {1 + RETRIES} times")

    def _take(self) -> _Worker:
        with self.lock:
            if self.closed:
                raise RuntimeError("no workers any more")
            if self.idle:
                return self.idle.pop()
            worker = _Worker()
            self.living.add(worker)
            return worker

    def close(self) -> None:
        with self.lock:
            self.closed = True
        for worker in list(self.living):
            worker.end()


class _Worker:
    """A process that answers one group after another."""

    def __init__(self) -> None:
        # Ctrl-C is for the driver. A process inherits what its maker's thread does not listen to.
        # (A thread that starts multiprocessing's tracker listens again, so that comes before.)
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, attempt), daemon=True)
        self.process.start()
        theirs.close()  # else the pipe would not end with the worker

    def attempt(self, group: Group) -> Answer:
        """Return the worker's answer; raises when it dies."""
        self.pipe.send(group)
        answer: Answer = self.pipe.recv()
        return answer

    def end(self) -> None:
        """End the process, even one that is stopped, and whatever waits for its answer."""
        self.process.kill()
        self.process.join()


def _work(pipe: Connection, attempt: Callable[[Group], Answer]) -> None:
    os.set_inheritable(pipe.fileno(), False)  # no process that JAX starts may keep it open
    become_worker()
    with suppress(EOFError, ConnectionError):  # when the driver is gone
        while True:
            pipe.send(attempt(pipe.recv()))
