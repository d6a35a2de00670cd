"""A run that goes on until it is told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from attnlab import Simulation, simulate
from attnlab.playground import run as run_module

LIMIT = 300  # s, if nobody does


class Endless:
    """Takes the place of `simulate`: runs of `seed` never end by themselves."""

    seed = 1000

    def __init__(self) -> None:
        self.begun, self.ended, self.over = (threading.Event() for _ in range(3))

    def simulate(self, simulation: Simulation, *, progress: Callable[[float], None]) -> Any:
        if simulation.seeds == (self.seed,):
            self.begun.set()
            deadline = time.monotonic() + LIMIT
            try:
                while not self.over.wait(0.01) and time.monotonic() < deadline:
                    progress(0.5)
            except Exception:
                self.ended.set()
                raise
        return simulate(simulation, progress=progress)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endless]:
    made = Endless()
    monkeypatch.setattr(run_module, "simulate", made.simulate)
    yield made
    made.over.set()
