"""Published values, each in one place: what figures, claims, benchmarks and tests compare with."""

from __future__ import annotations

import csv
from importlib import resources

import xarray as xr

FIG6_AXES = {"num_last": int, "eta_z": float, "ratio": float}
FIG6_VALUES = ("entropy_mean", "entropy_std")
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
    cells = xr.Dataset(
        {name: ("cell", [float(row[name]) for row in rows]) for name in FIG6_VALUES},
        {axis: ("cell", [kind(row[axis]) for row in rows]) for axis, kind in FIG6_AXES.items()},
    )
    return cells.set_index(cell=list(FIG6_AXES)).unstack("cell")
