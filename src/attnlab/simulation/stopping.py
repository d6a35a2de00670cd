"""Runs that end early: by Ctrl-C or by divergence.

Long work is done in a thread of its own, so that Ctrl-C is answered at once.
Python answers a signal in the main thread, between two of its own instructions. A call into
compiled code, or into the compiler, can take many seconds; a thread that only waits for it is
free to answer.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

import xarray as xr

from attnlab.files.errors import InputError

Result = TypeVar("Result")

WAIT_SECONDS = 0.1  # at a time: a signal that another thread was given wakes nobody here
GRACE_SECONDS = 0.75  # for the work to come to where it can stop; a compiler never does
# A call into compiled code is long enough to pay and short enough to stop and to report progress.
CALL_SECONDS, FASTER = 0.5, 16


class Interrupted(KeyboardInterrupt):
    """A simulation was stopped before its end.

    `dataset` holds what was recorded until then, NaN where a run had not come so far; None where
    nothing was.
    """

    def __init__(self, message: str, dataset: xr.Dataset | None) -> None:
        super().__init__(message)
        self.dataset = dataset


class Diverged(ArithmeticError):
    """Some run became non-finite, or was a flow that could not be followed to its end.

    `dataset` holds everything that was recorded before, for every run of the call; its variable
    `diverged_step` has the first non-finite step of each run, or the time at which a flow was
    given up, or -1. Records of a run from there on are NaN.
    """

    def __init__(self, message: str, dataset: xr.Dataset) -> None:
        super().__init__(message)
        self.dataset = dataset


class Stopping:
    """Flags between the work and the thread that waits for it.

    asked: the work should stop; it checks this wherever nothing is half done.
    keeping: the work is stopping and writes its checkpoint, which the other thread waits for.
    """

    def __init__(self) -> None:
        self.asked = self.keeping = False


def answering(work: Callable[[Stopping], Result]) -> Result:
    """Do the work in a thread of its own, and wait here, where a KeyboardInterrupt is raised.

    An interrupt asks the work to stop, waits briefly, and is raised again. Work that is compiling
    does not notice; it is left alone, and ends when it next checks.
    """
    stopping, future = Stopping(), Future[Result]()

    def go() -> None:
        try:
            _require_device()
            future.set_result(work(stopping))
        except BaseException as problem:
            future.set_exception(problem)

    try:
        threading.Thread(target=go, name="attnlab").start()
        while not wait([future], WAIT_SECONDS).done:
            pass
    except KeyboardInterrupt:
        stopping.asked = True
        wait([future], GRACE_SECONDS)
        if stopping.keeping or future.done():
            future.result()  # may say what went wrong in keeping
        raise
    return future.result()


def _require_device() -> None:
    """Refuse to begin where JAX was asked for a device that it cannot use."""
    import jax

    try:
        jax.default_backend()
    except (RuntimeError, AssertionError) as problem:  # the latter where a plugin is missing
        raise InputError(
            f"JAX_PLATFORMS: JAX cannot use {os.environ.get('JAX_PLATFORMS')!r} on this machine"
            f"{f' ({problem})' if str(problem) else ''}; unset it, or install JAX for that device"
        ) from problem


class Pace:
    """Steps of a call into compiled code: few at first, then as many as take half a second."""

    def __init__(self) -> None:
        self.steps = 1

    def took(self, count: int, seconds: float) -> None:
        """Note the seconds of a call of `count` steps; one that was cut short does not count."""
        if count == self.steps:
            self.steps = max(1, int(count * min(CALL_SECONDS / max(seconds, 1e-9), FASTER)))
