"""Groups: what is computed, kept and lost as one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from attnlab.data import SequenceClasses
from attnlab.dynamics import Diverged, Save, simulate
from attnlab.files.code import digest_of
from attnlab.files.errors import InputError
from attnlab.files.numerics import numerics
from attnlab.files.provenance import provenance
from attnlab.sweep.recipe import SweepRecipe
from attnlab.sweep.schema import OUTER, schema_of
from attnlab.sweep.summary import summary

# What decides a group's numbers, apart from its spec; and how its file is laid out.
NUMBERS = ("data", "measures", "dynamics", "sweep")
FORMAT = 2
# Coords that belong to the classes, of which a group may have several.
OF_CLASSES = ("query_token", "next_token", "prior", "token_name")


@dataclass(frozen=True)
class Place:
    """Where a group belongs in its sweep: settings by number, and ranges of cells and seeds.

    Cells are the combinations of rates, counted with the last rate of the grid varying fastest.
    """

    settings: tuple[int, ...]
    cells: tuple[int, int]
    seeds: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that share their compiled programs: one call of `simulate`, which vectorises them.

    setting: engine, optimiser, model, start and dtype. at: the steps or times that are recorded.
    eta_y, eta_z: of each cell.
    """

    place: Place
    classes: tuple[SequenceClasses, ...]
    setting: SweepRecipe
    at: tuple[float, ...]
    eta_y: tuple[float, ...]
    eta_z: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def runs(self) -> int:
        return len(self.classes) * len(self.eta_y) * len(self.seeds)

    @cached_property
    def spec(self) -> dict[str, Any]:
        """All that decides the numbers: not the words of a recipe, nor the group's place."""
        asked = asdict(self.setting)
        names = ("engine", "optimizer", "model", "init", "steps", "own_data", "dtype")
        return {
            "classes": [[classes.digest, digest_of(classes.names)] for classes in self.classes],
            **{name: asked[name] for name in names},
            "what": self.setting.save.what,
            "at": self.at,
            "eta_y": self.eta_y,
            "eta_z": self.eta_z,
            "seeds": self.seeds,
        }

    @cached_property
    def key(self) -> str:
        """The name of the group: a digest of its spec and of the numerics of what runs it."""
        return digest_of([FORMAT, self.spec, numerics(*NUMBERS)])[:24]


def check_key(key: str) -> None:
    """Refuse what no group is named: it would be a path to anywhere."""
    if not re.fullmatch("[0-9a-f]{24}", key):
        raise InputError(f"{key!r} is not the key of a group")


def run_group(group: Group, tell: Callable[[float], None] | None = None) -> xr.Dataset:
    """Simulate a group: a dataset with dims (setting, cell, seed, step or time, ...).

    A run that diverges is NaN from its `diverged_step` on (-1 for the others), and the attribute
    `cause` says why. tell: called with the fraction done.
    """
    begun = time.perf_counter()
    result, cause = _call(group, tell or (lambda fraction: None))
    attrs = provenance(
        group.spec,
        device=result.attrs["device"],
        dtype=result.attrs["dtype"],
        seconds=time.perf_counter() - begun,
        cause=cause,
    )
    whole = result.assign(summary(result)).transpose(*OUTER, ...)
    return whole.drop_attrs(deep=False).assign_attrs(attrs, schema=schema_of(whole).text())


def _call(group: Group, tell: Callable[[float], None]) -> tuple[xr.Dataset, str]:
    setting, cause = group.setting, ""
    try:
        simulation = setting.simulation(
            group.classes, eta_y=xr.DataArray(list(group.eta_y), dims="cell"),
            eta_z=xr.DataArray(list(group.eta_z), dims="cell"), seeds=group.seeds,
            save=Save(setting.save.what, at=group.at),
        )  # fmt: skip
        result = simulate(simulation, progress=tell)
    except Diverged as problem:
        # where every run has diverged, what comes after the last of them is not even recorded
        cause, result = str(problem), problem.dataset.reindex({setting.clock: list(group.at)})
    if "diverged_step" not in result:
        none = np.full((len(group.classes), len(group.eta_y), len(group.seeds)), -1.0)
        result["diverged_step"] = (OUTER, none)
    return result.reset_coords([name for name in OF_CLASSES if name in result.coords]), cause
