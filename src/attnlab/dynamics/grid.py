"""Grid: the runs of one call, by seed and by rates, with the labels they carry."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.files.memory import require_memory

RUN_BYTES = 200  # of a run, however small: its rates, its place, its share of a batch


@dataclass(frozen=True)
class Grid:
    """Seeds times rate points. Swept rates keep their dims; `points` counts them flattened."""

    seeds: NDArray[np.int64]
    eta_y: xr.DataArray  # broadcast against each other
    eta_z: xr.DataArray

    @property
    def points(self) -> int:
        return int(self.eta_y.size)

    @property
    def runs(self) -> int:
        return self.seeds.size * self.points

    def rates(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """eta_y and eta_z of each point."""
        return self.eta_y.values.reshape(-1), self.eta_z.values.reshape(-1)

    def dims(self) -> tuple[Hashable, ...]:
        """Dims of a per-run quantity, swept rates first."""
        return (*self.eta_y.dims, "seed")

    def coords(self) -> dict[Hashable, Any]:
        """Coords of the swept dims and of the seeds."""
        return {**self.eta_y.coords, "seed": self.seeds}

    def label(self, values: NDArray[Any]) -> NDArray[Any]:
        """(setting, seed, point, ...) -> (setting, swept dims..., seed, ...)."""
        points_first = np.moveaxis(values, 1, 2)
        settings, _, _, *inner = values.shape
        return points_first.reshape(settings, *self.eta_y.shape, self.seeds.size, *inner)

    def describe(self, seed: int, point: int) -> str:
        """The run's rates and seed in words."""
        eta_y, eta_z = self.rates()
        return f"eta_y = {eta_y[point]:g}, eta_z = {eta_z[point]:g}, seed {self.seeds[seed]}"


def make_grid(eta_y: Any, eta_z: Any, seeds: int | Sequence[int], dtype: str = "float64") -> Grid:
    """Validate rates and seeds.

    A rate is a number, a sequence (which becomes a dim of its own name) or a DataArray, whose
    dims are kept: ``eta_y=ratio * eta_z`` with two DataArrays sweeps their product.
    """
    y, z = (_labelled(name, rate, dtype) for name, rate in (("eta_y", eta_y), ("eta_z", eta_z)))
    points = math.prod({**y.sizes, **z.sizes}.values())
    require_memory("eta_y, eta_z", RUN_BYTES * points)
    if isinstance(seeds, (int, np.integer)):
        if seeds < 1:
            raise InputError(f"seeds: expected at least 1, got {seeds}")
        require_memory("seeds", RUN_BYTES * points * int(seeds))
        chosen = np.arange(int(seeds))
    else:
        chosen = np.asarray(list(seeds))
        if chosen.ndim != 1 or chosen.size == 0 or not np.issubdtype(chosen.dtype, np.integer):
            raise InputError("seeds: expected a number of seeds or a list of whole numbers")
        if chosen.min() < 0 or chosen.max() >= 2**32 or np.unique(chosen).size != chosen.size:
            raise InputError("seeds: expected different whole numbers from 0 to 2^32 - 1")
    return Grid(chosen.astype(np.int64), *xr.broadcast(y, z))


def as_rate(name: str, value: Any, dtype: str) -> float | xr.DataArray:
    """A rate as it is kept: a number, or a DataArray that cannot be written to."""
    labelled = _labelled(name, value, dtype).copy()
    if not labelled.dims:
        return float(labelled)
    labelled.values.setflags(write=False)
    return labelled


def _labelled(name: str, value: Any, dtype: str) -> xr.DataArray:
    if not isinstance(value, xr.DataArray):
        values = np.asarray(value, dtype=np.float64)
        if values.ndim > 1:
            raise InputError(f"{name}: give arrays of more dims as an xarray.DataArray")
        value = xr.DataArray(values, dims=[name][: values.ndim])
        if values.ndim:
            value = value.assign_coords({name: values})
    value = value.astype(np.float64)
    if "seed" in value.dims:
        raise InputError(f"{name}: a rate cannot depend on the seed")
    rates = value.values
    if rates.size == 0 or not np.all((rates >= 0) & (rates <= np.finfo(dtype).max)):
        raise InputError(
            f"{name}: expected numbers of at least 0 that are finite in {dtype}, got {rates}"
        )
    return value
