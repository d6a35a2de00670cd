"""Numbers of trainings on file, ten seeds each at least: two minutes of one core.

    python -m attnlab.papers.polarisation.evidence

trains again. Claims that need many trainings, or long ones, read these tables.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import xarray as xr

from attnlab.experiments import Evidence
from attnlab.simulation import Simulation

from . import runs, theory
from .model import WEIGHTINGS
from .task import Distribution, Regression, StickyChain

EQUAL_RARE = (0.7, 0.1, 0.1, 0.1)
SHARPNESS = {"2": 2.0, "5": 5.0, "10": 10.0, "one-hot": None}


def measured(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return numbers of each seed: of a chain its `runs.focus`, else the share of the largest
    weight at the end and one record before, the largest norm of a value over their median, the
    loss, and of a solution its norm and how much the spread of logits has grown."""
    if isinstance(run.task, StickyChain):
        return runs.focus(result)
    alpha, norms = abs(result["weights"]), result["value_norms"]
    share = alpha.max("token") / alpha.sum("token")
    last = {run.clock: -1}
    found = {
        "top": share.isel(last),
        "top_before": share.isel({run.clock: -2}, drop=True),
        "over_median": (norms.max("token") / norms.median("token")).isel(last),
        "loss": result["loss"].isel(last),
    }
    if isinstance(run.task, Regression):
        spread = xr.DataArray(np.log(result["weights"])).std("token")
        found["growth"] = spread.isel(last) / spread.isel({run.clock: 0}, drop=True)
        found["solution"] = xr.DataArray(np.linalg.norm(runs.solutions(run), axis=-1), dims="seed")
    if isinstance(run.task, Distribution) and run.task.sharpness is not None:
        solutions = [theory.cross_entropy_norm(of.data[1]) for _, of in runs.facts_of(run)]
        found["solution"] = xr.DataArray(solutions, dims="seed")
    return xr.Dataset(
        {name: of.drop_vars(run.clock, errors="ignore") for name, of in found.items()}
    )


EVIDENCE = Evidence(
    __file__,
    {
        **{f"weighting-{name}": partial(runs.weighting, name) for name in WEIGHTINGS},
        **{f"tied-{dim}": partial(runs.tied, dim) for dim in (10, 50)},
        **{f"regression-{of:g}": partial(runs.regression, of) for of in (1.0, 5.0, 50.0)},
        "regression-5-dim-10": partial(runs.regression, 5.0, dim=10),
        **{
            f"target-{name}": partial(runs.distribution, of, (1 + (name == "5")) * runs.SEEDS)
            for name, of in SHARPNESS.items()  # more seeds at the boundary
        },
        "chain-equal": partial(runs.chain, EQUAL_RARE, seeds=runs.SEEDS),
        "chain-end": runs.chain_end,
    },
    measured,
)

if __name__ == "__main__":
    EVIDENCE.write(*sys.argv[1:])
