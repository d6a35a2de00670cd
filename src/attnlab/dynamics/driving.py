"""Drive: takes all runs of a call to their end, batch beside batch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import jax
import numpy as np

from attnlab.dynamics.batch import Batch
from attnlab.dynamics.run import Recorded, Run
from attnlab.dynamics.stack import stacks
from attnlab.dynamics.stopping import Pace, Stopping
from attnlab.files.progress import Report

# Of the programs that are compiled already.
PACES: dict[Hashable, Pace] = {}


class Drive:
    """All settings, seeds and rates of a run, in batches of a size that suits the machine."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.batches: list[Batch] = []

    def go(self, report: Report, stopping: Stopping) -> None:
        """Compile, then advance; asks `stopping` between calls into compiled code."""
        kind = self.run.simulation.engine.batch
        with jax.enable_x64(self.run.dtype == np.float64):
            for alike in stacks(self.run):
                programs = alike[0].programs
                pace = PACES.get(programs, Pace())
                made = [kind(stack, runs, pace) for stack in alike for runs in stack.batches()]
                if programs not in PACES:
                    _compile(made[0])
                    PACES[programs] = pace
                self.batches += made
                if stopping.asked:
                    return
        # XLA leaves a processor's cores idle in the small operations between matrix products; two
        # batches side by side fill them.
        on_cpu = jax.default_backend() == "cpu"
        workers = min(len(self.batches), os.cpu_count() or 1) if on_cpu else 1

        def advance(batch: Batch) -> None:
            try:
                batch.go(report, stopping)
            except BaseException:
                stopping.asked = True  # the others need not go on
                raise

        with ThreadPoolExecutor(workers) as pool:
            for done in as_completed([pool.submit(advance, batch) for batch in self.batches]):
                done.result()

    def recorded(self) -> Recorded:
        """What was recorded up to now; the batches may still be at work."""
        out = Recorded(self.run.simulation.record_steps)
        for batch in self.batches:
            out.put(self.run, batch.runs, batch.recorded)  # repeats agree with themselves
        if len(out.failures) == math.prod(self.run.shape):  # none went on: keep what was reached
            out.keep_before(max(step for step, _ in out.failures.values()))
        return out

    def place(self) -> str:
        """How far the runs are, in words."""
        simulation = self.run.simulation
        clock, last = simulation.clock, simulation.record_steps[-1]
        reached = sorted({batch.reached for batch in self.batches} or {0})
        form = "," if clock == "step" else ".4g"
        if len(reached) > 1:
            return f"{clock}s {reached[0]:{form}} to {reached[-1]:{form}} of {last:{form}}"
        return f"{clock} {reached[0]:{form}} of {last:{form}}"


def _compile(batch: Batch) -> None:
    """Compile what the batches share, once: take no step, and record nothing."""
    batch.begin()

    def in_thread(work: Callable[[], Any]) -> None:
        with batch.precision():
            work()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(in_thread, (batch.compile_advance, batch.observe)))
