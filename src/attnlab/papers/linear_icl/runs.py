"""Runs of the paper: the flow of the expected loss, and gradient descent on a training set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.simulation import Flow, Record, Simulation, Steps

from . import theory
from .learner import PopulationRegression, SampleRegression
from .measures import first_crossing
from .model import LABEL_BLOCKS, LinearAttention, factors
from .task import InContextRegression

GROUPS = ("value", "key_query", "key", "query")
MEASURED = ("loss", "learned", "matrix", "parameters")
HALF = 0.5  # the flow's own learning rate: dW/dt = -1/2 dL/dW
Results = dict[str, xr.Dataset]
MOST_STEPS = 10**6  # of the solver: plateaus are long beside the fastest change


def geometric(first: float, last: float, records: int) -> list[float]:
    """Return 0 and times in even ratios."""
    return [0.0, *np.geomspace(first, last, records).tolist()]


def flow(
    task: InContextRegression,
    model: LinearAttention,
    at: Sequence[float],
    *,
    seeds: int,
    beside: tuple[InContextRegression, ...] = (),
    rtol: float | None = None,
    init: object = None,
) -> Simulation:
    """Return the flow of the expected loss, in the paper's time; `beside`: further tasks."""
    return Simulation(
        PopulationRegression(task, model, beside),
        motion=Flow(at[-1], rtol=rtol, atol=None if rtol is None else rtol, most_steps=MOST_STEPS),
        learning_rate=HALF,
        init=init,
        seeds=seeds,
        record=Record(MEASURED, at=at),
        dtype="float64",
    )


def descent(
    task: InContextRegression,
    *,
    std: float,
    rate: float,
    steps: int,
    every: int,
    seeds: int,
    heads: int = 8,
    beside: tuple[InContextRegression, ...] = (),
    partner: bool = False,
) -> Simulation:
    """Return gradient descent of merged attention; std and rate are those of the released code.

    That code leaves out 1/N. With `partner` each run has its MLP partner beside it, whose label
    blocks are held at 0, along the dim `blocks`.
    """
    time, weight = theory.released_clock(1, learning_rate=rate, examples=task.examples, factors=2)
    own = float(time) * HALF
    free = xr.DataArray([own, 0.0], {"blocks": [True, False]}) if partner else own
    return Simulation(
        SampleRegression(task, LinearAttention(heads, std=std * weight), beside),
        motion=Steps(steps),
        learning_rate={"value": own, "key_query": own, **dict.fromkeys(LABEL_BLOCKS, free)},
        seeds=seeds,
        record=Record((*MEASURED, "leak", "in_context_loss", "in_weight_loss"), every=every),
        dtype="float64",
    )


def starts_of(result: xr.Dataset) -> Any:
    """Return the weights at the start, with seeds first: `theory.Merged` or `theory.Separate`."""
    groups = [name for name in GROUPS if f"parameters.{name}" in result]
    return factors({name: weights_of(result, name)[:, 0] for name in groups})


def weights_of(result: xr.Dataset, group: str) -> NDArray[np.float64]:
    """Return a group of weights, (seed, time, ...)."""
    of = result[f"parameters.{group}"]
    return np.asarray(of.transpose("seed", of_clock(of), ...).values)


def crossed(values: xr.DataArray, level: float = 0.5) -> xr.DataArray:
    """Return the first time at which values are above a level, infinite where they never are."""
    clock = of_clock(values)
    ordered = values.transpose(clock, ...)
    return ordered[0].drop_vars(clock).copy(data=first_crossing(ordered[clock], ordered, level))


def gone(result: xr.Dataset) -> xr.DataArray:
    """Return the share of the loss that is lost in the end, over time."""
    loss, clock = result["loss"], of_clock(result)
    first, last = (loss.isel({clock: at}, drop=True) for at in (0, -1))
    return (first - loss) / (first - last)


def of_clock(result: xr.Dataset | xr.DataArray) -> str:
    """Return the dim along which a result is recorded."""
    return "time" if "time" in result.dims else "step"
