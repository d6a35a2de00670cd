"""Runs of a value, compiled and begun, whose steps and records are timed apart from compiling."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax

from attnlab.simulation import Simulation
from attnlab.simulation.groups import Stepping, stacks
from attnlab.simulation.program import numbers
from attnlab.simulation.stopping import Pace


def seconds(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class Runs:
    """The runs of a value, compiled and one step on, to be advanced and observed apart.

    Groups advance side by side on a processor, as `simulate` has them.
    """

    def __init__(self, run: Simulation) -> None:
        begun = time.perf_counter()
        self.run, pace = run, Pace()
        with numbers(run):
            self.groups = [
                Stepping(stack, runs, pace)
                for alike in stacks(run)
                for stack in alike
                for runs in stack.groups()
            ]
            self.groups[0].compile()
            for group in self.groups:
                group.begin()
        cores = os.cpu_count() or 1 if jax.default_backend() == "cpu" else 1
        self.pool = ThreadPoolExecutor(min(cores, len(self.groups)))
        self.advance(1)
        self.compiling = time.perf_counter() - begun

    def advance(self, count: int) -> None:
        """Take `count` steps with every run."""
        list(self.pool.map(partial(self._advance, count), self.groups))

    def _advance(self, count: int, group: Stepping) -> None:
        with numbers(self.run):
            target = group.step + count
            while not group.advance(target):
                pass
            jax.block_until_ready(group.state)

    def observe(self) -> None:
        """Make a record of every run, and drop it."""
        with numbers(self.run):
            for group in self.groups:
                group.observe()
