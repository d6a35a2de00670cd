"""Signals: Ctrl-C and SIGTERM end the command line at any moment, and never with a traceback.

Light enough to be there before anything else is imported.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from attnlab.cli.exit_codes import INTERRUPTED

AGAIN_SECONDS = 0.05

_asked: int | None = None  # the signal that was given


def listen() -> None:
    """Let the first signal raise KeyboardInterrupt, and a second one end the process; so does the
    first while something is imported.

    One that is ignored stays so, as it is by a job in the background.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _answer)
    sys.unraisablehook = _unraisable


def leave() -> NoReturn:
    """End now, whatever other threads do.

    They may be in compiled code, or compiling, where nothing can stop them; and Python's usual
    end, which takes itself away from under them, aborts the process there.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader is gone
            stream.flush()
    os._exit(INTERRUPTED)


def _answer(number: int, frame: FrameType | None) -> None:
    global _asked
    # An exception that passes through an extension module which is being imported can abort the
    # process, or be lost. Nothing is at stake then: what is computed is kept before more is loaded.
    if _asked is not None or _imports(frame):
        words = "stopped" if _asked is None else "stopped at once"
        os.write(2, f"attnlab: {words}\n".encode())  # print may be at work
        os._exit(INTERRUPTED)
    _asked = number
    raise KeyboardInterrupt


def _imports(frame: FrameType | None) -> bool:
    """Check whether the signal came during an import."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _unraisable(lost: Any) -> None:
    """Send a signal again that was lost in a callback, such as JAX's in the garbage collector."""
    global _asked
    if isinstance(lost.exc_value, KeyboardInterrupt) and _asked is not None:
        again = threading.main_thread().ident, _asked
        _asked = None
        threading.Timer(AGAIN_SECONDS, signal.pthread_kill, again).start()
    else:
        sys.__unraisablehook__(lost)
