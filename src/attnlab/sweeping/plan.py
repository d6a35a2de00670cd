"""Plans: a recipe as groups of one compiled shape, in chunks that fit a memory budget.

The constants of costs were read off two CPU cores (`./lab bench sweep` prints estimate and
measurement side by side). Another machine differs from them by one factor, which the display of a
sweep in progress does not need: it goes by the groups that are done.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from attnlab.files.errors import InputError
from attnlab.files.memory import require_memory
from attnlab.files.provenance import digest_of
from attnlab.files.recipe import as_value
from attnlab.simulation import Simulation
from attnlab.simulation.exact.layout import Sizes
from attnlab.simulation.exact.learner import ExactLearner, row_numbers, rows_per_step, table_bytes
from attnlab.simulation.program import shapes_of
from attnlab.sweeping.group import Group, Place
from attnlab.sweeping.recipe import SweepRecipe, with_classes
from attnlab.tasks.classes.classes import SequenceClasses

MEMORY_BUDGET = 2**30
MOST_RECORDS = 10_000_000  # of a run
# Estimated length of a group: what a kill loses, and what workers share out.
GROUP_SECONDS = 30.0
# At most 16 runs advance together on a processor; multiples of it leave none short.
BATCH = 16
CALL_SECONDS = 0.03  # of a group, besides its steps
SETTING_SECONDS = 0.003  # of laying out a setting
# Records are held as they come, as they are labelled, as they are summed up and as they are checked
# against the file.
RECORD_COPIES = 4
# Numbers as large as the parameters that a run on the exact path needs: themselves, their gradient,
# the optimizer's memory, the stages of a solver.
EXACT_COPIES = {"step": 4, "time": 12}
ROW_COPIES = 2  # of sequences: what was drawn, and what the gradient makes of it
TABLE_COPIES = 2  # of what sequences are drawn from: alone and stacked
FLOW_EVALUATIONS = 2000  # of the gradient, however long the flow

EXACT_STEP_SECONDS = 2e-6  # of a step of a run, however small
DRAW_SECONDS = 4e-8  # for each sequence and token of a class
PRODUCT_SECONDS = 1.5e-10  # for each term of a product of rows, tokens and outputs
STEP_SECONDS = 5e-5  # of a step on the general path, however small
NUMBER_SECONDS = 3e-10  # for each number that a gradient makes on its way


@dataclass(frozen=True)
class Cost:
    """Cost of one run: bytes of memory while it lasts, bytes of its records, seconds on two cores.

    tables: bytes that a setting takes besides its runs, to draw sequences from. compiling: seconds
    of compiling the programs of one shape.
    """

    memory: float
    records: float
    seconds: float
    compiling: float
    tables: float = 0.0


def cost_of(run: Simulation, classes: SequenceClasses | None, records: int) -> Cost:
    """Return the cost of a run; refuse one that this machine has no memory for."""
    if classes is not None and isinstance(run.learner, ExactLearner):
        cost, name = _exact_cost(run, run.learner, classes, records), classes.origin
        advice = "take fewer tokens, classes, sequences, dims or records"
    else:
        whole = run if classes is None else with_classes(run, classes)
        cost, name = _general_cost(whole, records), type(run.task).__name__
        advice = "take a smaller model, fewer examples at a time, or fewer records"
    require_memory(name, cost.memory + cost.tables, advice)
    return cost


def _exact_cost(
    run: Simulation, learner: ExactLearner, classes: SequenceClasses, records: int
) -> Cost:
    model, what = learner.model, learner.recorded(run)
    sizes = Sizes.expected(classes, symmetric_start=model.symmetric(run))
    K, itemsize = sizes.classes, np.dtype(run.dtype).itemsize
    kept = float(run.model.numbers_recorded(classes, what) * records * itemsize)
    state = EXACT_COPIES[run.clock] * sum(model.numbers(sizes).values())
    state += ROW_COPIES * sum(row_numbers(run, sizes).values())
    rows = rows_per_step(run, K)
    drawn = 0.0 if run.task.infinite else rows * classes.num_nonzeros / K
    gradient = (
        EXACT_STEP_SECONDS + DRAW_SECONDS * drawn + PRODUCT_SECONDS * model.products(sizes, rows)
    )
    return Cost(
        memory=RECORD_COPIES * kept + state * itemsize,
        records=kept,
        seconds=_evaluations(run) * gradient,
        compiling=6.0,
        tables=TABLE_COPIES * table_bytes(run.task, classes),
    )


def _general_cost(run: Simulation, records: int) -> Cost:
    kept = float(run.learner.record_numbers(run) * records * np.dtype(run.dtype).itemsize)
    activations = shapes_of(run).activations
    return Cost(
        memory=RECORD_COPIES * kept + run.learner.bytes_of_run(run, None),
        records=kept,
        seconds=_evaluations(run) * (STEP_SECONDS + NUMBER_SECONDS * activations),
        compiling=8.0,
    )


def _evaluations(run: Simulation) -> float:
    """Return how often a run computes its gradient."""
    return FLOW_EVALUATIONS if run.clock == "time" else run.last


@dataclass(frozen=True)
class Shape:
    """Settings whose runs share their compiled programs, and how they are cut into groups.

    example: the classes or the task of the first of them.
    """

    settings: tuple[int, ...]
    example: str
    cost: Cost
    groups: tuple[Group, ...]

    @property
    def compilations(self) -> int:
        """Programs of a training step: one for each number of sets, cells and seeds in a call."""
        return len({group.place.sizes for group in self.groups})

    @property
    def seconds(self) -> float:
        runs = sum(group.runs for group in self.groups)
        settings = sum(len(group.place.settings) for group in self.groups)
        return (
            self.compilations * self.cost.compiling
            + len(self.groups) * CALL_SECONDS
            + settings * SETTING_SECONDS
            + runs * self.cost.seconds
        )

    @property
    def memory(self) -> float:
        """Bytes of the largest group."""
        return max(
            group.runs * self.cost.memory + len(group.place.settings) * self.cost.tables
            for group in self.groups
        )


@dataclass(frozen=True)
class Plan:
    """The groups of a sweep; `seconds` and `memory` are rough (see `Cost`).

    Parameters
    ----------
    recipe : SweepRecipe
        The sweep.
    memory_budget : float
        Bytes that a group may take.
    shapes : tuple
        Groups that compile alike.
    """

    recipe: SweepRecipe
    memory_budget: float
    shapes: tuple[Shape, ...]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return tuple(group for shape in self.shapes for group in shape.groups)

    @cached_property
    def digest(self) -> str:
        """Digest of all that decides the sweep's result, in its order."""
        axes = self.recipe.axes()
        places = [[group.key, asdict(group.place)] for group in self.groups]
        return digest_of([axes, self.recipe.seeds, places])

    @property
    def cells(self) -> int:
        """Rows of the table: combinations of everything that is swept."""
        settings, _ = self.recipe.axes()
        return self.recipe.cells * math.prod(len(values) for values in settings.values())

    @property
    def runs(self) -> int:
        return self.cells * len(self.recipe.seeds)

    @property
    def compilations(self) -> int:
        return sum(shape.compilations for shape in self.shapes)

    @property
    def memory(self) -> float:
        return max(shape.memory for shape in self.shapes)

    @property
    def seconds(self) -> float:
        return sum(shape.seconds for shape in self.shapes)

    @property
    def file_bytes(self) -> float:
        """Bytes of all records, before compression."""
        return sum(g.runs * shape.cost.records for shape in self.shapes for g in shape.groups)


