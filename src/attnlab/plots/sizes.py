"""Syn-Medium at several sizes: what Figs. 6, 11 and 12 have in common."""

from __future__ import annotations

import xarray as xr

from attnlab.sweep import Part


def by_size(parts: list[Part], arrays: list[xr.DataArray]) -> xr.DataArray:
    """One array per part along `num_last`, the number of queries; K stands beside it."""
    coords = {
        "num_last": [int(part.parameters["num_last"]) for part in parts],
        "classes": ("num_last", [part.result.sizes["sequence_class"] for part in parts]),
    }
    return xr.concat(arrays, "num_last").assign_coords(coords)


def size_titles(data: xr.Dataset) -> list[str]:
    """A title for each size along `num_last`."""
    sizes = zip(data["num_last"].values, data["classes"].values, strict=True)
    return [f"{n} {'query' if n == 1 else 'queries'}, K = {k}" for n, k in sizes]
