"""Runs an engine that steps: batches of runs, from record to record."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics import program
from attnlab.dynamics.engines import Flow, LimitRows, Sampled, SampledRows, row_source
from attnlab.dynamics.layout import Layout
from attnlab.dynamics.progress import Report
from attnlab.dynamics.run import Recorded, Run, flatten

# Runs advance together while their arrays stay in a processor's cache, or well within an
# accelerator's memory.
WORKING_BYTES = {"cpu": 16 * 2**20}
ACCELERATOR_BYTES = 8 * 2**30
# A call into compiled code is long enough to pay and short enough to report progress.
FIRST_CALL_STEPS, CALL_SECONDS, FASTER = 256, 0.5, 16


def run_steps(run: Run, report: Report) -> Recorded:
    """Run all seeds and rates, in batches of a size that suits the machine."""
    assert not isinstance(run.engine, Flow)
    layout = run.layout.on_device(run.dtype)
    source = row_source(run.engine, run.classes)
    eta_y, eta_z = run.grid.rates()
    seeds, points = run.grid.seeds.size, run.grid.points
    seeds_at_once, points_at_once = _batch_shape(run)
    out = Recorded(run.moments)
    for first_seed in range(0, seeds, seeds_at_once):
        for first_point in range(0, points, points_at_once):
            # The last batch is filled up with repeats, so that one compiled program serves all.
            seed_index = np.arange(first_seed, first_seed + seeds_at_once) % seeds
            point_index = np.arange(first_point, first_point + points_at_once) % points
            new_seeds = min(seeds_at_once, seeds - first_seed)
            new_points = min(points_at_once, points - first_point)
            rates = (eta_y[point_index], eta_z[point_index])
            batch = _Batch(run, layout, source, run.grid.seeds[seed_index], rates)
            batch.go(lambda steps, runs=new_seeds * new_points: report(steps * runs))
            target = np.ix_(seed_index[:new_seeds], point_index[:new_points])
            for name, leaf in batch.recorded.values.items():
                if name not in out.values:
                    out.values[name] = np.full((seeds, points, *leaf.shape[2:]), np.nan, leaf.dtype)
                out.values[name][target] = leaf[:new_seeds, :new_points]
            for (s, p), failure in batch.recorded.failures.items():
                if s < new_seeds and p < new_points:
                    out.failures[int(seed_index[s]), int(point_index[p])] = failure
    return out


def _batch_shape(run: Run) -> tuple[int, int]:
    """How many seeds and rate points advance together."""
    layout = run.layout
    outputs = layout.output_multiplicity.size
    shared = layout.shared_multiplicity.size
    tokens = shared + layout.own_multiplicity.size
    rows = run.engine.batch_size if isinstance(run.engine, Sampled) else len(run.classes)
    numbers = 4 * outputs * tokens + 3 * rows * (outputs + shared)
    budget = WORKING_BYTES.get(jax.default_backend(), ACCELERATOR_BYTES)
    fitting = max(1, budget // (numbers * run.dtype.itemsize))
    points = _even_share(run.grid.points, fitting)
    return _even_share(run.grid.seeds.size, max(1, fitting // points)), points


def _even_share(total: int, most: int) -> int:
    """The batch size of at most `most` that splits `total` most evenly."""
    batches = -(-total // min(total, most))
    return -(-total // batches)


class _Batch:
    """Some runs that advance together, (seed, rate)."""

    def __init__(
        self,
        run: Run,
        layout: Layout,
        source: SampledRows | LimitRows,
        seeds: NDArray[np.int64],
        rates: tuple[NDArray[np.float64], NDArray[np.float64]],
    ) -> None:
        self.run, self.layout, self.source = run, layout, source
        self.rates = tuple(jnp.asarray(rate, run.dtype) for rate in rates)
        self.keys = jnp.stack([program.seed_key(int(s), program.DATA_STREAM) for s in seeds])
        self.fixed, trained = run.start(seeds, rates[0].size)
        self.states = program.start(run.optimizer, trained)
        self.step = 0
        self.calls = 0
        self.pace = FIRST_CALL_STEPS
        self.recorded = Recorded(run.moments)

    def go(self, report: Report) -> None:
        """Advance from record to record to the end, or until every run has diverged."""
        last = int(self.run.moments[-1])
        for index, moment in enumerate(self.run.moments):
            while self.step < moment:
                count = min(int(moment) - self.step, self.pace)
                self._advance(count)
                report(count)
                if len(self.recorded.failures) == self.keys.size * self.rates[0].size:
                    report(last - self.step)
                    return
            self._record(index)

    def _advance(self, count: int) -> None:
        begun = time.perf_counter()
        states, finite = self._call(self.states, count)
        if not np.all(finite):
            self._find_failures(count, finite)
        self.states = states
        self.step += count
        self.calls += 1
        if self.calls > 1 and count == self.pace:  # the first call may have compiled
            seconds = max(time.perf_counter() - begun, 1e-9)
            self.pace = max(1, int(count * min(CALL_SECONDS / seconds, FASTER)))

    def _call(self, states: program.State, count: int) -> tuple[program.State, NDArray[np.bool_]]:
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
                seen[steps] = self._call(self.states, steps)[1]
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

    def _record(self, index: int) -> None:
        record = program.record(
            self.run.model, self.run.what, self.layout, self.source, self.fixed, self.states,
            self.keys, np.int32(self.step),
        )  # fmt: skip
        for name, value in flatten(record).items():
            if name not in self.recorded.values:
                shape = (*value.shape[:2], self.run.moments.size, *value.shape[2:])
                self.recorded.values[name] = np.full(shape, np.nan, value.dtype)
            self.recorded.values[name][:, :, index] = value
        for seed, point in self.recorded.failures:
            for values in self.recorded.values.values():
                values[seed, point, index] = np.nan
