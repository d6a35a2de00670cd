"""Learning rates by parameter group, and the grid of runs that they span with the seeds."""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError, refuse_if
from attnlab.files.memory import require_memory
from attnlab.files.recipe import Numbers, as_value, plain

RUN_BYTES = 200  # of a run, however small: its learning rates, its index, its share of a batch
NAME = "learning_rate"
EXPECTED = (
    "a number, a list (a dim), a DataArray, Piecewise or a function of the step, None (fixed), or "
    "a mapping of groups to these"
)


@dataclass(frozen=True)
class Piecewise:
    """A learning rate that is constant between steps (or flow times): training in stages.

    Parameters
    ----------
    at : sequence
        Start of each piece; the first is 0.
    values : sequence
        The learning rate of each piece.
    """

    at: Sequence[float]
    values: Sequence[float]

    def __post_init__(self) -> None:
        at, values = (tuple(float(x) for x in of) for of in (self.at, self.values))
        if len(at) != len(values) or not at or at[0] != 0 or list(at) != sorted(set(at)):
            raise InputError(
                "at: expected increasing numbers from 0 on, one for each of the values, got "
                f"{self.at} and {self.values}"
            )
        _require_rates("values", np.asarray(values), "float64")
        object.__setattr__(self, "at", at)
        object.__setattr__(self, "values", values)

    def __call__(self, now: Any) -> Any:
        """Return the learning rate at a step or time, in compiled code."""
        import jax.numpy as jnp

        return jnp.asarray(self.values)[jnp.sum(jnp.asarray(self.at) <= now) - 1]


Schedule = Callable[[Any], Any]
PlainRate = float | tuple[float, ...] | None  # as a text can give it; `read_rate` takes more
Rate = float | Sequence[float] | xr.DataArray | Piecewise | Schedule | None


@dataclass(frozen=True)
class Grid:
    """Seeds times learning rates. Swept rates keep their dims; `points` counts them flattened.

    named: the learning rates by name, broadcast against each other; 1 where there is a schedule.
    names: the name of each group that moves. schedules: functions of the step, by group.
    """

    seeds: NDArray[np.int64]
    named: dict[str, xr.DataArray]
    names: dict[str, str]
    schedules: dict[str, Schedule]

    @property
    def moving(self) -> tuple[str, ...]:
        """The groups that move."""
        return tuple(self.names)

    @property
    def swept(self) -> xr.DataArray:
        """One of the learning rates: all have the same dims and coords."""
        return next(iter(self.named.values()))

    @property
    def points(self) -> int:
        """Number of combinations of learning rates."""
        return int(self.swept.size)

    @property
    def runs(self) -> int:
        """Number of seeds times number of points."""
        return self.seeds.size * self.points

    def rates(self) -> dict[str, NDArray[np.float64]]:
        """Return the learning rate of each moving group at each point."""
        return {group: self.named[name].values.reshape(-1) for group, name in self.names.items()}

    def dims(self) -> tuple[Hashable, ...]:
        """Return the dims of a per-run quantity, swept learning rates first."""
        return (*self.swept.dims, "seed")

    def coords(self) -> dict[Hashable, Any]:
        """Return the coords of the swept dims and of the seeds."""
        return {**self.swept.coords, "seed": self.seeds}

    def label(self, values: NDArray[Any]) -> NDArray[Any]:
        """Reshape (setting, seed, point, ...) to (setting, swept dims..., seed, ...)."""
        points_first = np.moveaxis(values, 1, 2)
        settings, _, _, *inner = values.shape
        return points_first.reshape(settings, *self.swept.shape, self.seeds.size, *inner)

    def describe(self, seed: int, point: int) -> str:
        """Return the learning rates and the seed of a run in words."""
        rates = [f"{name} = {of.values.reshape(-1)[point]:g}" for name, of in self.named.items()]
        return ", ".join([*rates, f"seed {self.seeds[seed]}"])


def make_grid(
    rates: Mapping[str, Rate], names: Mapping[str, str], seeds: NDArray[np.int64], dtype: str
) -> Grid:
    """Return the grid of these learning rates, by group; groups without one are fixed.

    names: the name of each group's learning rate, which a list takes as its dim; groups with one
    name share one learning rate.
    """
    moving = {group: rate for group, rate in rates.items() if rate is not None}
    schedules: dict[str, Schedule] = {}
    labelled: dict[str, xr.DataArray] = {}
    for group, rate in moving.items():
        name = names[group]
        if callable(rate) and not isinstance(rate, xr.DataArray):
            schedules[group] = rate
            labelled.setdefault(name, xr.DataArray(1.0))
        elif name not in labelled:
            labelled[name] = as_labelled(name, rate, dtype)
    points = math.prod({k: v for of in labelled.values() for k, v in of.sizes.items()}.values())
    require_memory(", ".join(labelled), RUN_BYTES * points * seeds.size, "take fewer runs")
    arrays = xr.broadcast(*labelled.values()) if labelled else ()
    named = dict(zip(labelled, arrays, strict=True))
    return Grid(seeds, named, {group: names[group] for group in moving}, schedules)


