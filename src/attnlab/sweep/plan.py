"""Plans: a recipe as groups of one compiled shape, in chunks that fit a memory budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.data import SequenceClasses, classes_from
from attnlab.files.code import digest_of
from attnlab.files.errors import InputError
from attnlab.files.memory import require_memory
from attnlab.files.recipe import as_value
from attnlab.sweep.cost import CALL_SECONDS, COMPILE_SECONDS, SETTING_SECONDS, Cost, cost_of
from attnlab.sweep.group import Group, Place
from attnlab.sweep.recipe import SweepRecipe

MEMORY_BUDGET = 2**30
# A group is what a kill loses, and what workers share out: about so long, by the rough model.
GROUP_SECONDS = 30.0
# simulate() advances at most 16 runs together on a processor; multiples of it leave none short.
BATCH = 16
MOST_RECORDS = 10_000_000


@dataclass(frozen=True)
class Shape:
    """Settings whose runs share their compiled programs, and how they are cut into groups."""

    settings: tuple[int, ...]
    cost: Cost
    groups: tuple[Group, ...]

    @property
    def compilations(self) -> int:
        """Programs of a training step: one for each number of sets, cells and seeds in a call."""
        return len({(len(of.classes), len(of.eta_y), len(of.seeds)) for of in self.groups})

    @property
    def seconds(self) -> float:
        runs = sum(group.runs for group in self.groups)
        settings = sum(len(group.classes) for group in self.groups)
        return (
            self.compilations * COMPILE_SECONDS
            + len(self.groups) * CALL_SECONDS
            + settings * SETTING_SECONDS
            + runs * self.cost.seconds
        )

    @property
    def memory(self) -> float:
        """Bytes, of the largest group."""
        return max(
            group.runs * self.cost.memory + len(group.classes) * self.cost.tables
            for group in self.groups
        )


@dataclass(frozen=True)
class Plan:
    """What a sweep will do; `seconds` and `memory` are rough (see `cost`)."""

    recipe: SweepRecipe
    memory_budget: float
    shapes: tuple[Shape, ...]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return tuple(group for shape in self.shapes for group in shape.groups)

    @cached_property
    def digest(self) -> str:
        """What decides the sweep's result, in its order."""
        axes = self.recipe.axes()
        places = [[group.key, asdict(group.place)] for group in self.groups]
        return digest_of([axes, self.recipe.seed_list(), places])

    @property
    def cells(self) -> int:
        return int(np.prod([len(values) for values in self.recipe.grid.values()], dtype=int))

    @property
    def runs(self) -> int:
        return self.cells * len(self.recipe.seed_list())

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
        """Before compression."""
        return sum(g.runs * shape.cost.records for shape in self.shapes for g in shape.groups)


def make_plan(
    recipe: SweepRecipe,
    *,
    classes: SequenceClasses | None = None,
    memory_budget: float = MEMORY_BUDGET,
) -> Plan:
    """Group the cells of a recipe; `classes`, where given, are used instead of those it names."""
    if not as_value("memory_budget", memory_budget, float) > 0:
        raise InputError(f"memory_budget: expected a positive number, got {memory_budget}")
    settings = recipe.settings()
    if classes is not None and any(setting.classes != recipe.classes for setting in settings):
        raise InputError("grid: classes that were given as an object have no parameters to sweep")
    if len({setting.clock for setting in settings}) > 1:
        raise InputError("grid.engine.name: the flow has times, other engines steps; sweep apart")
    named = {setting.classes for setting in settings} if classes is None else set()
    known = {name: classes_from(name) for name in named}
    made = [known[setting.classes] if classes is None else classes for setting in settings]
    rates = recipe.rates()  # the same for all settings
    moments: dict[tuple[Any, ...], tuple[float, ...]] = {}
    by_shape: dict[tuple[Any, ...], list[int]] = {}
    for number, (setting, of) in enumerate(zip(settings, made, strict=True)):
        if (way := _way(setting)) not in moments:
            moments[way] = _moments(setting, of)
        by_shape.setdefault((way, _sizes(of)), []).append(number)
    shapes = []
    for (way, _), numbers in by_shape.items():
        first = numbers[0]
        cost = cost_of(settings[first], made[first], len(moments[way]))
        _check_fits(made[first], cost)
        groups = [
            _group(place, settings[place.settings[0]], [made[i] for i in place.settings],
                   moments[way], rates)
            for place in _places(recipe, numbers, cost, memory_budget)
        ]  # fmt: skip
        shapes.append(Shape(tuple(numbers), cost, tuple(groups)))
    return Plan(recipe, memory_budget, tuple(shapes))


def _moments(setting: SweepRecipe, classes: SequenceClasses) -> tuple[float, ...]:
    """The steps or times to record at: the same however runs are grouped."""
    _check_records(setting)
    simulation = setting.simulation(classes)
    steps, save = simulation.steps, simulation.save
    times = save.times(float(steps), 0) if setting.clock == "time" else save.steps(int(steps), 0)
    return tuple(map(float, times))


def _check_records(setting: SweepRecipe) -> None:
    """Refuse more records of a run than can be counted out."""
    every, geometric = setting.save.every, setting.save.geometric
    count = setting.steps / every if every else geometric or 0
    if count > MOST_RECORDS:
        field = "every" if every else "geometric"
        raise InputError(
            f"save.{field}: would record each run {count:.3g} times; record it at most "
            f"{MOST_RECORDS:,} times"
        )


def _check_fits(classes: SequenceClasses, cost: Cost) -> None:
    need = cost.memory + cost.tables  # of a single run
    require_memory(classes.origin, need, "take fewer tokens, classes, sequences, dims or records")


def _way(setting: SweepRecipe) -> tuple[Any, ...]:
    """Equal for settings whose runs go alike but for data and rates; most have it in common."""
    names = ("engine", "optimizer", "model", "init", "steps", "save", "dtype")
    return tuple(getattr(setting, name) for name in names)


def _sizes(classes: SequenceClasses) -> tuple[Any, ...]:
    """Equal for classes whose runs have arrays of the same sizes and labels."""
    sizes = (classes.vocab_size, len(classes), classes.in_play.size, classes.num_nonzeros)
    return *sizes, tuple(classes.queries.tolist()), classes.names is None


def _places(
    recipe: SweepRecipe, settings: list[int], cost: Cost, memory_budget: float
) -> Iterator[Place]:
    """Boxes of settings, cells and seeds with as many runs as memory and patience allow."""
    cells, seeds = recipe.rates()[0].size, len(recipe.seed_list())
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


def _group(
    place: Place,
    setting: SweepRecipe,
    classes: list[SequenceClasses],
    at: tuple[float, ...],
    rates: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Group:
    eta_y, eta_z = rates
    chosen = slice(*place.cells)
    return Group(
        place=place,
        classes=tuple(classes),
        setting=setting,
        at=at,
        eta_y=tuple(eta_y[chosen].tolist()),
        eta_z=tuple(eta_z[chosen].tolist()),
        seeds=setting.seed_list()[slice(*place.seeds)],
    )


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as plain values, as `--dry-run --json` prints it."""
    return {
        "cells": plan.cells,
        "seeds": len(plan.recipe.seed_list()),
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
                "example": shape.groups[0].classes[0].origin,
                "groups": len(shape.groups),
                "runs_per_group": max(group.runs for group in shape.groups),
                "compilations": shape.compilations,
                "memory_bytes": round(shape.memory),
                "seconds": round(shape.seconds, 1),
            }
            for shape in plan.shapes
        ],
    }
