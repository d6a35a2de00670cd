"""Training runs that claims share: any run, and the joint flow at several ratios of learning rates.

Time: the joint flow counts expected-gradient steps, in which every class has its share 1/K; a
theory counts batch-1 steps, and each class gets 1/K of them. In expectation they agree, so that one
unit of either is one unit of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.models.base import Model
from attnlab.simulation import Flow, Record, Simulation, simulate
from attnlab.tasks.classes import SequenceClasses
from attnlab.theory.facts import facts_of
from attnlab.theory.relation import Hypothesis
from attnlab.theory.theory import Theory

# All flows have the same number of records and of learning rates, because a program is compiled for
# each new shape and compiling is most of what an audit costs.
RECORDS = 121
# The ratios eta_Y/eta_Z at which classes are trained, so that a claim can say from which ratio on
# it holds.
TRAINED_RATIOS = (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
RUNS = len(TRAINED_RATIOS)
KEPT = 48  # flows in memory; the whole audit has 37, of some megabytes each
KEPT_RUNS = 512  # results of other runs in memory: all that an audit trains


@lru_cache(maxsize=KEPT_RUNS)
def trained_run(run: Simulation) -> xr.Dataset:
    """Train a run, once for all claims that ask for it: equal runs have one digest."""
    return simulate(run, progress=False)


def recorded_at(steps: float, exactly: Sequence[float] = ()) -> list[float]:
    """Return the times at which a flow is recorded: 0, and in even ratios from 1e-2 of a step on.

    The record nearest to each time in `exactly` is moved onto it, so that what is quoted there is
    read there and the number of records stays the same.
    """
    times = np.geomspace(1e-2, steps, RECORDS - 1)
    for time in exactly:
        if times[0] < time < times[-1]:
            times[1 + np.abs(np.log(times[1:-1] / time)).argmin()] = time
    return [0.0, *times.tolist()]


@lru_cache(maxsize=KEPT)
def trained(
    classes: SequenceClasses,
    rates: tuple[tuple[float, float], ...],
    steps: float,
    start: tuple[Any, ...] | None = None,
    model: Model | None = None,
    exactly: tuple[float, ...] = (),
) -> xr.Dataset:
    """Train the joint flow of Y and Z (T to infinity, float64) at up to `RUNS` pairs of rates.

    Dims: run (with coords eta_y and eta_z), time (`recorded_at`), sequence_class, query, token.
    `start` gives z(0), one logit for each token of the vocabulary (or for each head, query and
    token), `model` another model than `Pairwise`, `exactly` times that must be recorded.
    """
    if len(rates) > RUNS:
        raise InputError(f"rates: expected at most {RUNS} pairs, got {len(rates)}")
    padded = rates + rates[-1:] * (RUNS - len(rates))
    eta_y, eta_z = (xr.DataArray(column, dims="run") for column in np.array(padded).T)
    result = simulate(
        classes,
        model=model,
        motion=Flow(steps),
        eta_y=eta_y,
        eta_z=eta_z,
        init="zero" if start is None else np.asarray(start),
        record=Record(("attention", "logits", "loss"), at=recorded_at(steps, exactly)),
        dtype="float64",
        progress=False,
    )
    run = result.isel(seed=0, drop=True).assign_coords(eta_y=eta_y, eta_z=eta_z)
    return run.isel(run=slice(len(rates)))


def ratios(*values: float, eta_y: float) -> tuple[tuple[float, float], ...]:
    """Return learning rates with eta_Y / eta_Z equal to each of `values`."""
    return tuple((eta_y, eta_y / value) for value in values)


def holds_from(holds: Sequence[bool]) -> float:
    """Return the trained ratio from which on a claim holds; infinity where at none."""
    wrong = [ratio for ratio, right in zip(TRAINED_RATIOS, holds, strict=True) if not right]
    later = [ratio for ratio in TRAINED_RATIOS if not wrong or ratio > wrong[-1]]
    return later[0] if later else float("inf")


def assumed(
    theory: Theory, *runs: Callable[[], Simulation]
) -> Callable[[dict[str, xr.Dataset]], tuple[Hypothesis, ...]]:
    """Return a function for the `hypotheses` of a claim: what a theory assumes of runs.

    Where runs and seeds differ, the first that does not fulfil an assumption stands for all.

    Parameters
    ----------
    theory : Theory
        The theory whose assumptions are the claim's hypotheses.
    *runs : callable
        Functions that return a run; by default all runs of the claim.
    """

    def hypotheses(found: dict[str, xr.Dataset]) -> tuple[Hypothesis, ...]:
        asked = [make() for make in runs] or [Simulation.of(of) for of in found.values()]
        each = [theory.assumptions(facts) for run in asked for _, facts in facts_of(run)]
        return tuple(min(same, key=lambda of: of.holds) for same in zip(*each, strict=True))

    return hypotheses
