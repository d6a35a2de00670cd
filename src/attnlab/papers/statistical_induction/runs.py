"""Training runs that claims and figures share; sizes are ours unless it says otherwise."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.models import Transformer
from attnlab.simulation import Batches, Optimizer, Record, Simulation, Steps
from attnlab.tasks import Task

from .model import First, MinimalInduction
from .task import MixedChains

Prior = Literal["dirichlet", "doubly", "unigram"]
SEEDS = 10
T = 50
MINIMAL_RATES = {"second": 0.02, "first": 10.0}
EARLY = (0, 1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 90, 100)
LATE = (*EARLY, 200, 400, 800)


def chains(k: int, length: int = T, prior: Prior = "dirichlet") -> MixedChains:
    """Return Markov chains of one prior."""
    doubly, unigram = (float(prior == name) for name in ("doubly", "unigram"))
    return MixedChains(k, length, doubly=doubly, unigram=unigram)


def minimal(
    k: int,
    prior: Prior = "dirichlet",
    *,
    at: tuple[int, ...] = EARLY,
    seeds: int = SEEDS,
    first: First = "softmax",
    length: int = T,
    rates: dict[str, float] = MINIMAL_RATES,
    batch: int = 64,
) -> Simulation:
    """Return the minimal model by SGD, at rates that we chose for T = 50."""
    return Simulation(
        chains(k, length, prior),
        MinimalInduction(first=first),
        motion=Steps(at[-1]),
        gradient=Batches(batch),
        learning_rate=rates,
        seeds=seeds,
        record=Record(("parameters", "diagonal", "off_diagonal", "lag_mass"), at=at),
    )


def published(prior: Prior) -> Simulation:
    """Return the minimal model of 2 symbols at the published sizes, for 100 steps."""
    at, rates = (0, 50, 100), {"second": 0.01, "first": 1.0}
    return minimal(2, prior, at=at, length=100, rates=rates, batch=128)


def transformer(
    task: Task, *, steps: int = 600, every: int = 30, seeds: int = SEEDS, heads: int = 1
) -> Simulation:
    """Return the transformer of the release, but for its learning rate and dropout."""
    return Simulation(
        task,
        Transformer(
            layers=2, heads=heads, dim=16 * heads, positions="relative", scheme="normal", scale=0.02
        ),
        motion=Steps(steps, Optimizer("adamw", beta_2=0.95, weight_decay=0.1)),
        gradient=Batches(64),
        learning_rate=3e-3,
        seeds=seeds,
        record=Record("parameters", every=every, probe=64),
    )


def first_step(reached: xr.DataArray) -> NDArray[np.float64]:
    """Return the first recorded step, by seed, at which something holds; nan where at none."""
    steps = reached["step"].values.astype(np.float64)
    of = reached.transpose("seed", "step").values
    return np.where(of.any(1), steps[of.argmax(1)], np.nan)
