"""Measure every cell of a grid of settings, and put the results together along its axes."""

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from attnlab.files.progress import Progress, in_turn


def over_cells(
    measure: Callable[..., xr.Dataset], progress: Progress, **axes: Iterable[Any]
) -> xr.Dataset:
    """Return what `measure(*cell, report)` gives for each cell, along the dims named in `axes`.

    Parameters
    ----------
    measure : callable
        Takes one value of each axis, in their order, and a function to call with the fraction done.
    progress : callable or False
        Called with the fraction done; cells count alike.
    **axes : iterable
        The values along each axis, the outermost first. Where cells have other sizes along a dim
        of their own, the smaller are filled up with NaN.

    Returns
    -------
    xarray.Dataset
        The results, with the axes as coordinates.
    """
    values = {name: list(along) for name, along in axes.items()}
    cells = list(product(*values.values()))
    parts = [measure(*cell, report) for cell, report in in_turn(cells, progress)]
    for name, along in reversed(values.items()):
        axis = xr.DataArray(along, dims=name, name=name)
        rows = [parts[i : i + len(along)] for i in range(0, len(parts), len(along))]
        parts = [xr.concat(row, axis, join="outer") for row in rows]
    (whole,) = parts
    return whole


def over_draws(
    values: Mapping[str, tuple[tuple[str, ...], Any]], **axes: Iterable[Any]
) -> xr.Dataset:
    """Return arrays, each with its dims after that of the draws, along the dims named in `axes`.

    Draws are in the order of `itertools.product` of the values along the axes.
    """
    coords = {name: list(along) for name, along in axes.items()}
    shape = [len(along) for along in coords.values()]
    arrays = {
        name: ((*axes, *dims), np.reshape(of, (*shape, *np.shape(of)[1:])))
        for name, (dims, of) in values.items()
    }
    return xr.Dataset(arrays, coords)
