"""The index of a sweep: which group holds which runs, so that the whole opens without them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.sweeping.group import OUTER, Axes, Group, Place, Schema, check_key, schema_from
from attnlab.sweeping.plan import Plan
from attnlab.sweeping.store import Contents


@dataclass(frozen=True)
class Entry:
    """A group: its place, its key, its schema by number, and its runs that failed.

    diverged: (setting, cell, seed), counted in the sweep. schema: None where the whole group
    failed. cause: the reason of a failure.
    """

    place: Place
    key: str
    schema: int | None
    diverged: tuple[tuple[int, int, int], ...] = ()
    cause: str = ""

    def __post_init__(self) -> None:
        check_key(self.key)

    @property
    def failed_runs(self) -> int:
        return len(self.diverged) if self.schema is not None else math.prod(self.place.sizes)

    def box(self) -> tuple[Any, ...]:
        """Return the group's runs among (setting, cell, seed)."""
        place = self.place
        return list(place.settings), slice(*place.cells), slice(*place.seeds)


@dataclass(frozen=True)
class Index:
    """The groups of a sweep; `settings` and `cells` are the values along the swept dims."""

    settings: Axes
    cells: Axes
    seeds: tuple[int, ...]
    schemas: tuple[Schema, ...]
    groups: tuple[Entry, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of settings, cells and seeds."""
        return _size(self.settings), _size(self.cells), len(self.seeds)

    @property
    def failed_runs(self) -> int:
        return int(np.count_nonzero(~self.finished()))

    def finished(self) -> NDArray[np.bool_]:
        """Return which runs went to their end, over (setting, cell, seed)."""
        done = np.ones(self.shape, dtype=bool)
        for group in self.groups:
            if group.schema is None:
                done[group.box()] = False
            for run in group.diverged:
                done[run] = False
        return done

    def owner(self) -> NDArray[np.int64]:
        """Return the number of the group that has each run, over (setting, cell, seed)."""
        owner = np.zeros(self.shape, dtype=np.int64)
        for number, group in enumerate(self.groups):
            owner[group.box()] = number
        return owner


class IndexMaker:
    """Collects the groups of a plan as they are found or made, and their summary numbers."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.schemas: dict[str, Schema] = {}
        self.entries: dict[Place, Entry] = {}
        settings, cells = plan.recipe.axes()
        self.empty = Index(settings, cells, plan.recipe.seeds, (), ())
        self.numbers: dict[str, NDArray[np.float64]] = {}

    def add(self, group: Group, contents: Contents) -> Entry:
        """Add a group that has a result."""
        place, text = group.place, contents.attrs["schema"]
        schema = self.schemas.setdefault(text, schema_from(text))
        number = list(self.schemas).index(text)
        diverged = tuple(
            (place.settings[i], place.cells[0] + int(j), place.seeds[0] + int(k))
            for i, j, k in np.argwhere(contents.array("diverged_step")[...] >= 0)
        )
        cause = str(contents.attrs["cause"])
        entry = self.entries[place] = Entry(place, group.key, number, diverged, cause)
        for name in _summed_up(schema):
            of_all = self.numbers.setdefault(name, np.full(self.empty.shape, np.nan))
            of_all[entry.box()] = contents.array(name)[...]
        return entry

    def add_failed(self, group: Group, cause: str) -> None:
        """Add a group that failed."""
        self.entries[group.place] = Entry(group.place, group.key, None, (), cause)

    def index(self) -> Index:
        """Return the index, once every group was added."""
        groups = tuple(self.entries[group.place] for group in self.plan.groups)
        empty = self.empty
        return Index(empty.settings, empty.cells, empty.seeds, tuple(self.schemas.values()), groups)


def _summed_up(schema: Schema) -> list[str]:
    """Return the names of the summary numbers: one number for each run."""
    return [
        name
        for name, (dims, _) in schema.variables.items()
        if name.startswith(("final_", "snap_")) and dims == OUTER
    ]


def _size(axes: Mapping[str, Sequence[Any]]) -> int:
    return int(np.prod([len(values) for values in axes.values()], dtype=int))
