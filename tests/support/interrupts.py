"""Press Ctrl-C while the work is done in another thread."""

import os
import signal
import time

import pytest

from attnlab.simulation import stopping


class Keyboard:
    """Presses Ctrl-C from any thread, and waits until the work is asked to stop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = self.seen = []

        class Seen(stopping.Stopping):
            def __init__(self) -> None:
                super().__init__()
                seen.append(self)

        monkeypatch.setattr(stopping, "Stopping", Seen)

    def press(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        while not self.seen[-1].asked:
            time.sleep(0.001)

    def press_after(self, fraction: float):
        """Return a function that follows progress, and presses after this fraction of the run."""

        def follow(done: float) -> None:
            if done > fraction and not self.seen[-1].asked:
                self.press()

        return follow


def wait_after_recording() -> None:
    """Make a simulation print when it has two records, and wait there until asked to stop."""
    from attnlab.simulation.groups import Recorded

    keyboard, put = Keyboard(pytest.MonkeyPatch()), Recorded.put

    def wait(recorded: Recorded, shape: tuple[int, ...], index: int, found: object) -> None:
        put(recorded, shape, index, found)
        if index == 1:
            print("recorded", flush=True)
            while not keyboard.seen[-1].asked:
                time.sleep(0.01)

    Recorded.put = wait


def compile_for_ever() -> None:
    """Make a simulation print when it compiles, and then never end."""
    from attnlab.simulation.groups import Group

    def wait(group: object) -> None:
        print("compiling", flush=True)
        time.sleep(600)

    Group.compile = wait
    stopping.GRACE_SECONDS = 600
