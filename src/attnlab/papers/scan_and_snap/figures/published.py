"""Published values, each in one place: what figures, claims, benchmarks and tests compare with."""

from __future__ import annotations

import csv
from importlib import resources

import numpy as np
import xarray as xr

FIG6_AXES = {"num_last": int, "eta_z": float, "ratio": float}
FIG6_FILE = "fig6_published.csv"
FIG6_SEEDS = 10
FIG6_ROUNDING = 1e-3  # of the last digit that is given


def fig6() -> xr.Dataset:
    """Fig. 6 of the paper: `entropy_mean` and `entropy_std` over ten seeds, all 64 cells.

    The numbers are those of the published runs, to three decimals. Cells of one panel (num_last)
    share their seeds, so that they deviate together.
    """
    text = resources.files("attnlab.papers.scan_and_snap.figures").joinpath(FIG6_FILE).read_text()
    rows = list(csv.DictReader(text.splitlines()))
    coords = {axis: sorted({kind(row[axis]) for row in rows}) for axis, kind in FIG6_AXES.items()}
    empty = np.full([len(values) for values in coords.values()], np.nan)
    names = ("entropy_mean", "entropy_std")
    cells = xr.Dataset({name: (tuple(coords), empty.copy()) for name in names}, coords)
    for row in rows:
        place = {axis: kind(row[axis]) for axis, kind in FIG6_AXES.items()}
        for name in names:
            cells[name].loc[place] = float(row[name])
    return cells
