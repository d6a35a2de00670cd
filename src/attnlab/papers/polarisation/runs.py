"""Training runs that claims and figures share; settings of released code where we know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.measures.turning import extremes
from attnlab.models import Extended
from attnlab.simulation import Flow, Population, Record, Simulation, Steps
from attnlab.tasks import Task
from attnlab.theory.facts import facts_of

from .classes import polarisation_pair
from .model import FactoredAttention, TiedAttention, ValueAttention
from .task import Direction, Distribution, Regression, StickyChain

SEEDS = 10
PUBLISHED_TIME = 1e5  # 10^6 steps of 0.1
STIFF = 1e3  # the time from which on the chain is
MOVED = 0.02  # smaller turns of attention do not count


def flow(
    task: Task,
    model: Any,
    time: float,
    *,
    what: Sequence[str] = ("weights", "loss"),
    seeds: int = SEEDS,
    records: int = 60,
    rtol: float = 1e-9,
    solver: Literal["explicit", "implicit"] = "explicit",
) -> Simulation:
    """Return a gradient flow at learning rate 1, recorded at 0 and at times in even ratios.

    Where a loss goes on falling for ever, all that moves does so in ln t: an explicit solver takes
    a few hundred steps.
    """
    return Simulation(
        task,
        model,
        motion=Flow(time, solver, rtol=rtol, atol=1e-2 * rtol),
        learning_rate=1.0,
        loss="cross_entropy" if isinstance(task, StickyChain) else "task",
        seeds=seeds,
        record=Record(what, at=(0.0, *np.geomspace(min(0.1, time / 100), time, records))),
        dtype="float64",
    )


def descent(
    task: Task, model: Any, steps: int, rate: float, *, record: Record, seeds: int = SEEDS
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
    return flow(Direction(), ValueAttention(), time, what=what, seeds=seeds, records=records)


def one_way(task: Task, seeds: int = 5) -> Simulation:
    """Return a short flow from values of 0, which a loss with one solution pulls in one way."""
    model = ValueAttention(10, value_scale=0.0, logit_scale=0.1)
    return flow(task, model, 100.0, what=("weights", "parameters"), seeds=seeds)


def regression(condition: float, seeds: int = 2 * SEEDS, dim: int = 20) -> Simulation:
    """Return the published regression: 3 10^5 steps of 0.001 are the time 300."""
    model = ValueAttention(20, value_scale=1e-5, logit_scale=1e-3)
    what = ("weights", "value_norms", "parameters", "loss")
    return flow(Regression(dim, condition), model, 300.0, what=what, seeds=seeds)


def distribution(sharpness: float | None, seeds: int = SEEDS) -> Simulation:
    """Return cross entropy; the scale of its values is not known to us.

    It ends at the published time, 10^6, with a certain target; others have nearly stopped at 10^4,
    and for ever shorter steps of the solver nothing moves.
    """
    what, task = ("weights", "value_norms", "loss"), Distribution(sharpness=sharpness)
    time = 1e6 if sharpness is None else 1e4
    return flow(task, ValueAttention(10), time, what=what, seeds=seeds, records=20, rtol=1e-7)


def weighting(name: str, seeds: int = SEEDS) -> Simulation:
    """Return the comparison of weightings by the logistic loss, for a fifth of its steps."""
    model = ValueAttention(10, name, logit_mean=1.0, logit_scale=0.1)
    record = Record(("weights", "value_norms", "loss"), at=[0, 10_000, 20_000])
    return descent(Direction(10), model, 20_000, 0.5, record=record, seeds=seeds)


def tied(dim: int, seeds: int = SEEDS) -> Simulation:
    """Return the tied model, with a loss that we assume to be the logistic one."""
    record = Record(("weights", "value_norms", "loss"), geometric=60)
    return descent(Direction(dim), TiedAttention(), 10_000, 0.05, record=record, seeds=seeds)


def classes(normalization: str, eta_y: float | Sequence[float], time: float = 1e10) -> Simulation:
    """Return the flow of two sequence classes, at eta_z = 1."""
    return Simulation(
        polarisation_pair(),
        Extended(normalization=normalization),  # type: ignore[arg-type]
        motion=Flow(time, rtol=1e-9, atol=1e-11),
        eta_y=eta_y,
        eta_z=1.0,
        record=Record(("attention", "logits"), at=(0.0, *np.geomspace(1.0, time, 81))),
        dtype="float64",
    )


def chain(
    frequencies: Sequence[float] = (0.75, 0.19, 0.05, 0.01),
    time: float = 600.0,
    seeds: int = 5,
    scale: float = 0.01,
) -> Simulation:
    """Return the sticky chain from a start of this scale; its lambda is not known to us."""
    task, what = StickyChain(tuple(frequencies)), ("attention", "loss", "bayes_kl", "parameters")
    model = FactoredAttention(scale=scale)
    return flow(task, model, time, what=what, seeds=seeds, records=300, rtol=1e-6)


def chain_end(time: float = 1e4, seeds: int = SEEDS) -> Simulation:
    """Return the chain to its end, where it is stiff, with an embedding of 4."""
    what, model = ("attention", "loss", "bayes_kl"), FactoredAttention(4)
    solver = "implicit" if time > STIFF else "explicit"
    settings: Any = {"what": what, "seeds": seeds, "records": 200, "rtol": 1e-6, "solver": solver}
    return flow(StickyChain(), model, time, **settings)


def solutions(run: Simulation) -> NDArray[np.float64]:
    """Return X^-1 target of each seed, which training has drawn and its result does not record."""
    return np.array([np.linalg.solve(*facts.data) for _, facts in facts_of(run)])


def focus(result: xr.Dataset) -> xr.Dataset:
    """Return what attention to the most frequent token does, by seed and query of the chain: its
    peak, its end and the number of its turns; the loss at a third of the time and at the end, and
    how far it is above that of Bayes.
    """
    paths = result["attention"].isel(token=0).rename(sequence="query")
    turns = xr.apply_ufunc(
        turn_count, paths, input_core_dims=[["time"]], vectorize=True, output_dtypes=[int]
    )
    loss, time = result["loss"], float(result["time"][-1])
    return xr.Dataset(
        {
            "peak": paths.max("time"),
            "end": paths.isel(time=-1, drop=True),
            "turns": turns,
            "loss_before": loss.sel(time=time / 3, method="nearest", drop=True),
            "loss": loss.isel(time=-1, drop=True),
            "above_bayes": result["bayes_kl"].isel(time=-1, drop=True),
        }
    )


def turn_count(path: NDArray[np.float64]) -> int:
    """Count the changes of direction of a series by `MOVED` or more.

    >>> turn_count(np.array([0.0, 1.0, 0.99, 2.0, 0.0]))
    1
    """
    *turns, _ = extremes(path, MOVED)
    return sum(abs(path[at] - path[0]) >= MOVED or at != turns[0] for at in turns)
