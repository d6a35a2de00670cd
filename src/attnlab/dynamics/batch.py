"""Batch: some runs that advance together, from record to record."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics import program
from attnlab.dynamics.run import Indices, Recorded, flatten
from attnlab.dynamics.stack import Stack
from attnlab.dynamics.stopping import Pace, Stopping
from attnlab.files.progress import Report

# On a CPU two QR decompositions at a time, as `Embedded` begins with, wait for each other for ever.
ONE_BEGINS = threading.Lock()


class Batch(ABC):
    """Some runs that advance together, (setting, seed, rate); each engine has its own kind.

    pace: shared by the batches of one compiled program.
    """

    step = 0  # whose sequences the loss is taken of
    note: str | None = None  # told with the progress
    begun = False

    def __init__(self, stack: Stack, runs: Indices, pace: Pace) -> None:
        self.stack, self.run, self.runs, self.pace = stack, stack.run, runs, pace
        self.shape = tuple(index.size for index in runs)
        self.rates = stack.rates(runs[2])
        self.record_steps = self.run.simulation.record_steps
        self.recorded = Recorded(self.record_steps)

    @abstractmethod
    def start(self, states: program.State) -> None:
        """Put the runs at step or time 0."""

    @abstractmethod
    def advance(self, step: Any) -> bool:
        """One call into compiled code on the way to a step or time; whether all runs are there."""

    @abstractmethod
    def compile_advance(self) -> None:
        """Have it compiled, and take no step."""

    @abstractmethod
    def states(self) -> program.State:
        """The runs as they are recorded."""

    @property
    @abstractmethod
    def reached(self) -> float:
        """The step or time that all runs have come to."""

    @property
    @abstractmethod
    def fraction(self) -> float:
        """How much of the way that is."""

    def begin(self) -> None:
        """Put the runs where they start, unless they are there."""
        if self.begun:
            return
        self.begun = True
        with ONE_BEGINS:
            self.keys, self.fixed, states = jax.block_until_ready(self.stack.begin(self.runs))
        self.start(states)

    def go(self, report: Report, stopping: Stopping) -> None:
        """Advance from record to record, to the end, until every run has failed or until asked to
        stop."""
        runs = math.prod(self.shape)
        with self.precision():
            self.begin()
            for index, step in enumerate(self.record_steps):
                there = False
                while not there:
                    if stopping.asked:
                        return
                    before = self.fraction
                    there = self.advance(step)
                    lost = len(self.recorded.failures) == runs
                    report(runs * ((1.0 if lost else self.fraction) - before), self.note)
                    if lost:
                        return
                self._record(index)

    def precision(self) -> AbstractContextManager[None]:
        """The run's precision, which is a setting of each thread."""
        return jax.enable_x64(self.run.dtype == np.float64)

    def observe(self) -> dict[str, NDArray[Any]]:
        """What was asked for, as it is now."""
        record = program.record(
            self.run.simulation.model, self.run.what, self.stack.data, self.fixed, self.states(),
            self.keys, np.int32(self.step),
        )  # fmt: skip
        return flatten(jax.device_get(record))

    def _record(self, index: int) -> None:
        for name, value in self.observe().items():
            if name not in self.recorded.values:
                shape = (*self.shape, self.record_steps.size, *value.shape[3:])
                self.recorded.values[name] = np.full(shape, np.nan, value.dtype)
            self.recorded.values[name][:, :, :, index] = value
        for failed in self.recorded.failures:
            for values in self.recorded.values.values():
                values[*failed, index] = np.nan
        self.recorded.count = index + 1  # last: another thread may take what is there
