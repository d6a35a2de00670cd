"""Workers: a few processes that compute for pages, each for one at a time."""

from __future__ import annotations

import json
import queue
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
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
    """An answer that says what is wrong."""
    return Answer(status, json.dumps({"error": words}).encode())


class Worker:
    """A process that answers one request at a time; started on use, and again after its end."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, verb: str, document: Any, gone: Callable[[], bool], seconds: float) -> Answer:
        """The answer to a request, unless it takes too long or `gone` says that nobody waits."""
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            self._send({"verb": verb, "document": document})
            deadline = time.monotonic() + seconds
            while not self._ready(POLL_SECONDS):
                late = time.monotonic() > deadline
                if late or gone():
                    self._stop()
                    words = f"a page may have {seconds:g} seconds; use attnlab simulate for more"
                    return refusal(408 if late else 499, words)
            head = json.loads(process.stdout.readline())
            return Answer(head["status"], process.stdout.read(head["bytes"]))
        except (OSError, ValueError, KeyError):
            self.end()  # killed, or out of memory
            return refusal(500, "the process that computed this ended; ask for less")

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "attnlab.playground.computing"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        return self.process

    def _send(self, request: dict[str, Any]) -> None:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def _ready(self, seconds: float) -> bool:
        assert self.process is not None and self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def _stop(self) -> None:
        """Ask it to stop and hear its last answer, or end it."""
        assert self.process is not None and self.process.stdout is not None
        self._send({"cancel": True})
        if not self._ready(STOP_SECONDS):
            self.end()
            return
        head = json.loads(self.process.stdout.readline())
        self.process.stdout.read(head["bytes"])

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    stream.close()
            self.process = None


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
        """The answer of a free worker."""
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
