"""A sheet: what was measured of several layers that are alike, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.measures.arrays import Array, all_to_numpy, is_torch, to_numpy
from attnlab.measures.received import heavy_hitters
from attnlab.observing.labels import COORDS, OTHERS, ROW_MEANS

if TYPE_CHECKING:
    from jaxtyping import Int

# Arrays over keys that may wait on a device for the next measurement: no more than a block takes.
AWAY_BYTES = 2**28
ROW_QUERY = "row_query"
HEAVY = "heavy"  # which keys are heavy hitters: to be compared with the next record's
_LABELS = {**ROW_MEANS, **OTHERS}


@dataclass(frozen=True, eq=False)
class Labels:
    """What the layers of a sheet share.

    kind: "self" or "cross". tokens: of the keys. row_query: the queries of the rows of `attention`;
    -1 where there is none.
    """

    kind: str
    min_keys: int
    tokens: Int[NDArray[Any], "sequence key"] | None
    row_query: Int[NDArray[Any], "sequence row"] | None


@dataclass(frozen=True, eq=False)
class Sheet:
    """arrays: over (layer, sequence, head) and the dims of their label."""

    layers: tuple[str, ...]
    arrays: Mapping[str, Array]
    labels: Labels

    @classmethod
    def of(cls, layer: str, dataset: xr.Dataset) -> Sheet:
        """The sheet of one layer, from its dataset."""
        variables = dataset.variables
        arrays = {
            str(name): variables[name].values[None]
            for name in dataset.data_vars
            if name != ROW_QUERY
        }
        if "received_total" in arrays:
            arrays[HEAVY] = heavy_hitters(arrays["received_total"])
        tokens, queries = (
            variables[name].values if name in variables else None for name in ("token", ROW_QUERY)
        )
        kind = str(variables["kind"].values.item())
        return cls((layer,), arrays, Labels(kind, dataset.attrs["min_keys"], tokens, queries))

    def of_keys(self) -> dict[str, Array]:
        """Arrays over keys: large, and seldom asked for."""
        return {name: v for name, v in self.arrays.items() if self.is_of_keys(name)}

    def is_of_keys(self, name: str) -> bool:
        """Whether an array is over keys."""
        return name == HEAVY or "key" in _label(name).dims

    def of_heads(self) -> dict[str, Array]:
        """All others."""
        return {name: v for name, v in self.arrays.items() if not self.is_of_keys(name)}

    def apart(self) -> Iterator[Sheet]:
        """Layer by layer."""
        for i, name in enumerate(self.layers):
            cut = {n: values[i : i + 1] for n, values in self.arrays.items()}
            yield replace(self, layers=(name,), arrays=cut)

    def dims(self, name: str) -> tuple[str, ...]:
        """The dims of a variable, of one layer."""
        return ("sequence", "head", *_label(name).dims)

    def attrs(self, name: str) -> dict[str, str]:
        """What a variable means."""
        label = _label(name)
        meaning = label.meaning
        if name.endswith("_se"):
            meaning = f"standard error of {name.removesuffix('_se')}, of sampling rows"
        return {"long_name": meaning, "units": label.units}

    def dataset(self, layer: str) -> xr.Dataset:
        """What was measured of a layer, over (sequence, head)."""
        i, labels = self.layers.index(layer), self.labels
        variables: dict[str, xr.Variable] = {}
        for name, many in self.arrays.items():
            if name == HEAVY:
                continue
            dims, values = self.dims(name), to_numpy(many[i])
            values = values.astype(np.float32) if "key" in dims else values
            variables[name] = xr.Variable(dims, values, self.attrs(name))
        if labels.row_query is not None:
            of_rows = {"long_name": "the queries of the rows of attention; -1 where there is none"}
            variables[ROW_QUERY] = xr.Variable(("sequence", "row"), labels.row_query, of_rows)
        present = {str(dim) for variable in variables.values() for dim in variable.dims}
        sizes = tuple(self.arrays["entropy"].shape[1:3])
        coords: dict[Any, Any] = dict(_coords(sizes, frozenset(present)))
        coords["kind"] = labels.kind
        if labels.tokens is not None:
            coords["token"] = (("sequence", "key"), labels.tokens)
        return xr.Dataset(variables, coords, {"min_keys": labels.min_keys})


def brought_here(
    sheets: Sequence[Sheet], others: Sequence[Array] = ()
) -> tuple[tuple[Sheet, ...], list[NDArray[Any]]]:
    """What is over heads as numpy, and some other arrays, in one wait for the device they are on.

    What is over keys stays there, to be compared with the measurement before.
    """
    wanted = [{n: v for n, v in one.arrays.items() if not (one.is_of_keys(n) and _away_bytes(v))}
              for one in sheets]  # fmt: skip
    arrays = [values for one in wanted for values in one.values()]
    found = iter(all_to_numpy([*arrays, *others]))
    here = [{name: next(found) for name in one} for one in wanted]
    moved = tuple(
        replace(sheet, arrays={**sheet.arrays, **one})
        for sheet, one in zip(sheets, here, strict=True)
    )
    return moved, list(found)


def put_by(sheets: Sequence[Sheet]) -> tuple[Sheet, ...]:
    """The same until the next measurement; what is over keys comes here if it is large."""
    keyed = [one.of_keys() for one in sheets]
    if sum(_away_bytes(v) for some in keyed for v in some.values()) <= AWAY_BYTES:
        return tuple(sheets)
    return tuple(
        replace(one, arrays={**one.arrays, **{name: to_numpy(v) for name, v in some.items()}})
        for one, some in zip(sheets, keyed, strict=True)
    )


class Layers(Mapping[str, xr.Dataset]):
    """The datasets of all layers, in the order in which they ran; made when they are asked for."""

    def __init__(self, sheets: Sequence[Sheet], order: Sequence[str]) -> None:
        self._homes = {name: sheet for sheet in sheets for name in sheet.layers}
        self._order = tuple(order)

    def __getitem__(self, layer: str) -> xr.Dataset:
        return self._homes[layer].dataset(layer)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


def _label(name: str) -> Any:
    return _LABELS[name.removesuffix("_se")]


def _away_bytes(values: Array) -> int:
    return values.nbytes if is_torch(values) and values.device.type != "cpu" else 0


@lru_cache  # making an index takes longer than measuring a small layer
def _coords(sizes: tuple[int, int], present: frozenset[str]) -> xr.Coordinates:
    coords = {name: values for name, values in COORDS.items() if name in present}
    batch, head = sizes
    return xr.Dataset(
        coords={**coords, "sequence": np.arange(batch), "head": np.arange(head)}
    ).coords
