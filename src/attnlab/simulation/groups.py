"""Groups of runs that advance together in one compiled program, by steps or in flow time."""

from __future__ import annotations

import json
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from attnlab.files.checkpoint import Arrays, arrays_of, check_arrays, tree_of
from attnlab.files.progress import Report
from attnlab.simulation import flow, program
from attnlab.simulation.learner import MEAN_LOSS
from attnlab.simulation.simulation import Simulation
from attnlab.simulation.stopping import Pace, Stopping

# Runs advance together while their arrays stay in a processor's cache, or well within an
# accelerator's memory. XLA's matrix products on a CPU fall to a tenth of their speed when more
# than 16 of them are batched.
WORKING_BYTES = {"cpu": 16 * 2**20}
RUNS_AT_ONCE = {"cpu": 16}
ACCELERATOR_SHARE = 0.6  # of an accelerator's memory, for the runs of one program
# On a CPU two QR decompositions at once, which some starts need, deadlock.
ONE_BEGINS = threading.Lock()

RECORD, STATE = "record/", "state/"

Indices = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # setting, seed, point
Failure = tuple[float, str]  # the step or time, and the cause


@dataclass
class Recorded:
    """Records: arrays (setting, seed, point, step, ...), by name.

    count: of the records that are whole. failures: by setting, seed and point.
    """

    steps: NDArray[Any]
    values: Arrays = field(default_factory=dict)
    count: int = 0
    failures: dict[tuple[int, int, int], Failure] = field(default_factory=dict)

    def put(self, shape: tuple[int, ...], index: int, found: Arrays) -> None:
        """Add the record `index` of runs of this shape; failed runs are NaN."""
        for name, value in found.items():
            if name not in self.values:
                whole = (*shape, self.steps.size, *value.shape[3:])
                self.values[name] = np.full(whole, np.nan, value.dtype)
            self.values[name][:, :, :, index] = value
        for failed in self.failures:
            for values in self.values.values():
                values[*failed, index] = np.nan
        self.count = index + 1  # last: another thread may take what is there

    def gather(self, run: Simulation, runs: Indices, some: Recorded) -> None:
        """Add what was recorded of the runs with these settings, seeds and points."""
        # taken as they are: a group that is left behind may still be at work on the next record
        count, failures = some.count, dict(some.failures)
        places: Any = (*np.ix_(*runs), slice(count))
        records = {name: leaf[:, :, :, :count] for name, leaf in dict(some.values).items()}
        shape = len(run.tables), len(run.seeds), run.grid.points  # type: ignore[arg-type]
        for name, leaf in run.learner.unpack(run, runs[0], records if count else {}).items():
            if name not in self.values:
                whole = (*shape, self.steps.size, *leaf.shape[4:])
                self.values[name] = np.full(whole, np.nan, leaf.dtype)
            self.values[name][places] = leaf
        self.count = max(self.count, count)
        for place, failure in failures.items():
            setting, seed, point = (int(of[i]) for of, i in zip(runs, place, strict=True))
            self.failures[setting, seed, point] = failure

    def keep_before(self, step: float) -> None:
        """Drop the records from `step` on."""
        self.count = min(self.count, int(np.searchsorted(self.steps, step)))
        self.drop_the_rest()

    def drop_the_rest(self) -> None:
        """Drop the records that no run has come to."""
        self.steps = self.steps[: self.count]
        self.values = {name: leaf[:, :, :, : self.count] for name, leaf in self.values.items()}


