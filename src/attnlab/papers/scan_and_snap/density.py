"""Density: where a larger eta_Y turns from sparser to denser attention, in training."""

from __future__ import annotations

import numpy as np
import xarray as xr

from attnlab.auditing.runs import RUNS, trained
from attnlab.tasks.classes import SequenceClasses

from .readings import mean_entropy

RATIOS = np.geomspace(1.0, 990.0, 2 * RUNS)
STEPS = 1e10
# The moments at which the order of the entropies is looked at, as eta_Z t.
TURNS = (1e1, 1e3, 1e5, 1e7)


def densities(classes: SequenceClasses, *, eta_z: float) -> xr.DataArray:
    """Entropy over distinct tokens in the joint flow, over (ratio, time), at fixed eta_Z."""
    halves = [
        mean_entropy(trained(classes, tuple((float(r * eta_z), eta_z) for r in half), STEPS))
        for half in (RATIOS[:RUNS], RATIOS[RUNS:])
    ]
    joined = xr.concat(halves, "run").drop_vars(["eta_y", "eta_z"])
    return joined.swap_dims(run="ratio").assign_coords(ratio=RATIOS).transpose("ratio", "time")


def turning_ratio(entropy: xr.DataArray, time: float) -> float:
    """The ratio at which entropy over ratios is lowest at `time`: denser from there on.

    The vertex of the parabola through the lowest point and its neighbours, in the logarithm.
    """
    at = entropy.interp(time=time).values
    i = int(np.clip(at.argmin(), 1, at.size - 2))
    x, y = np.log(RATIOS[i - 1 : i + 2]), at[i - 1 : i + 2]
    a, b, _ = np.polyfit(x - x[1], y, 2)
    return float(np.exp(x[1] - b / (2.0 * a)))
