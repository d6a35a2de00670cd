"""Two pieces of work at the same time: while one compiles in Python, the other can run.

Stands on nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Here = TypeVar("Here")
There = TypeVar("There")

LOOK_SECONDS = 0.1  # while it waits, so that Ctrl-C is answered


def side_by_side(here: Callable[[], Here], there: Callable[[], There]) -> tuple[Here, There]:
    """What both give: `there` is done in a thread of its own, `here` in this one.

    An exception of `here` goes on at once; one of `there` when `here` is done. Signals come to the
    main thread: `here` is for work that keeps what it has when it is stopped.
    """
    future = Future[There]()

    def go() -> None:
        try:
            future.set_result(there())
        except BaseException as problem:
            future.set_exception(problem)

    threading.Thread(target=go, name="attnlab beside").start()
    done = here()
    while not wait([future], LOOK_SECONDS).done:
        pass
    return done, future.result()
