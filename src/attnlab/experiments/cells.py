"""Measure every cell of a grid of settings, and put the results together along its axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

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