def as_seeds(seeds: int | Sequence[int]) -> NDArray[np.int64]:
    """Return the seeds: the first of them by their number, or those that are listed."""
    if isinstance(seeds, (int, np.integer)):
        refuse_if(seeds < 1, "seeds", "at least 1", seeds)
        require_memory("seeds", RUN_BYTES * int(seeds))
        return np.arange(int(seeds))
    chosen = np.asarray(list(seeds) if isinstance(seeds, Iterable) else [])
    if chosen.ndim != 1 or chosen.size == 0 or not np.issubdtype(chosen.dtype, np.integer):
        raise InputError("seeds: expected a number of seeds or a list of whole numbers")
    if chosen.min() < 0 or chosen.max() >= 2**32 or np.unique(chosen).size != chosen.size:
        raise InputError("seeds: expected different whole numbers from 0 to 2^32 - 1")
    return chosen.astype(np.int64)


def as_rate(name: str, value: Rate, dtype: str) -> Rate:
    """Return a learning rate as it is kept: a number, a schedule, or a read-only DataArray."""
    if value is None or (callable(value) and not isinstance(value, xr.DataArray)):
        return value
    labelled = as_labelled(name, value, dtype).copy()
    if not labelled.dims:
        return float(labelled)
    labelled.values.setflags(write=False)
    return labelled


def as_labelled(name: str, value: Any, dtype: str) -> xr.DataArray:
    """Return a number, a sequence (which becomes a dim of that name) or a DataArray as one."""
    if not isinstance(value, xr.DataArray):
        try:
            values = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{name}: expected {EXPECTED}, got {value!r}") from None
        if values.ndim > 1:
            raise InputError(f"{name}: give arrays of more dims as an xarray.DataArray")
        value = xr.DataArray(values, dims=[name][: values.ndim])
        if values.ndim:
            value = value.assign_coords({name: values})
    value = value.astype(np.float64)
    if "seed" in value.dims:
        raise InputError(f"{name}: a learning rate cannot depend on the seed")
    _require_rates(name, value.values, dtype)
    return value


def _require_rates(name: str, rates: NDArray[np.float64], dtype: str) -> None:
    if rates.size == 0 or not np.all((rates >= 0) & (rates <= np.finfo(dtype).max)):
        raise InputError(
            f"{name}: expected numbers of at least 0 that are finite in {dtype}, got {rates}"
        )


# -- documents ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RateDocument:
    """A learning rate along dims, in a file: values nested as the dims are."""

    dims: tuple[str, ...]
    values: Numbers
    coords: dict[str, tuple[float, ...]] = field(default_factory=dict)


def read_rate(where: str, value: Any) -> Any:
    """Return a learning rate, or those of groups, as a document gives it."""
    if isinstance(value, dict) and not {"dims", "at"} & value.keys():
        return {group: read_rate(f"{where}.{group}", of) for group, of in value.items()}
    if isinstance(value, str) and "." in value:
        raise InputError(
            f"{where}: {value} is a function, which a file cannot hold; give it from Python"
        )
    if isinstance(value, dict):
        read = as_value(where, value, Piecewise if "at" in value else RateDocument)
    else:
        read = as_value(where, value, PlainRate)
    if isinstance(read, RateDocument):
        coords = {dim: list(of) for dim, of in read.coords.items()}
        return xr.DataArray(np.asarray(read.values), dims=read.dims, coords=coords)
    return list(read) if isinstance(read, tuple) else read


def rate_document(rate: Any) -> Any:
    """Return a learning rate as a file has it."""
    if isinstance(rate, Mapping):
        return {group: rate_document(of) for group, of in rate.items()}
    if isinstance(rate, xr.DataArray):
        coords = {str(dim): rate[dim].values.tolist() for dim in rate.dims if dim in rate.coords}
        return {"dims": list(map(str, rate.dims)), "values": rate.values.tolist(), "coords": coords}
    if isinstance(rate, Piecewise):
        return plain(rate)
    return f"{rate.__module__}.{rate.__qualname__}" if callable(rate) else rate


def rates_by_group(given: Any, groups: Sequence[str], fixed: Sequence[str]) -> dict[str, Rate]:
    """Return the learning rate of each group; None for fixed ones."""
    if not isinstance(given, Mapping):
        return {name: None if name in fixed else given for name in groups}
    require_groups(NAME, given, groups)
    for name in given:
        if name in fixed and given[name] is not None:
            raise InputError(f"{NAME}: the group {name!r} is fixed by the model; give None")
    for name in groups:
        if name not in given and name not in fixed:
            raise InputError(f"{NAME}: missing for the group {name!r}; give None to keep it fixed")
    if all(given.get(name) is None for name in groups):
        raise InputError(f"{NAME}: no group moves; give a number to one of {', '.join(groups)}")
    return {name: given.get(name) for name in groups}


def require_groups(field_name: str, given: Iterable[str], groups: Collection[str]) -> None:
    """Refuse names that are not groups of the parameters."""
    for name in given:
        if name not in groups:
            raise InputError(f"{field_name}: the groups are {', '.join(groups)}, got {name!r}")


def seeds_document(seeds: Sequence[int]) -> int | list[int]:
    """Return the number of seeds where they are the first ones, else their list."""
    return len(seeds) if list(seeds) == list(range(len(seeds))) else list(seeds)


# How these fields of a run are read from documents and written to them.
RATE = {"kind": PlainRate, "read": read_rate, "write": rate_document}
SEEDS = {"kind": int | tuple[int, ...], "write": seeds_document}