@dataclass(frozen=True)
class Stack:
    """Settings whose tables have the same shapes, with a leading axis that counts them.

    at_once: how many seeds and points of them advance together.
    """

    run: Simulation
    plan: program.Plan
    settings: NDArray[np.int64]
    tables: Any
    at_once: tuple[int, int]

    @property
    def shared(self) -> tuple[program.Plan, Any]:
        """First arguments of all programs."""
        return self.plan, self.tables

    @property
    def programs(self) -> Hashable:
        """All that its programs are compiled for."""
        leaves, structure = jax.tree.flatten(self.tables)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        start = jax.tree.structure(self.run.learner.start(self.run))
        independent, dtype = self.run.independent, self.run.dtype
        clock = self.run.clock, self.run.precision
        return self.plan, dtype, clock, independent, self.at_once, structure, shapes, start

    def rates(self, points: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the learning rates at these points, by group."""
        rates = self.run.grid.rates()
        return {name: of[points].astype(self.run.dtype) for name, of in rates.items()}

    def groups(self) -> Iterator[Indices]:
        """Yield the settings, seeds and points that advance together."""
        seeds, points = len(self.run.seeds), self.run.grid.points  # type: ignore[arg-type]
        for some_seeds in _cut(seeds, self.at_once[0]):
            for some_points in _cut(points, self.at_once[1]):
                yield self.settings, some_seeds, some_points

    def beginning(self, runs: Indices) -> tuple[Any, ...]:
        """Return the arguments of `program.begin` for these settings, seeds and points."""
        settings, some_seeds, points = runs
        seeds = np.asarray(self.run.seeds, dtype=np.uint32)[some_seeds]
        salt = self.run.salt(settings[0], points[0]) if self.run.independent else None
        start = program.start_of(self.run)
        return *self.shared, seeds, salt, self.rates(points), start


def stacks(run: Simulation) -> Iterator[list[Stack]]:
    """Yield all settings of a run, in lists that share their compiled programs."""
    plan = program.plan_of(run, run.learner.recorded(run))
    same_shape: dict[Any, list[tuple[int, Any]]] = {}
    for number, tables in enumerate(run.tables):
        leaves, structure = jax.tree.flatten(tables)
        key = structure, tuple((np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves)
        same_shape.setdefault(key, []).append((number, tables))
    for members in same_shape.values():
        at_once = _at_once(run, len(members), members[0][1])
        made = []
        for chosen in _cut(len(members), at_once[0]):
            numbers, tables = zip(*(members[i] for i in chosen), strict=True)
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *tables)
            arrays = program.on_device(stacked, run.dtype)
            made.append(Stack(run, plan, np.array(numbers), arrays, at_once[1:]))
        yield made


def _at_once(run: Simulation, settings: int, tables: Any) -> tuple[int, int, int]:
    """Return how many settings, seeds and points advance together."""
    backend = jax.default_backend()
    bytes_of_run = max(1, run.learner.bytes_of_run(run, tables))
    seeds, points = len(run.seeds), run.grid.points  # type: ignore[arg-type]
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 8 * 2**30)
    budget = WORKING_BYTES.get(backend, int(ACCELERATOR_SHARE * limit))
    most = RUNS_AT_ONCE.get(backend, seeds * points * settings)
    if backend == "cpu":
        most = min(most, run.learner.runs_at_once(run))
    fitting = max(1, min(most, budget // bytes_of_run))
    if run.independent:
        return 1, _even_share(seeds, fitting), 1
    points_at_once = _even_share(points, fitting)
    seeds_at_once = _even_share(seeds, max(1, fitting // points_at_once))
    together = seeds_at_once * points_at_once
    # a setting needs memory for its runs and for the tables that its sequences are drawn from
    of_tables = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tables))
    bytes_of_setting = together * bytes_of_run + of_tables
    fitting = max(1, min(most // together, budget // bytes_of_setting))
    return _even_share(settings, fitting), seeds_at_once, points_at_once


def _even_share(total: int, most: int) -> int:
    """Return the smallest group size with which as few groups as possible hold `total`."""
    groups = -(-total // most)
    return -(-total // groups)


def _cut(total: int, size: int) -> list[NDArray[np.int64]]:
    """Return 0 to `total` - 1 in pieces of one size, so that one compiled program serves all.

    The last is filled up with repeats.
    """
    return [np.arange(first, first + size) % total for first in range(0, total, size)]


class Group(ABC):
    """Runs that advance together, (setting, seed, point), from record to record.

    pace: shared by the groups of one compiled program.
    """

    note: str | None = None  # shown with the progress
    step = 0  # of optimizers
    counted = 0  # steps in the running sum of the training loss
    kept: program.Kept
    state: Any

    def __init__(self, stack: Stack, runs: Indices, pace: Pace) -> None:
        self.stack, self.run, self.plan = stack, stack.run, stack.plan
        self.runs, self.pace = runs, pace
        self.shape = tuple(index.size for index in runs)
        self.rates = stack.rates(runs[2])
        self.clock = self.run.record_steps
        self.recorded = Recorded(self.clock)
        self.begun = self.done = False
        self.shown: tuple[Any, NDArray[np.int64]] | None = None

    @abstractmethod
    def start(self, states: program.State) -> None:
        """Put the runs at step or time 0."""

    @abstractmethod
    def advance(self, target: Any) -> bool:
        """Make one call into compiled code towards a step or time; return whether all arrived."""

    @abstractmethod
    def trace(self, kept: Any, states: Any) -> Iterator[jax.stages.Traced]:
        """Trace what follows `program.begin`, from the shapes of what that returns."""

    @abstractmethod
    def states(self) -> program.State:
        """Return the runs as they are recorded."""

    @property
    @abstractmethod
    def reached(self) -> float:
        """The step or time that all runs have come to."""

    @property
    @abstractmethod
    def fraction(self) -> float:
        """Fraction of the run completed."""

    def begin(self) -> None:
        """Put the runs where they start, unless they are there."""
        if self.begun:
            return
        self.begun = True
        with ONE_BEGINS:
            begun = program.begin(*self.stack.beginning(self.runs))
            self.kept, states = jax.block_until_ready(begun)
        self.start(states)

    def compile(self) -> None:
        """Compile the programs of these runs side by side, and run none of them.

        Tracing holds Python's lock and the compiler does not: one program is compiled while the
        next is traced.
        """
        with ThreadPoolExecutor() as pool:
            begin = program.begin.trace(*self.stack.beginning(self.runs))
            work = [pool.submit(begin.lower().compile)]
            for traced in self.trace(*begin.out_info):
                work.append(pool.submit(traced.lower().compile))
            for compiling in work:
                compiling.result()

    def go(self, report: Report, stopping: Stopping, after_call: Callable[[], None]) -> None:
        """Advance from record to record, to the end, until every run has failed or until asked to
        stop; `after_call` is called wherever nothing is half done."""
        runs = math.prod(self.shape)
        if self.done:
            report(runs, None)
        if self.done or stopping.asked:
            return
        with program.numbers(self.run):
            self.begin()
            report(runs * self.fraction, None)
            while not (self.done or stopping.asked):
                before = self.fraction
                there = self.advance(self.clock[self.recorded.count])
                lost = len(self.recorded.failures) == runs
                report(runs * ((1.0 if lost else self.fraction) - before), self.note)
                if there and not lost:
                    self.recorded.put(self.shape, self.recorded.count, self.observe())
                self._show(done=lost or self.recorded.count == self.clock.size)
                after_call()

    def observe(self) -> Arrays:
        """Return what was asked for, as it is now."""
        step = np.int32(self.reached if self.run.clock == "step" else 0)
        record = program.record(*self.stack.shared, self.kept, self.states(), step)
        return flatten(jax.device_get(record))

    def _show(self, *, done: bool) -> None:
        """Put state, position and count where a thread that writes a checkpoint finds them."""
        self.done = done
        counted = [self.recorded.count, int(done), self.step, self.counted]
        self.shown = self.state, np.asarray(counted, np.int64)

    def arrays(self) -> Arrays:
        """Return all that a checkpoint needs, by name, as it was after the last call; {} before.

        Another thread may ask: the state is replaced, never written to, and records only grow.
        What is there of the next record is recorded again after a resume.
        """
        if self.shown is None:
            return {}
        state, counted = self.shown
        records = {RECORD + name: of.copy() for name, of in dict(self.recorded.values).items()}
        failures = [[*place, *failure] for place, failure in self.recorded.failures.items()]
        return {
            **{STATE + name: of for name, of in arrays_of(state).items()},
            **records,
            "counted": counted,
            "failures": np.frombuffer(json.dumps(failures).encode(), np.uint8),
        }

    def restore(self, path: Path, arrays: Arrays) -> None:
        """Put the runs where they were when `arrays` were taken."""
        self.begin()
        states = {STATE + name: of.shape for name, of in arrays_of(self.state).items()}
        check_arrays(path, arrays, {**states, "counted": (4,)})
        self.state = tree_of(inside(arrays, STATE), like=self.state)
        self.recorded.count, done, self.step, self.counted = map(int, arrays["counted"])
        self.recorded.values = {name: of.copy() for name, of in inside(arrays, RECORD).items()}
        for *place, step, cause in json.loads(arrays["failures"].tobytes() or b"[]"):
            self.recorded.failures[tuple(place)] = step, cause
        self._show(done=bool(done))


class Stepping(Group):
    """Runs at one common step."""

    def start(self, states: program.State) -> None:
        self.state = states

    def states(self) -> program.State:
        if MEAN_LOSS not in self.plan.what:
            return self.state
        mean = self.state.loss_sum / np.asarray(self.counted or np.nan, self.run.dtype)
        return self.state._replace(loss_sum=mean)

    @property
    def reached(self) -> float:
        return self.step

    @property
    def fraction(self) -> float:
        return self.step / max(int(self.clock[-1]), 1)

    def trace(self, kept: Any, states: Any) -> Iterator[jax.stages.Traced]:
        shared, zero = (*self.stack.shared, kept, states), np.int32(0)
        yield program.advance.trace(*shared, self.rates, zero, zero)
        yield program.record.trace(*shared, zero)

    def advance(self, target: int) -> bool:
        count = min(int(target) - self.step, self.pace.steps)
        period = self.run.learner.pass_steps(self.run) if self.run.motion.reset_moments else 0
        if period:
            count = min(count, period - self.step % period)
        if count:
            if period and self.step and self.step % period == 0:
                self.state = program.forget(self.plan, self.state, self.rates)
            begun = time.perf_counter()
            state, finite = self.call(count)
            self.pace.took(count, time.perf_counter() - begun)
            if not np.all(finite):
                self._find_failures(count, finite)
            self.state = state
            self.step += count
            self.counted += count
            if MEAN_LOSS in self.plan.what:
                losses = np.asarray(state.loss_sum) / self.counted
                if np.isfinite(losses).any():
                    self.note = f"loss {losses[np.isfinite(losses)].mean():.3f}"
        return self.step == target

    def call(self, count: int) -> tuple[program.State, NDArray[np.bool_]]:
        """Return the runs `count` steps later, and which groups of parameters are finite."""
        shared, steps = self.stack.shared, (np.int32(self.step), np.int32(count))
        state, finite = program.advance(*shared, self.kept, self.state, self.rates, *steps)
        return state, np.asarray(finite)

    def observe(self) -> Arrays:
        found = super().observe()
        if MEAN_LOSS in self.plan.what:
            self.state = self.state._replace(loss_sum=jnp.zeros_like(self.state.loss_sum))
            self.counted = 0
        return found

    def _find_failures(self, count: int, finite: NDArray[np.bool_]) -> None:
        """Bisect for the first non-finite step of each run that just failed.

        Steps are replayed from the last good states, which draws the same batches again.
        """
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
            group = self.plan.moving[int(np.argmin(finite_after(bad)[chosen]))]
            name = group if self.run.model is None else self.run.model.words.get(group, group)
            self.recorded.failures[setting, seed, point] = (
                self.step + bad,
                f"{name} became non-finite",
            )


class Flowing(Group):
    """Runs of the flow, each at a time of its own."""

    def start(self, states: program.State) -> None:
        limits = flow.limits_of(self.run, 0)
        self.state = flow.begin(*self.stack.shared, self.kept, states.params, self.rates, limits)
        self.times = np.zeros(self.shape, self.run.dtype)

    def states(self) -> program.State:
        return self._there(self.state)

    def _there(self, state: flow.State) -> program.State:
        return program.State(dict(zip(self.plan.moving, state.there, strict=True)), (), ())

    @property
    def reached(self) -> float:
        return float(self.times.min())

    @property
    def fraction(self) -> float:
        """By the logarithm of time: steps grow with it."""
        passed, last = (np.log1p(t / flow.FIRST_STEP) for t in (self.times, self.clock[-1]))
        return float(passed.mean() / last) if last else 1.0

    def trace(self, kept: Any, states: Any) -> Iterator[jax.stages.Traced]:
        shared, limits = (*self.stack.shared, kept), flow.limits_of(self.run, 0)
        begin = flow.begin.trace(*shared, states.params, self.rates, limits)
        yield begin
        now, zero = begin.out_info, np.asarray(0, self.run.dtype)
        yield flow.advance.trace(*shared, now, self.rates, zero, limits)
        yield program.record.trace(*shared, self._there(now), np.int32(0))

    def advance(self, target: float) -> bool:
        before, begun = np.asarray(self.state.taken), time.perf_counter()
        end, limits = np.asarray(target, self.run.dtype), flow.limits_of(self.run, self.pace.steps)
        shared = (*self.stack.shared, self.kept)
        found = flow.advance(*shared, self.state, self.rates, end, limits)
        self.state, arrived, lost = found[0], np.asarray(found[1]), np.asarray(found[2])
        taken = np.asarray(self.state.taken)
        self.pace.took(int(np.max(taken - before)), time.perf_counter() - begun)
        self.times = np.where(arrived, end, self.state.time)
        most = self.run.motion.most_steps
        self.note = f"time {self.reached:.3g}, step {taken.max():,} of {most:,} at most"
        for setting, seed, point in np.argwhere(lost).tolist():
            place = setting, seed, point
            self.recorded.failures[place] = self._failure(place)
        return bool(np.all(arrived | lost))

    def restore(self, path: Path, arrays: Arrays) -> None:
        super().restore(path, arrays)
        self.times = np.asarray(self.state.time)

    def _failure(self, place: tuple[int, int, int]) -> Failure:
        """Return when and why the flow of a run was given up."""
        state, most = self.state, self.run.motion.most_steps
        time, size, taken = (
            float(np.asarray(of)[place]) for of in (state.time, state.size, state.taken)
        )
        if taken < most:
            return time, f"the flow could take no further step in {self.run.dtype}"
        left = (float(self.clock[-1]) - time) / max(size, float(np.finfo(self.run.dtype).tiny))
        return time, f"the flow was given up after {most:,} steps (about {left:.0e} left)"


KINDS: dict[str, type[Group]] = {"step": Stepping, "time": Flowing}


def inside(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names have this prefix, without it."""
    found = {name: of for name, of in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): of for name, of in found.items()}


def flatten(record: dict[str, Any]) -> Arrays:
    """Return one record with flat names: the parts of a tuple or dict as `name.part`."""
    flat: Arrays = {}
    for name, value in record.items():
        if hasattr(value, "_asdict"):
            flat |= {f"{name}.{part}": of for part, of in value._asdict().items()}
        elif isinstance(value, dict):
            flat |= value
        else:
            flat[name] = value
    return flat
