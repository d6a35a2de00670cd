"""Groups: what is computed, kept and lost as one."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import xarray as xr

from attnlab.files.code import digest_of
from attnlab.files.errors import InputError
from attnlab.files.numerics import numerics
from attnlab.files.provenance import provenance
from attnlab.sweeping.kind import Kind, Tell
from attnlab.sweeping.schema import OUTER, schema_of

FORMAT = 3  # of a group's file


@dataclass(frozen=True)
class Place:
    """Where a group belongs in its sweep: settings by number, and ranges of cells and seeds.

    Cells are the combinations of rates, counted with the last rate of the grid varying fastest.
    """

    settings: tuple[int, ...]
    cells: tuple[int, int]
    seeds: tuple[int, int]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many settings, cells and seeds it has."""
        return len(self.settings), len(range(*self.cells)), len(range(*self.seeds))


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that share their compiled programs: one value, whose runs are vectorised."""

    place: Place
    kind: Kind
    value: Any

    @property
    def runs(self) -> int:
        settings, cells, seeds = self.place.sizes
        return settings * cells * seeds

    @cached_property
    def key(self) -> str:
        """The name of the group: a digest of all that decides its numbers. That is its value and
        the numerics of what runs it, and not the words of a recipe, nor its place."""
        return digest_of([FORMAT, self.value.digest, numerics(*self.kind.numbers)])[:24]


def check_key(key: str) -> None:
    """Refuse what no group is named: it would be a path to anywhere."""
    if not re.fullmatch("[0-9a-f]{24}", key):
        raise InputError(f"{key!r} is not the key of a group")


def run_group(group: Group, tell: Tell | None = None) -> xr.Dataset:
    """Run a group: a dataset with dims (setting, cell, seed, step or time, ...).

    A run that diverges is NaN from its `diverged_step` on (-1 for the others), and the attribute
    `cause` says why. tell: called with the fraction done.
    """
    begun = time.perf_counter()
    result, cause = group.kind.run(group.value, tell or (lambda fraction: None))
    attrs = provenance(
        group.value.spec,
        device=result.attrs["device"],
        dtype=result.attrs["dtype"],
        seconds=time.perf_counter() - begun,
        cause=cause,
    )
    # coords that are no labels, as words of tokens, differ between settings as variables do
    beside = [str(name) for name in result.coords if name not in result.dims]
    whole = result.reset_coords(beside).transpose(*OUTER, ...)
    schema = schema_of(whole, beside)
    return whole.drop_attrs(deep=False).assign_attrs(attrs, schema=schema.text())
