"""Ctrl-C, pressed while the work is done in another thread."""

import os
import signal
import time

import pytest

from attnlab.dynamics import stopping


class Keyboard:
    """Presses Ctrl-C from any thread, and waits until the work is asked to stop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told = self.told = []

        class Told(stopping.Stopping):
            def __init__(self) -> None:
                super().__init__()
                told.append(self)

        monkeypatch.setattr(stopping, "Stopping", Told)

    def press(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        while not self.told[-1].asked:
            time.sleep(0.001)

    def press_after(self, fraction: float):
        """A function that follows progress, and presses once that much is done."""

        def follow(done: float) -> None:
            if done > fraction and not self.told[-1].asked:
                self.press()

        return follow


def wait_after_recording() -> None:
    """Have a simulation say when it has two records, and wait there until it is asked to stop."""
    from attnlab.dynamics.batch import Batch

    keyboard, record = Keyboard(pytest.MonkeyPatch()), Batch._record

    def wait(batch: Batch, index: int) -> None:
        record(batch, index)
        if index == 1:
            print("recorded", flush=True)
            while not keyboard.told[-1].asked:
                time.sleep(0.01)

    Batch._record = wait


def compile_for_ever() -> None:
    """Have a simulation say when it compiles, which takes as long as it is waited for."""
    from attnlab.dynamics import driving

    def wait(batch: object) -> None:
        print("compiling", flush=True)
        time.sleep(600)

    driving._compile = wait
    stopping.GRACE_SECONDS = 600
