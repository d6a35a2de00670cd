"""Numbers of flows and mixtures from many starts, on file: about two minutes of one core.

    python -m attnlab.papers.linear_icl.evidence four

trains the run again and writes `evidence/four.csv`. Files keep what claims read of each start.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.experiments import Evidence
from attnlab.simulation import Simulation

from . import theory
from .learner import PopulationRegression
from .measures import dwell, purity
from .model import LinearAttention
from .runs import crossed, descent, flow, geometric, weights_of
from .task import InContextRegression

EIGHT = InContextRegression(tuple((np.arange(8.0, 0.0, -1.0) / 36).tolist()))
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of sequences with a task of their own
RANKS = (2, 4, 8)
CLOSE = 0.004  # of a level
LEARNED = 0.7  # an in-weight loss below: at the start it is 1


def staircases(std: float = 0.01, last: float = 1e5, seeds: int = 20) -> Simulation:
    """Return the flow of five heads of rank 1 on the published task."""
    at = geometric(last / 2000, last, 1000)
    return flow(InContextRegression(), LinearAttention(5, 1, std), at, seeds=seeds)


def eight(std: float, last: float, *, rank: int = 1, seeds: int = 10) -> Simulation:
    """Return the flow of nine heads in eight dimensions."""
    at = geometric(last / 2000, last, 500)
    return flow(EIGHT, LinearAttention(9, rank, std), at, seeds=seeds)


def mixtures() -> Simulation:
    """Return the published run on mixtures, white inputs; to step 5001, as far as it is drawn."""
    task, *others = (InContextRegression((0.25,) * 4, fresh=p) for p in SHARES)
    rates = {"std": 1e-6, "rate": 5e-4, "steps": 5001, "every": 20}
    return descent(task, **rates, seeds=3, beside=tuple(others))  # type: ignore[arg-type]


def passage(run: xr.Dataset) -> xr.Dataset:
    """Return how in-weight learning comes and goes.

    least, end: the in-weight loss, and gap, by how much its end differs from its start.
    in_weight, in_context: the first record at which each loss is below 0.7.
    """
    losses = {name: run[f"{name}_loss"] for name in ("in_weight", "in_context")}
    own = losses["in_weight"]
    end = own.isel(step=-1, drop=True)
    return xr.Dataset(
        {
            "least": own.min("step"),
            "end": end,
            "gap": abs(end - own.isel(step=0, drop=True)),
            **{name: (of < LEARNED).argmax("step") for name, of in losses.items()},
        }
    )


def rests(run: xr.Dataset, levels: ArrayLike, within: ArrayLike) -> NDArray[np.float64]:
    """Return the log time that the loss of each seed spends near levels, (seed, level)."""
    t = np.log(run["time"].values[1:])
    losses = run["loss"].transpose("seed", "time").values[:, 1:]
    return np.array([dwell(t, loss, levels, within=within) for loss in losses])


def plateaus(one: theory.Regression) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the losses of the plateaus on the way, and a tenth of the gap to the nearest."""
    levels = theory.plateau_losses(one)
    gaps = -np.diff(levels)
    return levels[1:-1], np.minimum(gaps[1:], gaps[:-1]) / 10


def winners(found: xr.Dataset) -> NDArray[np.float64]:
    """Return the purity of the keys that learn each component at the end, (seed, component)."""
    v, k, q = (weights_of(found, name)[:, -1] for name in ("value", "key", "query"))
    share = np.abs(v[:, :, None] * k[:, :, 0] * q[:, :, 0]).argmax(1)
    return purity(np.take_along_axis(k[:, :, 0], share[..., None], 1))


def measured(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return what is kept: `passage` of mixtures; of flows, along seed and component:

    half: when half of the component is learned. on, between: log time within 0.004 of the plateau
    that it ends, and half way to the next. near: within a tenth of the gap. purity: of its key.
    """
    if not isinstance(run.task, PopulationRegression):
        return passage(result)
    one = run.task.task.regression
    levels, within = plateaus(one)
    middles = (theory.plateau_losses(one)[1:] + theory.plateau_losses(one)[:-1]) / 2
    last = np.full((result.sizes["seed"], 1), np.nan)  # no plateau but the end
    kept = {
        "half": crossed(result["learned"]).transpose("seed", "component"),
        "on": np.hstack([rests(result, levels, CLOSE), last]),
        "between": rests(result, middles, CLOSE),
        "near": np.hstack([rests(result, levels, within), last]),
        "purity": winners(result),
    }
    dims = ("seed", "component")
    return xr.Dataset(
        {name: (dims, np.asarray(of)) for name, of in kept.items()},
        {"seed": result["seed"], "component": np.arange(len(one.spectrum))},
    )


EVIDENCE = Evidence(
    __file__,
    {
        "four": staircases,
        "four-large": partial(staircases, 0.3, 2e4),
        "four-small": partial(staircases, 0.001, 1e5, 10),
        "eight": partial(eight, 0.005, 1e5),
        "eight-small": partial(eight, 2e-4, 5e5),
        **{f"rank-{R}": partial(eight, 0.005, 5e4, rank=R, seeds=4) for R in RANKS},
        "mixtures": mixtures,
    },
    measured,
)

if __name__ == "__main__":
    EVIDENCE.write(*sys.argv[1:])
