"""The schema of a group's file: its variables, and the labels along its inner dims."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.recipe import read_dataclass

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
