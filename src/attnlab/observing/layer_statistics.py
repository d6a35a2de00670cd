"""Statistics of layers: their names, dims and meanings, and arrays of layers that are alike."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Int
from numpy.typing import NDArray

from attnlab.measures import maps, positions
from attnlab.measures.arrays import Array, all_to_numpy, is_torch, to_numpy
from attnlab.observing import kv_cache

# Statistics summarised over sequences by their maximum; all others by their mean.
MAXIMA = ("max_logit",)
COORDS: dict[str, list[Any]] = {
    "k": list(maps.TOP),
    "mass": list(maps.MASS),
    "first": list(positions.FIRST),
    "policy": list(kv_cache.POLICIES),
    "budget": list(kv_cache.BUDGETS),
}
OF_SEQUENCES = "_sequence_se"  # suffix of the standard error over sequences
WITH_ERROR = ("position_only", "output_norm")  # that have one beside the means over rows
Arrays = dict[str, NDArray[Any]]
DEVICE_BYTES = 2**28  # of arrays over keys that stay on a device until the next measurement
HEAVY = "heavy"  # which keys are heavy hitters, for comparison with the next snapshot


class Label(NamedTuple):
    """A row of statistics.csv, which has all statistics in the order of a report.

    group: "row" (means over rows), "call" (of all rows together, or of the last ones), "weights",
    "history" or "role". dims: beside layer, sequence and step. title, entry: in a report, the title
    and the entry of other dims; no title, not shown.
    """

    name: str
    group: str
    dims: tuple[str, ...]
    units: str
    title: str
    entry: Mapping[str, float]
    meaning: str

    @property
    def attrs(self) -> dict[str, str]:
        """Attributes of a variable."""
        return {"long_name": self.meaning, "units": self.units}


def _read_labels() -> dict[str, Label]:
    numbers: dict[str, Any] = {"LOCAL": positions.LOCAL, "SINK_RATE": positions.SINK_RATE}
    numbers["SEEN"] = f"{100 * positions.SINK_SEEN:g}"
    text = resources.files("attnlab.observing").joinpath("statistics.csv").read_text("utf-8")
    found = {}
    for name, group, dims, units, title, entries, meaning in csv.reader(text.splitlines()[1:]):
        pairs = (entry.split("=") for entry in entries.split())
        entry = {dim: float(value) for dim, value in pairs}
        meaning = meaning.format(**numbers)
        found[name] = Label(name, group, tuple(dims.split()), units, title, entry, meaning)
    return found


LABELS = _read_labels()


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels that the layers of a group share.

    kind: "self" or "cross". tokens: of the keys. row_query: the queries of the rows of `attention`;
    -1 where there is none. kernel: `attnlab.observing.kernels.note`.
    """

    kind: str
    min_keys: int
    tokens: Int[NDArray[Any], "sequence key"] | None = None
    row_query: Int[NDArray[Any], "sequence row"] | None = None
    kernel: str = ""


@dataclass(frozen=True, eq=False)
class LayerStatistics:
    """Statistics of a group of layers that are alike. arrays: over (layer, sequence, head) and the
    dims of their label."""

    layers: tuple[str, ...]
    arrays: Mapping[str, Array]
    labels: Labels

    def of_keys(self) -> dict[str, Array]:
        """Return the arrays over keys: large, and seldom needed."""
        return {name: v for name, v in self.arrays.items() if _is_of_keys(name)}

    def of_heads(self) -> dict[str, Array]:
        """Return all arrays that are not over keys."""
        return {name: v for name, v in self.arrays.items() if not _is_of_keys(name)}

    def apart(self) -> Iterator[LayerStatistics]:
        """Yield the statistics of each layer."""
        for i, name in enumerate(self.layers):
            cut = {n: values[i : i + 1] for n, values in self.arrays.items()}
            yield replace(self, layers=(name,), arrays=cut)

    def dataset(self, layer: str) -> xr.Dataset:
        """Return the dataset of a layer, over (sequence, head)."""
        i, labels = self.layers.index(layer), self.labels
        variables: dict[str, xr.Variable] = {}
        for name, many in self.arrays.items():
            if name == HEAVY:
                continue
            dims, attrs = dims_and_attrs(name)
            values = to_numpy(many[i])
            values = values.astype(np.float32) if "key" in dims else values
            variables[name] = xr.Variable(dims, values, attrs)
        if labels.row_query is not None:
            of_rows = {"long_name": "the queries of the rows of attention; -1 where there is none"}
            variables["row_query"] = xr.Variable(("sequence", "row"), labels.row_query, of_rows)
        present = {str(dim) for variable in variables.values() for dim in variable.dims}
        coords: dict[Any, Any] = {name: COORDS[name] for name in COORDS.keys() & present}
        batch, head = self.arrays["entropy"].shape[1:3]
        coords |= {"sequence": np.arange(batch), "head": np.arange(head), "kind": labels.kind}
        if labels.tokens is not None:
            coords["token"] = (("sequence", "key"), labels.tokens)
        about = {"min_keys": labels.min_keys, "kernel": labels.kernel}
        return xr.Dataset(variables, coords, about)


