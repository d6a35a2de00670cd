"""The index of a sweep: which group holds which runs, and the whole as one labelled dataset."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from attnlab.files.errors import InputError
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


# -- the whole sweep as one labelled dataset, whose arrays are read when they are used -------------


Read = Callable[[str], AbstractContextManager[Contents]]
# Values where a setting has no such class, token or step, or its run failed.
FILL: dict[str, Any] = {"f": np.nan, "i": -1, "u": 0, "b": False, "O": ""}


def whole(index: Index, read: Read) -> xr.Dataset:
    """Return all settings: a dim for each swept name, then `seed`, then those of a single run.

    Where settings differ in size or in their steps, the dims are long enough for all, and entries
    that a setting does not have are NaN (-1 for token ids). `finished` marks runs that ended.
    read: opens a group by its key.
    """
    shape = [len(values) for values in index.settings.values()]
    return _assemble(index, read, np.arange(int(np.prod(shape, dtype=int))).reshape(shape))


def setting_of(index: Index, read: Read, number: int) -> xr.Dataset:
    """Return one setting, with the dims of learning rates and of a single run, without padding."""
    return _assemble(index, read, np.array(number))


def _assemble(index: Index, read: Read, numbers: NDArray[np.int64]) -> xr.Dataset:
    """Return the settings of these numbers, along the swept dims if all are there."""
    # dims of the whole, with their values, for each outer dim of a group
    outer: dict[str, dict[str, tuple[Any, ...]]] = {
        "setting": dict(index.settings) if numbers.ndim else {},
        "cell": dict(index.cells),
        "seed": {"seed": index.seeds},
    }
    coords = {dim: values for axes in outer.values() for dim, values in axes.items()}
    owner = index.owner()
    used = {index.groups[i].schema for i in np.unique(owner[numbers.ravel()])}
    schemas = [index.schemas[i] for i in used if i is not None]
    if not schemas:
        raise InputError(f"every group of this sweep failed; the first: {index.groups[0].cause}")
    inner = dict.fromkeys(dim for schema in schemas for dim in schema.labels)
    labels = {dim: _union([schema.along(dim) for schema in schemas]) for dim in inner}
    variables: dict[str, Any] = {}
    for name in dict.fromkeys(name for schema in schemas for name in schema.variables):
        dims, dtype = _of_all(schemas, name)
        lazy = _Lazy(index, read, name, numbers, owner, dims, labels, dtype)
        spread = [each for dim in dims for each in outer.get(dim, (dim,))]
        variables[name] = xr.Variable(spread, indexing.LazilyIndexedArray(lazy))
    done = index.finished()[numbers.ravel()].reshape([len(values) for values in coords.values()])
    variables["finished"] = (tuple(coords), done)
    made = xr.Dataset(variables, {**{d: np.asarray(v) for d, v in coords.items()}, **labels})
    made = made.set_coords({name for schema in schemas for name in schema.coords})
    names = {schema.names for schema in schemas}
    if len(names) > 1 or () in names:
        return made
    # tokens that have the same names everywhere are labelled by them, as a single run's are
    (same,) = names
    ids = ("token", labels["token"])
    return made.drop_vars("token_name").assign_coords(token=list(same), token_id=ids)


class _Lazy(BackendArray):
    """One variable over all groups; indexing it reads no more than is asked for."""

    def __init__(
        self,
        index: Index,
        read: Read,
        name: str,
        numbers: NDArray[np.int64],
        owner: NDArray[np.int64],
        dims: tuple[str, ...],
        labels: dict[str, NDArray[Any]],
        dtype: np.dtype[Any],
    ) -> None:
        self.index, self.read, self.name = index, read, name
        self.numbers, self.owner, self.dims, self.labels = numbers, owner, dims, labels
        self.inner = [dim for dim in dims if dim not in OUTER]
        self.sizes = {
            "setting": numbers.shape,
            "cell": tuple(len(values) for values in index.cells.values()),
            "seed": (len(index.seeds),),
            **{dim: (labels[dim].size,) for dim in self.inner},
        }
        self.shape = tuple(n for dim in dims for n in self.sizes[dim])
        self.dtype = dtype

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._get
        )

    def _get(self, key: tuple[Any, ...]) -> NDArray[Any]:
        chosen = [np.arange(n)[k] for n, k in zip(self.shape, key, strict=True)]
        lengths = [np.size(c) for c in chosen]
        # positions along the group's dims, several swept dims counted as one
        positions, left = {}, list(map(np.atleast_1d, chosen))
        for dim in self.dims:
            n = len(self.sizes[dim])
            axes, left = left[:n], left[n:]
            flat = np.ravel_multi_index(np.ix_(*axes), self.sizes[dim]) if n else np.zeros(1, int)
            positions[dim] = flat.ravel()
        settings = self.numbers.ravel()[positions["setting"]]
        out = np.full([positions[dim].size for dim in self.dims], FILL[self.dtype.kind], self.dtype)
        for number in self._groups(settings, positions):
            self._copy(number, settings, positions, out)
        kept = [n for n, c in zip(lengths, chosen, strict=True) if np.ndim(c)]
        return out.reshape(kept)

    def _groups(
        self, settings: NDArray[np.int64], positions: dict[str, NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """Return the groups that hold some of the entries asked for."""
        owner = self.owner[settings]
        if "cell" in positions:
            owner = owner[:, positions["cell"]]
        if "seed" in positions:
            owner = owner[:, :, positions["seed"]]
        found: NDArray[np.int64] = np.unique(owner)
        return found

    def _copy(
        self,
        number: int,
        settings: NDArray[np.int64],
        positions: dict[str, NDArray[np.int64]],
        out: NDArray[Any],
    ) -> None:
        group = self.index.groups[number]
        if group.schema is None or self.name not in self.index.schemas[group.schema].variables:
            return
        schema = self.index.schemas[group.schema]
        here = {
            "setting": _places(np.asarray(group.place.settings), settings),
            "cell": _places(np.arange(*group.place.cells), positions.get("cell")),
            "seed": _places(np.arange(*group.place.seeds), positions.get("seed")),
        }
        for dim in self.inner:
            here[dim] = _places(schema.along(dim), self.labels[dim][positions[dim]])
        has = schema.variables[self.name][0]
        local = [here[dim][here[dim] >= 0] for dim in has]
        if not all(map(len, local)):
            return
        # a file is read in one piece, from the first to the last that is asked for
        piece = tuple(slice(i.min(), i.max() + 1) for i in local)
        with self.read(group.key) as contents:
            block = contents.array(self.name)[piece][np.ix_(*(i - i.min() for i in local))]
        absent = tuple(i for i, dim in enumerate(self.dims) if dim not in has)
        out[np.ix_(*(np.flatnonzero(here[dim] >= 0) for dim in self.dims))] = np.expand_dims(
            block, absent
        )


def _places(labels: NDArray[Any], wanted: NDArray[Any] | None) -> NDArray[np.int64]:
    """Return the position of each wanted label, or -1."""
    if wanted is None:
        return np.zeros(0, dtype=int)
    order = np.argsort(labels)
    at = np.minimum(np.searchsorted(labels, wanted, sorter=order), labels.size - 1)
    return np.where(labels[order[at]] == wanted, order[at], -1)


def _union(labels: list[NDArray[Any]]) -> NDArray[Any]:
    return np.unique(np.concatenate(labels)) if len(labels) > 1 else labels[0]


def _of_all(schemas: list[Schema], name: str) -> tuple[tuple[str, ...], np.dtype[Any]]:
    """Return dims and dtype that hold a variable of every schema."""
    found = [schema.variables[name] for schema in schemas if name in schema.variables]
    dims = max((dims for dims, _ in found), key=len)
    return dims, np.result_type(*(np.dtype(kind) for _, kind in found))


def table(index: Index, numbers: Mapping[str, NDArray[np.float64]]) -> str:
    """Return CSV text: the swept values, the numbers of runs that finished and failed, and every
    summary number as its mean and sample standard deviation over the seeds that finished."""
    import pandas as pd

    finished = index.finished()
    counts = finished.sum(axis=2)
    columns: dict[str, NDArray[Any]] = {"seeds": counts, "failed": finished.shape[2] - counts}
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.filterwarnings("ignore", category=RuntimeWarning)  # cells without a number
        for name, values in numbers.items():
            kept = np.where(finished, values, np.nan)
            columns[f"{name}_mean"] = np.nanmean(kept, axis=2)
            columns[f"{name}_std"] = np.nanstd(kept, axis=2, ddof=1)
    # as objects, swept values keep every digit
    swept = pd.DataFrame(product(*index.settings.values(), *index.cells.values()), dtype=object)
    swept.columns = [*index.settings, *index.cells]
    flat = {name: column.ravel() for name, column in columns.items()}
    return str(swept.assign(**flat).to_csv(index=False, float_format="%.8g", lineterminator="\n"))
