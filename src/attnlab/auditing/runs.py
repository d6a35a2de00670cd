"""Training runs that claims share: the joint flow on a ladder of learning-rate ratios.

Time: the joint flow counts expected-gradient steps, in which every class has its share 1/K; a
theory counts batch-1 steps, of which each class gets 1/K. In expectation they agree, so that one
unit of either is one unit of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from attnlab.data import SequenceClasses
from attnlab.dynamics import Flow, Model, Save, simulate
from attnlab.files.errors import InputError

# Every training run records as often and sweeps as many rates, because a program is compiled for
# each new shape and compiling is most of what an audit costs.
RECORDS = 121
# The ratios eta_Y/eta_Z at which classes are trained, so that a claim can say from which on it
# holds.
TRAINED_RATIOS = (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
RUNS = len(TRAINED_RATIOS)
KEPT = 48  # trainings in memory; the whole audit has 37, of some megabytes each


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


def joint_flow(
    classes: SequenceClasses, rates: Sequence[tuple[float, float]], steps: float,
    start: ArrayLike | None = None, model: Model | None = None, exactly: Sequence[float] = (),
) -> xr.Dataset:  # fmt: skip
    """The joint flow of Y and Z (T to infinity, float64) at pairs (eta_Y, eta_Z).

    Dims: run (with coords eta_y and eta_z), time (`recorded_at`), sequence_class, query, token.
    `start` gives z(0), one logit for each token of the vocabulary (or for each head, query and
    token), `model` another model than `Pairwise`, `exactly` times that must be recorded.
    """
    eta_y, eta_z = (xr.DataArray(column, dims="run") for column in np.array(rates).T)
    result = simulate(
        classes, Flow(), eta_y=eta_y, eta_z=eta_z, steps=steps,
        init="zero" if start is None else np.asarray(start),
        save=Save(("attention", "logits", "loss"), at=recorded_at(steps, exactly)), dtype="float64",
        model=model, progress=False,
    )  # fmt: skip
    return result.isel(seed=0, drop=True).assign_coords(eta_y=eta_y, eta_z=eta_z)


@lru_cache(maxsize=KEPT)
def trained(
    classes: SequenceClasses, rates: tuple[tuple[float, float], ...], steps: float,
    start: tuple[Any, ...] | None = None, model: Model | None = None,
    exactly: tuple[float, ...] = (),
) -> xr.Dataset:  # fmt: skip
    """`joint_flow` for up to `RUNS` pairs of rates, kept, and always run as `RUNS` of them."""
    if len(rates) > RUNS:
        raise InputError(f"rates: at most {RUNS} pairs to a call, got {len(rates)}")
    padded = rates + rates[-1:] * (RUNS - len(rates))
    run = joint_flow(classes, padded, steps, start, model, exactly)
    return run.isel(run=slice(len(rates)))


def ratios(*values: float, eta_y: float) -> tuple[tuple[float, float], ...]:
    """Rates with eta_Y / eta_Z equal to each of `values`."""
    return tuple((eta_y, eta_y / value) for value in values)


def holds_from(holds: Sequence[bool]) -> float:
    """The ratio of the ladder from which on a claim holds; infinity where it does at none."""
    wrong = [ratio for ratio, right in zip(TRAINED_RATIOS, holds, strict=True) if not right]
    later = [ratio for ratio in TRAINED_RATIOS if not wrong or ratio > wrong[-1]]
    return later[0] if later else float("inf")
