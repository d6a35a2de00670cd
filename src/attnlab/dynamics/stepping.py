"""Runs an engine that steps: batches of runs, from record to record."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics import program
from attnlab.dynamics.engines import Flow, Sampled
from attnlab.dynamics.extended import Extended
from attnlab.dynamics.layout import Layout
from attnlab.dynamics.positions import LearnedPosition
from attnlab.dynamics.progress import Report
from attnlab.dynamics.rows import RowSource, row_source
from attnlab.dynamics.run import Recorded, Run, flatten

# Runs advance together while their arrays stay in a processor's cache, or well within an
# accelerator's memory. XLA's matrix products on a CPU fall to a tenth of their speed when more
# than 16 of them are batched.
WORKING_BYTES = {"cpu": 16 * 2**20}
ACCELERATOR_BYTES = 8 * 2**30
RUNS_AT_ONCE = {"cpu": 16}
# A call into compiled code is long enough to pay and short enough to report progress.
FIRST_CALL_STEPS, CALL_SECONDS, FASTER = 256, 0.5, 16


def run_steps(run: Run, report: Report) -> Recorded:
    """Run all seeds and rates, in batches of a size that suits the machine."""
    assert not isinstance(run.engine, Flow)
    layout = run.layout
    source = row_source(run.engine, run.classes, run.where, run.position)
    seeds, points = run.grid.seeds.size, run.grid.points
    seeds_at_once, points_at_once = _batch_shape(run)
    # The last batch is filled up with repeats, so that one compiled program serves all.
    batches = [
        _Batch(
            run,
            layout,
            source,
            np.arange(first_seed, first_seed + seeds_at_once) % seeds,
            np.arange(first_point, first_point + points_at_once) % points,
        )
        for first_seed in range(0, seeds, seeds_at_once)
        for first_point in range(0, points, points_at_once)
    ]
    _compile(batches[0])
    # XLA leaves a processor's cores idle in the small operations between matrix products; two
    # batches side by side fill them.
    workers = min(len(batches), os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1
    out = Recorded(run.moments)
    with ThreadPoolExecutor(workers) as pool:
        for batch in pool.map(lambda batch: batch.go(report), batches):
            batch.put_into(out)
    if len(out.failures) == run.grid.runs:  # none went on: keep what was reached
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


def _batch_shape(run: Run) -> tuple[int, int]:
    """How many seeds and rate points advance together."""
    layout = run.layout
    outputs = layout.output_multiplicity.size
    shared = layout.shared_multiplicity.size
    tokens = shared + layout.own_multiplicity.size
    rows = run.engine.rows if isinstance(run.engine, Sampled) else len(run.classes)
    blocks, heads = 1, 1
    if isinstance(run.model, Extended):
        blocks, heads = run.model.blocks, run.model.heads
    numbers = 4 * blocks * outputs * tokens + 3 * rows * (outputs + heads * shared)
    if isinstance(run.position, LearnedPosition) and isinstance(run.engine, Sampled):
        numbers += 3 * rows * heads * run.engine.length
    budget = WORKING_BYTES.get(jax.default_backend(), ACCELERATOR_BYTES)
    fitting = max(1, budget // (numbers * run.dtype.itemsize))
    fitting = min(fitting, RUNS_AT_ONCE.get(jax.default_backend(), fitting))
    points = _even_share(run.grid.points, fitting)
    return _even_share(run.grid.seeds.size, max(1, fitting // points)), points


def _even_share(total: int, most: int) -> int:
    """The smallest batch size with which as few batches as possible hold `total`."""
    batches = -(-total // most)
    return -(-total // batches)


class _Batch:
    """Some runs that advance together, (seed, rate)."""

    def __init__(
        self,
        run: Run,
        layout: Layout,
        source: RowSource,
        seed_index: NDArray[np.int64],
        point_index: NDArray[np.int64],
    ) -> None:
        self.run, self.layout, self.source = run, layout, source
        self.seed_index, self.point_index = seed_index, point_index
        self.rates = tuple(rate[point_index].astype(run.dtype) for rate in run.grid.rates())
        self.seeds = run.grid.seeds[seed_index].astype(np.uint32)
        self.step = 0
        self.pace = FIRST_CALL_STEPS
        self.recorded = Recorded(run.moments)

    def go(self, report: Report) -> _Batch:
        """Advance from record to record to the end, or until every run has diverged."""
        runs = self.seed_index.size * self.point_index.size
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

    def put_into(self, out: Recorded) -> None:
        """Add this batch's records to those of the whole call; repeats agree with themselves."""
        target = np.ix_(self.seed_index, self.point_index)
        for name, leaf in self.recorded.values.items():
            if name not in out.values:
                shape = (self.run.grid.seeds.size, self.run.grid.points, *leaf.shape[2:])
                out.values[name] = np.full(shape, np.nan, leaf.dtype)
            out.values[name][target] = leaf
        for (seed, point), failure in self.recorded.failures.items():
            key = int(self.seed_index[seed]), int(self.point_index[point])
            out.failures[key] = failure

    def precision(self) -> AbstractContextManager[None]:
        """The run's precision, which is a setting of each thread."""
        return jax.enable_x64(self.run.dtype == np.float64)

    def begin(self) -> None:
        """Put the runs at step 0."""
        self.keys = program.seed_keys(self.seeds, program.DATA_STREAM)
        self.fixed, trained = self.run.begin(self.seeds, self.point_index.size)
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
        """`count` steps from `states`; which runs are finite as (array, seed, rate)."""
        states, finite = program.advance(
            self.run.model, self.run.optimizer, self.layout, self.source, self.fixed, states,
            self.rates, self.keys, np.int32(self.step), np.int32(count),
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

        for seed, point in np.argwhere(~finite.all(axis=0)):
            if (int(seed), int(point)) in self.recorded.failures:
                continue
            good, bad = 0, count
            while bad - good > 1:
                middle = (good + bad) // 2
                if finite_after(middle)[:, seed, point].all():
                    good = middle
                else:
                    bad = middle
            array = ("Y", "Z")[int(np.argmin(finite_after(bad)[:, seed, point]))]
            self.recorded.failures[int(seed), int(point)] = (self.step + bad, array)

    def look(self) -> dict[str, NDArray[Any]]:
        """What was asked for, as it is now."""
        record = program.record(
            self.run.model, self.run.what, self.layout, self.source, self.fixed, self.states,
            self.keys, np.int32(self.step),
        )  # fmt: skip
        return flatten(record)

    def _record(self, index: int) -> None:
        for name, value in self.look().items():
            if name not in self.recorded.values:
                shape = (*value.shape[:2], self.run.moments.size, *value.shape[2:])
                self.recorded.values[name] = np.full(shape, np.nan, value.dtype)
            self.recorded.values[name][:, :, index] = value
        for seed, point in self.recorded.failures:
            for values in self.recorded.values.values():
                values[seed, point, index] = np.nan
