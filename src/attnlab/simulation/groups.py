"""Groups of runs that advance together in one compiled program, by steps or in flow time."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics.stopping import Pace
from attnlab.files.checkpoint import Arrays, arrays_of, tree_of
from attnlab.models.base import Params
from attnlab.simulation import flow, program
from attnlab.simulation.motion import Flow
from attnlab.simulation.run import Run

Failure = tuple[float, str]  # the step or time, and the cause


@dataclass(frozen=True)
class Part:
    """Some seeds and points of a run, as slices of its axes."""

    seeds: slice
    points: slice


class Group(ABC):
    """Runs that advance together; each lives between calls as arrays (seed, point, ...)."""

    def __init__(self, run: Run, part: Part) -> None:
        self.run, self.part = run, part
        self.rates = run.rate_arrays(part.points)
        self.seeds = np.asarray(run.seeds, np.uint32)[part.seeds]
        self.kept, self.first = program.begin(
            run.plan, jnp.asarray(self.seeds), self.rates, run.start()
        )

    @abstractmethod
    def advance(self, target: float, pace: Pace) -> bool:
        """Make one call into compiled code towards a step or time; return whether all arrived."""

    @abstractmethod
    def compile(self) -> None:
        """Have `advance` compiled."""

    @abstractmethod
    def params(self) -> Params:
        """The parameters as they are recorded."""

    @property
    @abstractmethod
    def reached(self) -> float:
        """The step or time that all runs have come to."""

    @abstractmethod
    def failures(self) -> dict[tuple[int, int], Failure]:
        """The runs that failed, by seed and point within the group."""

    def observe(self) -> dict[str, NDArray[Any]]:
        """Return what is recorded, (seed, point, ...)."""
        step = jnp.int32(self.reached if self.run.motion.clock == "step" else 0)
        found = program.record(self.run.plan, self.kept, self.params(), step)
        return {name: np.asarray(of) for name, of in jax.device_get(found).items()}

    def arrays(self) -> Arrays:
        """All that a checkpoint needs, by name."""
        return arrays_of(self.state)

    def restore(self, arrays: Arrays) -> None:
        """Put the runs where they were when `arrays` were taken."""
        self.state = tree_of(arrays, like=self.state)

    state: Any


class Stepping(Group):
    """Runs at one common step."""

    def __init__(self, run: Run, part: Part) -> None:
        super().__init__(run, part)
        self.state = self.first, np.zeros(1, np.int32)  # files keep no scalars

    def compile(self) -> None:
        """Take no step."""
        self.call(0)

    def call(self, count: int) -> None:
        """Take `count` steps."""
        states, (step,) = self.state
        states = program.advance(
            self.run.plan, self.kept, states, self.rates, np.int32(step), np.int32(count)
        )
        self.state = jax.block_until_ready(states), np.asarray([step + count], np.int32)

    def advance(self, target: float, pace: Pace) -> bool:
        """Take steps for about half a second."""
        count = min(int(target) - int(self.reached), pace.steps)
        if count:
            begun = time.perf_counter()
            self.call(count)
            pace.took(count, time.perf_counter() - begun)
        return self.reached == target

    def params(self) -> Params:
        """The parameters of the groups that move."""
        params: Params = self.state[0].params
        return params

    @property
    def reached(self) -> float:
        """The step."""
        return float(self.state[1][0])

    def failures(self) -> dict[tuple[int, int], Failure]:
        """The first step of a run that was not finite, and what was not."""
        found: dict[tuple[int, int], Failure] = {}
        for name, steps in jax.device_get(self.state[0].failed).items():
            for seed, point in np.argwhere(steps >= 0).tolist():
                failure = float(steps[seed, point]), f"{name} became non-finite"
                found[seed, point] = min(found.get((seed, point), failure), failure)
        return found


class Flowing(Group):
    """Runs of a flow, each at a time of its own."""

    def __init__(self, run: Run, part: Part) -> None:
        super().__init__(run, part)
        # times and learning rates are not part of the program
        self.flow = replace(cast(Flow, run.motion), time=1.0, learning_rate=1.0)
        self.state = flow.begin(run.plan, self.flow, self.kept, self.first.params, self.rates)
        self.arrived = np.zeros(self.state.time.shape, bool)
        self.target = 0.0

    def compile(self) -> None:
        """Take no step."""
        self.advance(0.0, Pace())

    def advance(self, target: float, pace: Pace) -> bool:
        """Take steps of the solver for about half a second."""
        before, begun = np.max(self.state.taken), time.perf_counter()
        self.state, arrived, lost = flow.advance(
            self.run.plan, self.flow, self.kept, self.state, self.rates,
            jnp.asarray(target, self.run.dtype), np.int32(pace.steps),
        )  # fmt: skip
        self.arrived, self.target = np.asarray(arrived), target
        pace.took(int(np.max(self.state.taken) - before), time.perf_counter() - begun)
        return bool(np.all(self.arrived | np.asarray(lost)))

    def params(self) -> Params:
        """The parameters at the time that was asked for last."""
        params: Params = self.state.there
        return params

    @property
    def reached(self) -> float:
        """The time of the run that is least far."""
        times = np.where(self.arrived, self.target, np.asarray(self.state.time))
        return float(times.min())

    def failures(self) -> dict[tuple[int, int], Failure]:
        """The time at which a run was given up, and why."""
        time, size, taken = (
            np.asarray(of) for of in (self.state.time, self.state.size, self.state.taken)
        )
        spent = taken >= self.flow.most_steps
        lost = ((time + size == time) | spent) & ~self.arrived
        causes = {
            True: f"the flow was given up after {self.flow.most_steps:,} steps",
            False: f"the flow could take no further step in {self.run.dtype}",
        }
        found = {}
        for seed, point in np.argwhere(lost).tolist():
            found[seed, point] = float(time[seed, point]), causes[bool(spent[seed, point])]
        return found


KINDS: dict[str, type[Group]] = {"step": Stepping, "time": Flowing}


def parts_of(run: Run, cores: int) -> list[Part]:
    """Divide the runs into equal groups, as many as there are cores for where that is possible."""
    seeds, points = run.shape
    if cores == 1:
        return [Part(slice(None), slice(None))]
    if seeds > 1:
        size = seeds // cores if seeds % cores == 0 else 1
        return [Part(slice(i, i + size), slice(None)) for i in range(0, seeds, size)]
    size = points // cores if points % cores == 0 else 1
    return [Part(slice(None), slice(i, i + size)) for i in range(0, points, size)]
