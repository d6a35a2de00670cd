"""The batches of an engine that steps."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics import program
from attnlab.dynamics.batch import Batch


class SteppingBatch(Batch):
    """Runs at one common step."""

    def start(self, states: program.State) -> None:
        self.state = states

    def states(self) -> program.State:
        return self.state

    @property
    def reached(self) -> float:
        return self.step

    @property
    def fraction(self) -> float:
        return self.step / max(int(self.record_steps[-1]), 1)

    def compile_advance(self) -> None:
        self.call(0)

    def advance(self, step: int) -> bool:
        count = min(int(step) - self.step, self.pace.steps)
        if count:
            begun = time.perf_counter()
            state, finite = self.call(count)
            self.pace.took(count, time.perf_counter() - begun)
            if not np.all(finite):
                self._find_failures(count, finite)
            self.state = state
            self.step += count
        return self.step == step

    def call(self, count: int) -> tuple[program.State, NDArray[np.bool_]]:
        """The runs `count` steps later; which are finite as (array, setting, seed, rate)."""
        state, finite = program.advance(
            self.stack.learner, self.stack.data, self.fixed, self.state, self.rates, self.keys,
            np.int32(self.step), np.int32(count),
        )  # fmt: skip
        return state, np.asarray(finite)

    def _find_failures(self, count: int, finite: NDArray[np.bool_]) -> None:
        """Bisect for the first non-finite step of each run that just failed: steps are replayed
        from the last good states, which draws the same sequences again."""
        seen = {count: finite}

        def finite_after(steps: int) -> NDArray[np.bool_]:
            if steps not in seen:
                seen[steps] = self.call(steps)[1]
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
            name = self.run.simulation.model.groups[int(np.argmin(finite_after(bad)[chosen]))]
            failure = self.step + bad, f"{name} became non-finite"
            self.recorded.failures[setting, seed, point] = failure
