"""Training runs that claims and figures share; settings of released code where we know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.experiments import mean
from attnlab.models import Extended
from attnlab.simulation import Flow, Population, Record, Simulation, Steps
from attnlab.tasks import Task

from .classes import polarisation_pair
from .model import FactoredAttention, TiedAttention, ValueAttention
from .task import Direction, Distribution, Regression, StickyChain

SEEDS = 10
PUBLISHED_TIME = 1e5  # 10^6 steps of 0.1
EVEN_RATIOS = Record(("weights", "loss"), geometric=60)
STIFF_FROM = 1e3  # the loss has fallen by this time, and what is left moves in its logarithm


def flow(
    task: Task,
    model: Any,
    time: float,
    *,
    what: Sequence[str] = ("weights", "loss"),
    seeds: int = SEEDS,
    records: int = 60,
    rtol: float = 1e-9,
) -> Simulation:
    """Return a gradient flow at learning rate 1, recorded at 0 and at times in even ratios."""
    return Simulation(
        task,
        model,
        motion=_flow(time, rtol),
        learning_rate=1.0,
        loss="cross_entropy" if isinstance(task, StickyChain) else "task",
        seeds=seeds,
        record=Record(what, at=(0.0, *np.geomspace(min(0.1, time / 100), time, records))),
        dtype="float64",
    )


def _flow(time: float, rtol: float) -> Flow:
    return Flow(time, "implicit" if time > STIFF_FROM else "explicit", rtol=rtol, atol=1e-2 * rtol)


def descent(
    task: Task,
    model: Any,
    steps: int,
    rate: float,
    *,
    record: Record = EVEN_RATIOS,
    seeds: int = SEEDS,
) -> Simulation:
    """Return gradient descent with the whole loss, as released code trains."""
    return Simulation(
        task,
        model,
        motion=Steps(steps),
        gradient=Population(),
        learning_rate=rate,
        loss="task",
        seeds=seeds,
        record=record,
        dtype="float64",
    )


def toy(seeds: int = 2 * SEEDS, time: float = PUBLISHED_TIME, records: int = 120) -> Simulation:
    """Return the published toy of the logistic loss, as a flow."""
    what = ("weights", "scores", "parameters", "value_norms")
    return flow(
        Direction(), ValueAttention(), time, what=what, seeds=seeds, records=records, rtol=1e-7
    )


def one_way(task: Task, seeds: int = 5) -> Simulation:
    """Return a short flow whose gradient keeps its direction: values start at 0, or logistic."""
    scale = 0.1 if isinstance(task, Direction) else 0.0
    model = ValueAttention(10, value_scale=scale, logit_scale=0.1)
    return flow(task, model, 100.0, what=("weights", "parameters"), seeds=seeds)


def regression(condition: float, seeds: int = SEEDS, dim: int = 20) -> Simulation:
    """Return the published regression: 3 10^5 steps of 0.001 are the time 300."""
    model = ValueAttention(20, value_scale=1e-5, logit_scale=1e-3)
    what = ("weights", "parameters", "loss")
    return flow(Regression(dim, condition), model, 300.0, what=what, seeds=seeds)


def distribution(sharpness: float | None, seeds: int = SEEDS) -> Simulation:
    """Return cross entropy to the published time; the scale of its values is not known to us."""
    what = ("weights", "value_norms", "loss")
    task, model = Distribution(sharpness=sharpness), ValueAttention(10)
    return flow(task, model, 1e6, what=what, seeds=seeds, records=20, rtol=1e-7)


def weighting(name: str, seeds: int = SEEDS) -> Simulation:
    """Return the comparison of weightings by the logistic loss, for a fifth of its steps."""
    model = ValueAttention(10, name, logit_mean=1.0, logit_scale=0.1)
    return descent(Direction(10), model, 20_000, 0.5, seeds=seeds)


def tied(dim: int, seeds: int = SEEDS) -> Simulation:
    """Return the tied model, with a loss that we assume to be the logistic one."""
    record = Record(("weights", "value_norms", "loss"), geometric=60)
    return descent(Direction(dim), TiedAttention(), 10_000, 0.05, record=record, seeds=seeds)


def classes(normalization: str, eta_y: float, time: float = 1e10) -> Simulation:
    """Return the flow of two sequence classes, at eta_z = 1."""
    return Simulation(
        polarisation_pair(),
        Extended(normalization=normalization),  # type: ignore[arg-type]
        motion=_flow(time, 1e-9),
        eta_y=eta_y,
        eta_z=1.0,
        record=Record(("attention", "logits"), at=(0.0, *np.geomspace(1.0, time, 81))),
        dtype="float64",
    )


def chain(
    frequencies: Sequence[float] = (0.75, 0.19, 0.05, 0.01), time: float = 600.0, seeds: int = 5
) -> Simulation:
    """Return the sticky chain; its lambda is not known to us."""
    task, what = StickyChain(tuple(frequencies)), ("attention", "loss")
    model = FactoredAttention()
    return flow(task, model, time, what=what, seeds=seeds, records=300, rtol=1e-6)


def chain_start(scale: float, seeds: int = 5) -> Simulation:
    """Return stage I of the chain, from a start of this scale."""
    what = ("attention", "loss", "parameters")
    model = FactoredAttention(scale=scale)
    return flow(StickyChain(), model, 30.0, what=what, seeds=seeds, records=120, rtol=1e-6)


def chain_end(time: float = 1e4, seeds: int = 2) -> Simulation:
    """Return the chain to its end, with an embedding of 4: an implicit solver has to be small."""
    what, model = ("attention", "loss"), FactoredAttention(4)
    return flow(StickyChain(), model, time, what=what, seeds=seeds, records=200, rtol=1e-6)


def entropy(sigma: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the entropy of attention weights along the last axis."""
    return np.asarray(-(sigma * np.log(sigma)).sum(-1))


def with_range(values: NDArray[np.float64]) -> str:
    """Return the mean of a number for each seed with its error, and its range in brackets."""
    return f"{mean(values)} ({values.min():.2f} to {values.max():.2f})"


def top(result: xr.Dataset) -> NDArray[np.float64]:
    """Return the largest attention weight, (seed, record)."""
    return np.asarray(result["weights"].max("token").values)


def turns(x: ArrayLike, least: float = 0.02) -> int:
    """Count the changes of direction of a series by more than `least`.

    >>> turns([0.0, 1.0, 0.99, 2.0, 0.0])
    1
    """
    series = np.asarray(x, dtype=np.float64)
    count, extreme, direction = 0, series[0], 0.0
    for value in series:
        if direction * (value - extreme) > 0:
            extreme = value
        elif abs(value - extreme) > least:
            count += direction != 0
            direction, extreme = np.sign(value - extreme), value
    return count
