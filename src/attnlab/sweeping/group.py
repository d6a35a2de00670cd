"""Groups: runs that are computed, kept and lost as one; and the numbers that sum a run up."""

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import measures
from attnlab.files.errors import InputError
from attnlab.files.numerics import numerics
from attnlab.files.provenance import digest_of, provenance
from attnlab.files.recipe import read_dataclass
from attnlab.simulation import Diverged, Simulation, simulate

OUTER = ("setting", "cell", "seed")
Axes = dict[str, tuple[Any, ...]]  # the values along each dim


@dataclass(frozen=True)
class Schema:
    """Variables as (dims, dtype), and labels by dim; labels 0, 1, ... are kept as their number.

    coords: those variables that are coords of the whole. names: of tokens, where all settings have
    the same.
    """

    variables: dict[str, tuple[tuple[str, ...], str]]
    labels: dict[str, int | tuple[int | float | str, ...]]
    coords: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def along(self, dim: str) -> NDArray[Any]:
        """Return the labels along a dim; a group that has no heads has the head 0."""
        labels = self.labels.get(dim, 1)
        return np.arange(labels) if isinstance(labels, int) else np.asarray(labels)

    def text(self) -> str:
        """Return the schema as JSON."""
        return json.dumps(asdict(self))


def schema_from(text: str) -> Schema:
    """Return the schema that `Schema.text` wrote."""
    return read_dataclass("schema", json.loads(text), Schema)


def schema_of(dataset: xr.Dataset, coords: Iterable[str]) -> Schema:
    """Return the schema of a group's dataset."""
    variables = {
        str(name): (tuple(map(str, variable.dims)), _kind(variable.dtype))
        for name, variable in dataset.data_vars.items()
    }
    inner = [str(dim) for dim in dataset.dims if dim not in OUTER]
    labels = {dim: _labels(dataset[dim].values) for dim in inner}
    names = dataset["token_name"].values.tolist() if "token_name" in dataset else [()]
    same = tuple(names[0]) if all(of == names[0] for of in names) else ()
    return Schema(variables, labels, tuple(coords), same)


def _kind(dtype: np.dtype[Any]) -> str:
    # names have one width in memory and none in a file
    return "O" if dtype.kind in "UO" else dtype.str


def _labels(values: NDArray[Any]) -> int | tuple[int | float | str, ...]:
    if np.array_equal(values, np.arange(values.size)):
        return int(values.size)
    return tuple(values.tolist())


FORMAT = 4  # of a group's file
NUMBERS = ("tasks", "models", "simulation", "measures", "sweep")  # the folders that make them
OF_ATTENTION = {
    "entropy": measures.entropy,
    "distinct_entropy": measures.distinct_entropy,
    "common_mass": measures.common_mass,
    "effective_tokens": measures.effective_tokens,
}
PARTS = ("sequence_class", "layer", "head")  # of a model: a number that sums a run up is their mean

Tell = Callable[[float], None]  # called with the fraction done


@dataclass(frozen=True)
class Place:
    """Where a group belongs in its sweep: settings by number, and ranges of cells and seeds.

    Cells are the combinations of learning rates, the last in the grid varying fastest.
    """

    settings: tuple[int, ...]
    cells: tuple[int, int]
    seeds: tuple[int, int]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of settings, cells and seeds."""
        return len(self.settings), len(range(*self.cells)), len(range(*self.seeds))


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that share their compiled programs: one simulation, whose runs are vectorised."""

    place: Place
    simulation: Simulation

    @property
    def runs(self) -> int:
        """Number of runs."""
        settings, cells, seeds = self.place.sizes
        return settings * cells * seeds

    @cached_property
    def key(self) -> str:
        """Name of the group: a digest of its simulation and of the versions of its numbers.

        Neither the words of a recipe nor its place decide its numbers.
        """
        return digest_of([FORMAT, self.simulation.digest, numerics(*NUMBERS)])[:24]


def check_key(key: str) -> None:
    """Refuse what is not the key of a group: it would be a path to anywhere."""
    if not re.fullmatch("[0-9a-f]{24}", key):
        raise InputError(f"{key!r} is not the key of a group")


def run_group(group: Group, tell: Tell | None = None) -> xr.Dataset:
    """Run a group and return a dataset with dims (setting, cell, seed, step or time, ...).

    A run that diverges is NaN from its `diverged_step` on (-1 for the others), and the attribute
    `cause` says why.
    """
    begun, run, cause = time.perf_counter(), group.simulation, ""
    try:
        result = simulate(run, progress=tell or False)
    except Diverged as problem:
        # where every run has diverged, what comes after the last of them is not even recorded
        cause, result = str(problem), problem.dataset.reindex({run.clock: run.record_steps})
    # coords that are not labels differ between settings as variables do
    coords = [str(name) for name in result.coords if name not in result.dims]
    result = result.reset_coords(coords)
    if "setting" not in result.dims:
        result = result.expand_dims("setting")
    if "cell" not in result.dims:  # learning rates are the usual ones, or schedules
        by_seed = {name: of.expand_dims("cell") for name, of in result.items() if "seed" in of.dims}
        result = result.assign(by_seed)
    if "diverged_step" not in result:
        result["diverged_step"] = (OUTER, np.full(group.place.sizes, -1.0))
    result = result.assign(summary(result)).transpose(*OUTER, ...)
    attrs = provenance(
        run.spec,
        device=result.attrs["device"],
        dtype=result.attrs["dtype"],
        seconds=time.perf_counter() - begun,
        cause=cause,
        schema=schema_of(result, coords).text(),
    )
    return result.drop_attrs(deep=False).assign_attrs(attrs)


def summary(result: xr.Dataset) -> xr.Dataset:
    """Return numbers over (setting, cell, seed), means over classes, layers and heads.

    `final_...` is the value at the last record; `snap_step` (or `snap_time`) is the mean over the
    classes whose attention has snapped.
    """
    if not {"attention", "probability"} <= set(result):
        return _summary(result)
    # tokens have their roles in their own setting; settings that agree in them go together
    alike: dict[bytes, list[int]] = {}
    for number, drawn in enumerate(result["probability"].values > 0):
        alike.setdefault(drawn.tobytes(), []).append(number)
    parts = []
    for numbers in alike.values():
        some = result.isel(setting=numbers)
        parts.append(_summary(some.assign(probability=some["probability"][0])))
    order = np.argsort(np.concatenate(list(alike.values())))
    return xr.concat(parts, "setting").isel(setting=order)


def _summary(result: xr.Dataset) -> xr.Dataset:
    clock = measures.clock_of(result)
    last = result.isel({clock: -1}, drop=True)
    found = {
        str(name): last[name]
        for name, values in result.items()
        if clock in values.dims and {*last[name].dims} <= {*OUTER, *PARTS}
    }
    of_classes = "probability" in result and "attention" in result
    if of_classes:
        found |= {name: measure(last) for name, measure in OF_ATTENTION.items()}
    found = {f"final_{name}": values for name, values in found.items()}
    if of_classes and result.sizes[clock] > 1:
        found[f"snap_{clock}"] = measures.snap_time(result)
    return xr.Dataset({name: _mean(values) for name, values in found.items()})


def _mean(values: xr.DataArray) -> xr.DataArray:
    inner = [dim for dim in values.dims if dim not in OUTER]
    return values.mean(inner).reset_coords(drop=True).drop_attrs()