def make_plan(recipe: SweepRecipe, *, memory_budget: float = MEMORY_BUDGET) -> Plan:
    """Group the cells of a recipe.

    Parameters
    ----------
    recipe : SweepRecipe
        The sweep.
    memory_budget : float, optional
        Bytes that a group of runs may take.

    Returns
    -------
    Plan
        Groups that fit, with rough costs.
    """
    if not as_value("memory_budget", memory_budget, float) > 0:
        raise InputError(f"memory_budget: expected a positive number, got {memory_budget}")
    settings = recipe.settings()
    if len({run.clock for run, _ in settings}) > 1:
        raise InputError("grid.motion: a flow has times and others have steps; make two sweeps")
    by_shape: dict[tuple[Any, ...], list[int]] = {}
    for number, (run, classes) in enumerate(settings):
        by_shape.setdefault((id(run), _sizes(classes)), []).append(number)
    shapes = []
    for numbers in by_shape.values():
        run, first = settings[numbers[0]]
        record_steps = _record_steps(run)
        cost = cost_of(run, first, len(record_steps))
        groups = []
        for place in _places(recipe, numbers, cost, memory_budget):
            fields = {
                **recipe.rates_at(slice(*place.cells)),
                "seeds": recipe.seeds[slice(*place.seeds)],
                "record": replace(run.record, every=None, geometric=None, at=record_steps),
            }
            sets = tuple(of for number in place.settings if (of := settings[number][1]) is not None)
            made = with_classes(run, sets, **fields) if sets else replace(run, **fields)
            groups.append(Group(place, made))
        title = run.title if first is None else first.origin
        shapes.append(Shape(tuple(numbers), title, cost, tuple(groups)))
    return Plan(recipe, memory_budget, tuple(shapes))