def means_over_sequences(group: LayerStatistics) -> Arrays:
    """Return means over sequences, and the largest of MAXIMA, over layer, head and other dims.

    `NAME_se` is the standard error of sampling rows, `NAME_sequence_se` that over sequences. All
    variables are computed at once: one after the other would take longer than the forward pass.
    """
    arrays = group.of_heads()
    first = arrays["entropy"].shape  # layer sequence head
    flat = {
        name: np.asarray(to_numpy(v), np.float64).reshape(*first, -1) for name, v in arrays.items()
    }
    widths = [values.shape[-1] for values in flat.values()]
    values = np.concatenate(list(flat.values()), axis=-1)
    squares = np.repeat([name.endswith("_se") for name in flat], widths)
    number = np.isfinite(values).sum(axis=1)
    total = np.nansum(np.where(squares, values**2, values), axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(squares, np.sqrt(total), total) / np.where(number > 0, number, np.nan)
        off = np.nansum((values - mean[:, None]) ** 2, axis=1)
        several = np.where(number > 1, number, np.nan)
        spread = np.sqrt(off / (several - 1) / several)
    found: Arrays = {}
    ends = np.cumsum(widths).tolist()
    for name in (name for name in MAXIMA if name in arrays):
        found[name] = np.fmax.reduce(flat[name], axis=1)[..., 0]
    for name, begun, end in zip(flat, [0, *ends], ends, strict=False):
        if name in MAXIMA:
            continue
        shape = (first[0], *arrays[name].shape[2:])
        found[name] = mean[..., begun:end].reshape(shape)
        if f"{name}_se" in arrays or name in WITH_ERROR:
            found[f"{name}{OF_SEQUENCES}"] = spread[..., begun:end].reshape(shape)
    return found


def labelled(values: Arrays, kinds: Mapping[str, str], before: tuple[str, ...]) -> xr.Dataset:
    """Return means over the dims `before`, layer, head and their own with names and meanings.

    kinds: kind of each layer, in their order.
    """
    variables: dict[str, Any] = {}
    for name, array in values.items():
        of = name.removesuffix(OF_SEQUENCES)
        (_, *dims), attrs = dims_and_attrs(of)  # without sequence
        if of != name:
            attrs = {"long_name": f"standard error of {of}, of other sequences"}
        variables[name] = ((*before, "layer", *dims), array, attrs)
    present = {dim for dims, _, _ in variables.values() for dim in dims}
    coords: dict[str, Any] = {name: entries for name, entries in COORDS.items() if name in present}
    layers, heads = values["entropy"].shape[-2:]
    coords |= {"layer": np.arange(layers), "head": np.arange(heads)}
    coords |= {"module": ("layer", list(kinds)), "kind": ("layer", list(kinds.values()))}
    return xr.Dataset(variables, coords)


def concat_sequences(several: Sequence[LayerStatistics]) -> LayerStatistics:
    """Concatenate the sequences of one layer, without arrays over keys; NaN where a part lacks a
    statistic."""
    shapes = {name: values.shape for one in several for name, values in one.of_heads().items()}

    def of(one: LayerStatistics, name: str) -> NDArray[Any]:
        layers, _, *rest = shapes[name]
        shape = (layers, one.arrays["entropy"].shape[1], *rest)
        return one.arrays[name] if name in one.arrays else np.full(shape, np.nan)

    arrays = {name: np.concatenate([of(one, name) for one in several], 1) for name in shapes}
    labels = replace(several[0].labels, tokens=None, row_query=None)
    return LayerStatistics(several[0].layers, arrays, labels)


def to_host(
    groups: Sequence[LayerStatistics], others: Sequence[Array] = ()
) -> tuple[tuple[LayerStatistics, ...], list[NDArray[Any]]]:
    """Move arrays over heads, and some others, to the host in one synchronisation.

    Arrays over keys stay where they are, for comparison with the measurement before.
    """
    wanted = [
        {n: v for n, v in one.arrays.items() if not (_is_of_keys(n) and _device_bytes(v))}
        for one in groups
    ]
    arrays = [values for one in wanted for values in one.values()]
    found = iter(all_to_numpy([*arrays, *others]))
    here = [{name: next(found) for name in one} for one in wanted]
    moved = tuple(
        replace(group, arrays={**group.arrays, **one})
        for group, one in zip(groups, here, strict=True)
    )
    return moved, list(found)


def keep_for_next(groups: Sequence[LayerStatistics]) -> tuple[LayerStatistics, ...]:
    """Return groups to keep until the next snapshot; large arrays over keys move to the host."""
    keyed = [one.of_keys() for one in groups]
    if sum(_device_bytes(v) for some in keyed for v in some.values()) <= DEVICE_BYTES:
        return tuple(groups)
    return tuple(
        replace(one, arrays={**one.arrays, **{name: to_numpy(v) for name, v in some.items()}})
        for one, some in zip(groups, keyed, strict=True)
    )


def dims_and_attrs(name: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the dims of a variable of one layer, and the attributes that explain it."""
    label = label_of(name)
    if name.endswith("_se"):
        of = name.removesuffix("_se")
        label = label._replace(meaning=f"standard error of {of}, of sampling rows")
    return ("sequence", *label.dims), label.attrs


def label_of(name: str) -> Label:
    """Return the label of a statistic or of its standard error."""
    return LABELS[name.removesuffix(OF_SEQUENCES).removesuffix("_se")]


def _is_of_keys(name: str) -> bool:
    return name == HEAVY or "key" in label_of(name).dims


def _device_bytes(values: Array) -> int:
    return values.nbytes if is_torch(values) and values.device.type != "cpu" else 0
