"""Runs an engine that steps: batches of runs, from record to record."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics import program
from attnlab.dynamics.progress import Report
from attnlab.dynamics.run import Indices, Recorded, Run, flatten
from attnlab.dynamics.stack import Stack, stacks

# A call into compiled code is long enough to pay and short enough to report progress.
FIRST_CALL_STEPS, CALL_SECONDS, FASTER = 256, 0.5, 16
# On a CPU two QR decompositions at a time, as `Embedded` begins with, wait for each other for ever.
ONE_BEGINS = threading.Lock()


def run_steps(run: Run, report: Report) -> Recorded:
    """Run all settings, seeds and rates, in batches of a size that suits the machine."""
    batches = []
    for alike in stacks(run):
        made = [_Batch(stack, runs) for stack in alike for runs in stack.batches()]
        _compile(made[0])
        batches += made
    # XLA leaves a processor's cores idle in the small operations between matrix products; two
    # batches side by side fill them.
    workers = min(len(batches), os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1
    out = Recorded(run.moments)
    with ThreadPoolExecutor(workers) as pool:
        for batch in pool.map(lambda batch: batch.go(report), batches):
            out.put(run, batch.runs, batch.recorded)  # repeats agree with themselves
    if len(out.failures) == math.prod(run.shape):  # none went on: keep what was reached
        out.keep_before(max(moment for moment, _ in out.failures.values()))
    return out


def _compile(batch: _Batch) -> None:
    """Compile what the batches share, once: take no step, and look without keeping."""
    batch.begin()

    def in_thread(work: Callable[[], Any]) -> None:
        with batch.precision():
            work()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(in_thread, (lambda: batch.call(batch.states, 0), batch.look)))


class _Batch:
    """Some runs that advance together, (setting, seed, rate)."""

    def __init__(self, stack: Stack, runs: Indices) -> None:
        self.stack, self.run, self.runs = stack, stack.run, runs
        _, seed_index, point_index = runs
        self.shape = tuple(index.size for index in runs)
        self.rates = tuple(
            rate[point_index].astype(self.run.dtype) for rate in self.run.grid.rates()
        )
        self.seeds = self.run.grid.seeds[seed_index].astype(np.uint32)
        self.step = 0
        self.pace = FIRST_CALL_STEPS
        self.recorded = Recorded(self.run.moments)

    def go(self, report: Report) -> _Batch:
        """Advance from record to record to the end, or until every run has diverged."""
        runs = math.prod(self.shape)
        with self.precision():
            self.begin()
            for index, moment in enumerate(self.run.moments):
                while self.step < moment:
                    count = min(int(moment) - self.step, self.pace)
                    self._advance(count)
                    report(count * runs)
                    if len(self.recorded.failures) == runs:
                        report((int(self.run.moments[-1]) - self.step) * runs)
                        return self
                self._record(index)
        return self

    def precision(self) -> AbstractContextManager[None]:
        """The run's precision, which is a setting of each thread."""
        return jax.enable_x64(self.run.dtype == np.float64)

    def begin(self) -> None:
        """Put the runs at step 0."""
        self.keys = program.seed_keys(self.seeds, program.DATA_STREAM)
        with ONE_BEGINS:
            self.fixed, trained = jax.block_until_ready(self.stack.begin(self.seeds, self.shape[2]))
        self.states = program.remember(self.run.optimizer, trained)

    def _advance(self, count: int) -> None:
        begun = time.perf_counter()
        states, finite = self.call(self.states, count)
        if not np.all(finite):
            self._find_failures(count, finite)
        self.states = states
        self.step += count
        if count == self.pace:
            seconds = max(time.perf_counter() - begun, 1e-9)
            self.pace = max(1, int(count * min(CALL_SECONDS / seconds, FASTER)))

    def call(self, states: program.State, count: int) -> tuple[program.State, NDArray[np.bool_]]:
        """`count` steps from `states`; which runs are finite as (array, setting, seed, rate)."""
        states, finite = program.advance(
            self.run.model, self.run.optimizer, self.stack.layout, self.stack.source, self.fixed,
            states, self.rates, self.keys, np.int32(self.step), np.int32(count),
        )  # fmt: skip
        return states, np.asarray(finite)

    def _find_failures(self, count: int, finite: NDArray[np.bool_]) -> None:
        """Bisect for the first non-finite step of each run that just failed: steps are replayed
        from the last good states, which draws the same sequences again."""
        seen = {count: finite}

        def finite_after(steps: int) -> NDArray[np.bool_]:
            if steps not in seen:
                seen[steps] = self.call(self.states, steps)[1]
            return seen[steps]

        for setting, seed, point in np.argwhere(~finite.all(axis=0)).tolist():
            if (setting, seed, point) in self.recorded.failures:
                continue
            chosen = (slice(None), setting, seed, point)
            good, bad = 0, count
            while bad - good > 1:
                middle = (good + bad) // 2
                if finite_after(middle)[chosen].all():
                    good = middle
                else:
                    bad = middle
            array = ("Y", "Z")[int(np.argmin(finite_after(bad)[chosen]))]
            self.recorded.failures[setting, seed, point] = (self.step + bad, array)

    def look(self) -> dict[str, NDArray[Any]]:
        """What was asked for, as it is now."""
        record = program.record(
            self.run.model, self.run.what, self.stack.layout, self.stack.source, self.fixed,
            self.states, self.keys, np.int32(self.step),
        )  # fmt: skip
        return flatten(record)

    def _record(self, index: int) -> None:
        for name, value in self.look().items():
            if name not in self.recorded.values:
                shape = (*self.shape, self.run.moments.size, *value.shape[3:])
                self.recorded.values[name] = np.full(shape, np.nan, value.dtype)
            self.recorded.values[name][:, :, :, index] = value
        for failed in self.recorded.failures:
            for values in self.recorded.values.values():
                values[*failed, index] = np.nan