def _sizes(classes: SequenceClasses | None) -> tuple[Any, ...]:
    """Return what is equal for classes that run together."""
    if classes is None:
        return ()
    sizes = (classes.vocab_size, len(classes), classes.in_play.size, classes.num_nonzeros)
    return *sizes, tuple(classes.queries.tolist()), classes.names is None


def _record_steps(run: Simulation) -> tuple[float, ...]:
    """Return the steps or times that are recorded: the same however runs are grouped."""
    count, name = run.record.count(run.last)
    if count > MOST_RECORDS:
        raise InputError(
            f"record.{name}: would record each run {count:.3g} times; record it at most "
            f"{MOST_RECORDS:,} times"
        )
    return tuple(map(float, run.record.clock(run.last, whole=run.clock == "step")))


def _places(
    recipe: SweepRecipe, settings: list[int], cost: Cost, memory_budget: float
) -> Iterator[Place]:
    """Yield boxes of settings, cells and seeds with as many runs as memory and time allow."""
    cells, seeds = recipe.cells, len(recipe.seeds)
    runs = cells * seeds
    bytes_left = memory_budget - cost.tables  # of one setting: for its runs
    at_once = max(1, int(min(bytes_left / cost.memory, GROUP_SECONDS / cost.seconds)))
    fitting = int(memory_budget / (runs * cost.memory + cost.tables))
    settings_at_once = max(1, min(fitting, at_once // runs))
    cells_at_once = max(1, min(cells, at_once // seeds))
    if BATCH < cells_at_once < cells:
        cells_at_once -= cells_at_once % BATCH
    seeds_at_once = min(seeds, at_once)
    for i in range(0, len(settings), settings_at_once):
        for j in range(0, cells, cells_at_once):
            for k in range(0, seeds, seeds_at_once):
                yield Place(
                    tuple(settings[i : i + settings_at_once]),
                    (j, min(j + cells_at_once, cells)),
                    (k, min(k + seeds_at_once, seeds)),
                )


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain values, as `--dry-run --json` prints it."""
    return {
        "cells": plan.cells,
        "seeds": len(plan.recipe.seeds),
        "runs": plan.runs,
        "groups": len(plan.groups),
        "compilations": plan.compilations,
        "memory_bytes": round(plan.memory),
        "memory_budget": plan.memory_budget,
        "file_bytes": round(plan.file_bytes),
        "seconds": round(plan.seconds, 1),
        "shapes": [
            {
                "settings": len(shape.settings),
                "example": shape.example,
                "groups": len(shape.groups),
                "runs_per_group": max(group.runs for group in shape.groups),
                "compilations": shape.compilations,
                "memory_bytes": round(shape.memory),
                "seconds": round(shape.seconds, 1),
            }
            for shape in plan.shapes
        ],
    }
