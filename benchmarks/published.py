"""The 64 published cells of Fig. 6, each drawn from data of its own: deviations in standard errors.

Cells that share their data deviate together; with data of their own ours do not, and what is left
in common is the published panel's.
"""

from __future__ import annotations

import argparse

import numpy as np
import xarray as xr

from attnlab.papers.scan_and_snap.figures import published
from benchmarks.fig6 import panel


def deviations(num_last: int, seeds: int) -> xr.DataArray:
    """(eta_z, ratio): ours minus published, in standard errors of both."""
    theirs = published.fig6().sel(num_last=num_last)
    ours = panel(num_last, seeds, independent=True).distinct_entropy
    found = ours.isel(step=-1).mean(["seed", "sequence_class"])
    error = theirs["entropy_std"] * np.sqrt(1 / published.FIG6_SEEDS + 1 / seeds)
    deviation = (found - theirs["entropy_mean"]) / error
    return deviation.transpose("eta_z", "ratio")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench published", description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    options = parser.parse_args(arguments)
    every = []
    for num_last in published.fig6()["num_last"].values:
        found = deviations(int(num_last), options.seeds)
        print(f"num_last {num_last:g} (rows eta_Z 0.5, 1, 2, 3; columns ratio 1, 2, 5, 10)")
        print(np.array2string(found.values, precision=2, suppress_small=True))
        print(f"  mean {float(found.mean()):+.2f}, standard deviation {float(found.std()):.2f}")
        every.append(found.values)
    worst = np.abs(every).max()
    print(f"largest {worst:.2f} (below 4 wanted)")
    raise SystemExit(not worst < 4)
