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
from .model import LABEL_BLOCKS, LinearAttention
from .task import InContextRegression

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
    beside: tuple[tuple[float, ...], ...] = (),
    rtol: float | None = None,
    init: object = None,
) -> Simulation:
    """Return the flow of the expected loss, in the paper's time; `beside`: further spectra."""
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
    rank: int | None = None,
    blocks: bool = True,
) -> Simulation:
    """Return gradient descent on a training set; std and rate are those of the released code.

    That code leaves out 1/N. Without `blocks` the label blocks are held at 0: the MLP partner.
    """
    time, weight = theory.released_clock(
        1, learning_rate=rate, examples=task.examples, factors=2 if rank is None else 3
    )
    model = LinearAttention(heads, rank, std * weight)
    own = float(time) * HALF
    weights = ("value", "key_query") if rank is None else ("value", "key", "query")
    held = dict.fromkeys(weights, own) | dict.fromkeys(LABEL_BLOCKS)
    return Simulation(
        SampleRegression(task, model),
        motion=Steps(steps),
        learning_rate=own if blocks else held,
        seeds=seeds,
        record=Record((*MEASURED, "leak", "in_context_loss", "in_weight_loss"), every=every),
        dtype="float64",
    )


def starts_of(result: xr.Dataset) -> list[Any]:
    """Return the weights at the start of each seed: `theory.Merged` or `theory.Separate`."""
    separate = "parameters.key" in result
    names = ("value", "key", "query") if separate else ("value", "key_query")
    arrays = [weights_of(result, name)[:, 0] for name in names]
    kind = theory.Separate if separate else theory.Merged
    return [kind(*of) for of in zip(*arrays, strict=True)]


def weights_of(result: xr.Dataset, group: str) -> NDArray[np.float64]:
    """Return a group of weights, (seed, time, ...)."""
    of = result[f"parameters.{group}"]
    return np.asarray(of.transpose("seed", of_clock(result), ...).values)


def half_times(result: xr.Dataset) -> xr.DataArray:
    """Return when half of the loss that is lost in the end is gone, for each seed."""
    loss, clock = result["loss"], of_clock(result)
    first, last = (loss.isel({clock: at}) for at in (0, -1))
    gone = ((first - loss) / (first - last)).transpose(clock, "seed")
    return xr.DataArray(first_crossing(result[clock], gone), dims="seed")


def of_clock(result: xr.Dataset) -> str:
    """Return the dim along which a result is recorded."""
    return "time" if "time" in result.dims else "step"
