"""Runs of the paper: the flow of the expected loss, and gradient descent on training sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.measures import clock_of
from attnlab.simulation import Flow, Record, Simulation, Steps

from . import theory
from .learner import PopulationRegression, SampleRegression
from .measures import first_crossing
from .model import LABEL_BLOCKS, LinearAttention, factors
from .task import InContextRegression

GROUPS = ("value", "key_query", "key", "query")
MEASURED = ("loss", "learned", "matrix", "parameters")
HALF = 0.5  # the flow's own learning rate: dW/dt = -1/2 dL/dW
Tasks = InContextRegression | Sequence[InContextRegression]
MOST_STEPS = 10**6  # of the solver: plateaus are long beside the fastest change


def proportional(weights: ArrayLike, examples: int = 31) -> InContextRegression:
    """Return the task whose spectrum is proportional to these weights, of trace 1."""
    weights = np.asarray(weights, dtype=np.float64)
    return InContextRegression(tuple((weights / weights.sum()).tolist()), examples)


def geometric(first: float, last: float, records: int) -> list[float]:
    """Return 0 and times in even ratios."""
    return [0.0, *np.geomspace(first, last, records).tolist()]


def flow(tasks: Tasks, model: LinearAttention, at: Sequence[float], *, seeds: int) -> Simulation:
    """Return the flow of the expected loss, in the paper's time; of several tasks side by side."""
    return Simulation(
        PopulationRegression(_each(tasks), model),
        motion=Flow(at[-1], most_steps=MOST_STEPS),
        learning_rate=HALF,
        seeds=seeds,
        record=Record(MEASURED, at=at),
        dtype="float64",
    )


def descent(
    tasks: Tasks,
    *,
    std: float,
    rate: float,
    steps: int,
    every: int,
    seeds: int,
    heads: int = 8,
    partner: bool = False,
) -> Simulation:
    """Return gradient descent of merged attention; std and rate are those of the released code.

    That code leaves out 1/N. With `partner` each run has its MLP partner beside it, whose label
    blocks are held at 0, along the dim `blocks`.
    """
    sets = _each(tasks)
    time, weight = theory.released_clock(
        1, learning_rate=rate, examples=sets[0].examples, factors=2
    )
    own = float(time) * HALF
    free = xr.DataArray([own, 0.0], {"blocks": [True, False]}) if partner else own
    learner = SampleRegression(sets, LinearAttention(heads, std=std * weight))
    return Simulation(
        learner,
        motion=Steps(steps),
        learning_rate={"value": own, "key_query": own, **dict.fromkeys(LABEL_BLOCKS, free)},
        seeds=seeds,
        record=Record((*MEASURED, "leak", *(f"{of}_loss" for of in learner.tests)), every=every),
        dtype="float64",
    )


def _each(tasks: Tasks) -> tuple[InContextRegression, ...]:
    return (tasks,) if isinstance(tasks, InContextRegression) else tuple(tasks)


def starts_of(result: xr.Dataset) -> Any:
    """Return the weights at the start, with seeds first: `theory.Merged` or `theory.Separate`."""
    groups = [name for name in GROUPS if f"parameters.{name}" in result]
    return factors({name: weights_of(result, name)[:, 0] for name in groups})


def weights_of(result: xr.Dataset, group: str) -> NDArray[np.float64]:
    """Return a group of weights, (seed, time, ...)."""
    of = result[f"parameters.{group}"]
    return np.asarray(of.transpose("seed", clock_of(of), ...).values)


def side_by_side(result: xr.Dataset) -> xr.Dataset:
    """Return a result along `setting`, a dim that a task alone does not have."""
    return result if "setting" in result.dims else result.expand_dims("setting")


def crossed(values: xr.DataArray, level: float = 0.5) -> xr.DataArray:
    """Return the first time at which values are above a level, infinite where they never are."""
    clock = clock_of(values)
    ordered = values.transpose(clock, ...)
    return ordered[0].drop_vars(clock).copy(data=first_crossing(ordered[clock], ordered, level))


def gone(result: xr.Dataset) -> xr.DataArray:
    """Return the share of the loss that is lost in the end, over time."""
    loss, clock = result["loss"], clock_of(result)
    first, last = (loss.isel({clock: at}, drop=True) for at in (0, -1))
    return (first - loss) / (first - last)
