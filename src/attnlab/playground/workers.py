"""Workers: a few processes that compute for pages, each for one at a time."""

from __future__ import annotations

import json
import multiprocessing
import queue
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

COUNT = 2
MOST_SECONDS = 60.0  # of one answer
QUEUE_SECONDS = 20.0  # for a worker to be free
STOP_SECONDS = 1.0  # for a worker to hear that it should stop; a compiler does not
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Answer:
    """An HTTP status and what goes with it; nothing where nobody waits."""

    status: int
    content: bytes


def refusal(status: int, words: str) -> Answer:
    """Return an answer with an error message."""
    return Answer(status, json.dumps({"error": words}).encode())


class Worker:
    """A process that answers one request at a time; started on use, and again after its end."""

    process: SpawnProcess | None = None
    requests: Connection

    def ask(self, verb: str, document: Any, gone: Callable[[], bool], seconds: float) -> Answer:
        """Return the answer to a request, unless it takes too long or `gone` says nobody waits."""
        try:
            self._start()
            self.requests.send_bytes(json.dumps([verb, document]).encode())
            deadline = time.monotonic() + seconds
            while not self.requests.poll(POLL_SECONDS):
                late = time.monotonic() > deadline
                if late or gone():
                    self._stop()
                    words = f"a page may have {seconds:g} seconds; use attnlab simulate for more"
                    return refusal(408 if late else 499, words)
            return Answer(*self.requests.recv())
        except (EOFError, OSError):
            self.end()  # killed, or out of memory
            return refusal(500, "the process that computed this ended; ask for less")

    def _start(self) -> None:
        if self.process is None or not self.process.is_alive():
            self.end()
            spawn = multiprocessing.get_context("spawn")
            self.requests, theirs = spawn.Pipe()
            self.process = spawn.Process(target=_compute, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()

    def _stop(self) -> None:
        """Ask it to stop and hear its last answer, or end it."""
        self.requests.send_bytes(b"null")
        if self.requests.poll(STOP_SECONDS):
            self.requests.recv()
        else:
            self.end()

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.requests.close()
            self.process = None


def _compute(requests: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this
    from attnlab.playground.computing import compute  # here, because the server needs no JAX

    compute(requests)


class Workers:
    """The workers of a server. Requests wait for a free one, then get a "busy" reply."""

    def __init__(self, count: int = COUNT, *, seconds: float = MOST_SECONDS) -> None:
        self.all = [Worker() for _ in range(count)]
        self.seconds = seconds
        # the one that was free last comes first: it is running, and has compiled
        self.free: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in self.all:
            self.free.put(worker)

    def ask(self, verb: str, document: Any, gone: Callable[[], bool]) -> Answer:
        """Return the answer of a free worker."""
        deadline = time.monotonic() + QUEUE_SECONDS
        while True:
            try:
                worker = self.free.get(timeout=POLL_SECONDS)
                break
            except queue.Empty:
                if gone():
                    return refusal(499, "nobody waits")
                if time.monotonic() > deadline:
                    return refusal(503, "attnlab is busy with other pages; try again in a minute")
        try:
            return worker.ask(verb, document, gone, self.seconds)
        finally:
            self.free.put(worker)

    def end(self) -> None:
        """End all processes."""
        for worker in self.all:
            worker.end()
