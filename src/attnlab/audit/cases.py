"""The cases on which claims are tested, and training runs on them.

Time: the joint flow counts expected-gradient steps, in which every class has its share 1/K; the
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

from attnlab.data import SequenceClasses, single_common, symmetric, syn_small
from attnlab.dynamics import Flow, Model, Save, simulate
from attnlab.files.errors import InputError
from attnlab.prediction.case import Case
from attnlab.prediction.hypotheses import FAST

# Every training run records as often and sweeps as many rates, because a program is compiled for
# each new shape and compiling is most of what an audit costs.
RECORDS = 121
# The ratios eta_Y/eta_Z at which classes are trained, so that a claim can say from which on it
# holds.
TRAINED_RATIOS = (1.0, 3.0, 10.0, FAST, 100.0, 1000.0)
RUNS = len(TRAINED_RATIOS)
KEPT = 48  # trainings in memory; the whole audit has 37, of some megabytes each


def two_by_hand(rows: list[list[float]], vocab_size: int) -> SequenceClasses:
    """Two classes of one query, by their probabilities of the first few tokens."""
    tokens = len(rows[0])
    return SequenceClasses(
        [{token: p for token, p in enumerate(row) if p > 0} for row in rows],
        query=[tokens, tokens],
        next_token=[tokens + 1, tokens + 2],
        vocab_size=vocab_size,
        origin=f"P = {rows}, M = {vocab_size}",
    )


# eta_Y < 1, as Theorem 1 has it, and eta_Y/eta_Z = FAST.
RATES = (0.9, 0.03)
# Assumption 2 holds, with one common token and three distinct ones for each of two classes.
WEAK = Case(
    single_common(num_classes=2, distinct=3, common_prob=0.3, vocab_size=1000), *RATES, 1e10
)
# One distinct token for each of two unequal classes.
UNEVEN = Case(two_by_hand([[0.6, 0.4, 0.0], [0.3, 0.0, 0.7]], 1000), *RATES, 1e10)
# Another such pair, in which attention to the rarer distinct token falls in the end, Assumption 2
# being met until then: about the earliest that a search over such pairs has found.
LATE = Case(two_by_hand([[0.37, 0.63, 0.0], [0.77, 0.0, 0.23]], 1000), *RATES, 1e20)
# Three common tokens: by the criterion for two classes token 1 first gains; later it loses.
TURNING = Case(
    two_by_hand([[0.33, 0.28, 0.07, 0.32, 0.0], [0.19, 0.04, 0.29, 0.0, 0.48]], 1000), *RATES, 1e7
)
# Overlap below 1/M.
FAINT = Case(
    two_by_hand([[0.015, 0.4925, 0.4925, 0, 0], [0.015, 0, 0, 0.4925, 0.4925]], 1000), *RATES, 1e6
)
# The hypotheses of Corollary 2 and Assumption 2.
SYMMETRIC = Case(
    symmetric(num_classes=2, common=2, distinct=1, common_mass=0.4, vocab_size=1000), *RATES, 1e7
)
# K and M of Fig. 3, in the case that Section 6 speaks of.
FIG3 = Case(
    single_common(num_classes=10, distinct=10, common_prob=0.1, vocab_size=1000), *RATES, 1e6
)
# 30 contextual tokens as in print, and with us a query and a next token for each class: M = 34.
SYN_SMALL = Case(syn_small(), *RATES, 1e6)


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
    classes: SequenceClasses,
    rates: Sequence[tuple[float, float]],
    steps: float,
    start: ArrayLike | None = None,
    model: Model | None = None,
    exactly: Sequence[float] = (),
) -> xr.Dataset:
    """The joint flow of Y and Z (Lemma 1, T to infinity, float64) at pairs (eta_Y, eta_Z).

    Dims: run (with coords eta_y and eta_z), time (`recorded_at`), sequence_class, query, token.
    `start` gives z(0), one logit for each token of the vocabulary (or for each head, query and
    token), `model` another model than the paper's, `exactly` times that must be recorded.
    """
    eta_y, eta_z = (xr.DataArray(column, dims="run") for column in np.array(rates).T)
    result = simulate(
        classes,
        Flow(),
        eta_y=eta_y,
        eta_z=eta_z,
        steps=steps,
        init="zero" if start is None else np.asarray(start),
        save=Save(("attention", "logits", "loss"), at=recorded_at(steps, exactly)),
        dtype="float64",
        model=model,
        progress=False,
    )
    return result.isel(seed=0, drop=True).assign_coords(eta_y=eta_y, eta_z=eta_z)


@lru_cache(maxsize=KEPT)
def trained(
    classes: SequenceClasses,
    rates: tuple[tuple[float, float], ...],
    steps: float,
    start: tuple[Any, ...] | None = None,
    model: Model | None = None,
    exactly: tuple[float, ...] = (),
) -> xr.Dataset:
    """`joint_flow` for up to `RUNS` pairs of rates, kept, and always run as `RUNS` of them."""
    if len(rates) > RUNS:
        raise InputError(f"rates: at most {RUNS} pairs to a call, got {len(rates)}")
    padded = rates + rates[-1:] * (RUNS - len(rates))
    run = joint_flow(classes, padded, steps, start, model, exactly)
    return run.isel(run=slice(len(rates)))


def ratios(*values: float, eta_y: float) -> tuple[tuple[float, float], ...]:
    """Rates with eta_Y / eta_Z equal to each of `values`."""
    return tuple((eta_y, eta_y / value) for value in values)


def climbed(case: Case) -> xr.Dataset:
    """The joint flow at every ratio of the ladder, which labels dim `ratio`.

    t_0 and 10 t_0 are among the records.
    """
    rates = ratios(*TRAINED_RATIOS, eta_y=case.eta_y)
    run = trained(case.classes, rates, case.steps, exactly=(case.t0, 10 * case.t0))
    return run.swap_dims(run="ratio").assign_coords(ratio=list(TRAINED_RATIOS))


def holds_from(holds: Sequence[bool]) -> float:
    """The ratio of the ladder from which on a claim holds; infinity where it does at none."""
    wrong = [ratio for ratio, right in zip(TRAINED_RATIOS, holds, strict=True) if not right]
    later = [ratio for ratio in TRAINED_RATIOS if not wrong or ratio > wrong[-1]]
    return later[0] if later else float("inf")
