"""A process that computes what pages ask for: `python -m attnlab.playground.computing`.

It reads a line of JSON, {"verb", "document"}, and answers with a line of JSON, {"status", "bytes"},
and that number of bytes. {"cancel": true} stops the computation between two compiled calls; a
caller that cannot wait for that ends the process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, BinaryIO

from attnlab.dynamics import Diverged
from attnlab.files.errors import InputError
from attnlab.playground.answers import ANSWERS


class Cancelled(Exception):
    """Nobody waits any more."""


class _Work:
    """One request, computed in a thread of its own so that the next line can be heard."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.stop = threading.Event()

    def go_on(self, fraction: float) -> None:
        if self.stop.is_set():
            raise Cancelled

    def answer(self, verb: str, document: Any) -> None:
        try:
            content = ANSWERS[verb](document, self.go_on)
            status = 200
        except Cancelled:
            content, status = b"{}", 499
        except (InputError, Diverged, MemoryError) as error:
            content, status = json.dumps({"error": str(error)}).encode(), 400
        except Exception as error:
            print(f"attnlab play: {type(error).__name__}: {error}", file=sys.stderr)
            words = "attnlab failed on this; the terminal that runs it says more"
            content, status = json.dumps({"error": words}).encode(), 500
        self.out.write(json.dumps({"status": status, "bytes": len(content)}).encode() + b"\n")
        self.out.write(content)
        self.out.flush()


def main() -> None:
    """Answer until the other side closes."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up in an answer
    work = _Work(out)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if request.get("cancel"):
            work.stop.set()
            continue
        work = _Work(out)
        given = (request["verb"], request["document"])
        threading.Thread(target=work.answer, args=given, daemon=True).start()
    os._exit(0)  # compiled code and compilers do not stop for Python's own end


if __name__ == "__main__":
    main()
