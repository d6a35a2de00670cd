"""Stopping: Ctrl-C is answered between two calls into compiled code, where all runs agree."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Stopping:
    """While it is entered, the first Ctrl-C only asks to stop; a second one interrupts at once.

    Signals belong to the main thread: elsewhere nothing changes, nor where the signal is ignored,
    as it is by a job in the background.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Stopping:
        ignored = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)
        if threading.current_thread() is threading.main_thread() and not ignored:
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()

    def _restore(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None
