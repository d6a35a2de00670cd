"""Cases of the claims of "Scan and Snap", and what is read off Eq. 10 and off training on them."""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy
import xarray as xr

from attnlab import formulas, measures
from attnlab.auditing.runs import RUNS, TRAINED_RATIOS, ratios, trained
from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.simulation import simulate
from attnlab.tasks.classes import SequenceClasses, single_common, symmetric
from attnlab.theory import Case

from . import theory
from .classes import syn_small


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
# The same at the length of the experiments, and with slower learning rates in the same ratio.
SHORT = replace(WEAK, length=128.0)
SLOWER = WEAK.at(eta_y=0.11, eta_z=0.11 / 30.0)
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


def clock(case: Case) -> dict[str, Any]:
    """Return K, M and eta_Y, on which the decoder's clock depends (`theory.gamma` and others)."""
    return {"K": case.K, "M": case.M, "eta_y": case.eta_y}


def rates_of(case: Case) -> dict[str, Any]:
    """Return what the reduced time depends on: the decoder's clock, and eta_Z."""
    return {**clock(case), "eta_z": case.eta_z}


def transition_time(case: Case) -> float:
    """Return the predicted transition time t_0 (Lemma 9), in steps."""
    return float(theory.transition_times(**clock(case)).t0)


def at_ratios(case: Case) -> xr.Dataset:
    """Train the joint flow at every ratio of `TRAINED_RATIOS`, which label dim `ratio`.

    t_0 and 10 t_0 are among the records.
    """
    rates = ratios(*TRAINED_RATIOS, eta_y=case.eta_y)
    run = trained(
        case.classes, rates, case.steps, exactly=(transition_time(case), 10 * transition_time(case))
    )
    return run.swap_dims(run="ratio").assign_coords(ratio=list(TRAINED_RATIOS))


def train_steps(case: Case, steps: int, **settings: Any) -> xr.Dataset:
    """Train plain steps at the case's learning rates, recorded at the start and at the end.

    settings: those of `simulate`, in place of these or in addition.
    """
    plain: dict[str, Any] = {
        "eta_y": case.eta_y,
        "eta_z": case.eta_z,
        "momentum": 0.0,
        "what": "logits",
        "at": [0, steps],
        "dtype": "float64",
    }
    return simulate(case.classes, steps=steps, progress=False, **{**plain, **settings})


def logits(case: Case, result: xr.Dataset) -> FloatArray:
    """Recorded z as the theory has it: (..., query, contextual token)."""
    values = result["attention_logits"].isel(token=case.classes.in_play).values
    return np.asarray(values, dtype=np.float64)


def training_path(case: Case) -> tuple[FloatArray, FloatArray]:
    """Times and logits (time, Q, L) of the joint flow at the case's rates."""
    ratio = case.eta_y / case.eta_z
    nearest = min(TRAINED_RATIOS, key=lambda value: abs(value / ratio - 1.0))
    if np.isclose(nearest, ratio):
        result = at_ratios(case).sel(ratio=nearest)
    else:
        rates = ((case.eta_y, case.eta_z),)
        exactly = (transition_time(case), 10 * transition_time(case))
        result = trained(case.classes, rates, case.steps, exactly=exactly).isel(run=0)
    return result["time"].values, logits(case, result)


def both_paths(case: Case, times: FloatArray | None = None) -> dict[str, FloatArray]:
    """Logits (time, Q, L) by Eq. 10, at the times of the records or others, and in training."""
    recorded, z = training_path(case)
    return {"Eq. 10": eq_10(case, recorded if times is None else times).logits, "training": z}


def eq_10(case: Case, times: FloatArray, z0: FloatArray | None = None) -> theory.AttentionFlow:
    """Eq. 10 solved on a case at given steps, with the class weight P(n)."""
    return theory.attention_flow(case, times, z0=z0, weight=case.prior)


def as_dataset(case: Case, times: FloatArray, z: FloatArray) -> xr.Dataset:
    """Return a predicted path of logits in the schema of a simulation, so that measures read it."""
    tokens = case.classes.in_play
    return xr.Dataset(
        {
            "attention": (("time", "sequence_class", "token"), formulas.attention_weights(case, z)),
            "attention_logits": (("time", "query", "token"), z),
            "probability": (("sequence_class", "token"), case.P),
        },
        {
            "time": times,
            "token": tokens,
            "sequence_class": np.arange(case.K),
            "query": case.classes.queries,
            "query_token": ("sequence_class", case.classes.query),
        },
    )


def most_and_least_frequent(case: Case) -> tuple[int, int, int]:
    """Return a class, and its most and least frequent distinct tokens (as columns of P).

    The first class with the most distinct tokens; two of them must differ in probability.
    """
    distinct = formulas.token_roles(case).distinct
    n = int(distinct.sum(axis=1).argmax())
    tokens = np.flatnonzero(distinct[n])
    if tokens.size < 2 or np.ptp(case.P[n, tokens]) == 0.0:
        raise InputError(
            "classes: this claim compares distinct tokens of one class; give a class with two of "
            "unequal probability"
        )
    of_class = case.P[n, tokens]
    return n, int(tokens[of_class.argmax()]), int(tokens[of_class.argmin()])


def gain_error(case: Case, z: FloatArray) -> FloatArray:
    """Return the relative error of r/r_0 - 1 by Eq. 11.

    r is that of the most and the least frequent distinct token; z is (..., Q, L). The error of r
    itself is smaller, since r/r_0 - 1 is a small part of it at first.
    """
    n, high, low = most_and_least_frequent(case)
    gain = theory.relative_gain(case, z, reference=low)[..., n, high]
    start = theory.relative_gain(case, reference=low)[n, high]
    grown = theory.growth_factor(z[..., case.psi[n], high]) - 1.0
    return np.asarray(np.abs((gain / start - 1.0) / grown - 1.0))


def by_frequency(case: Case, n: int) -> IntArray:
    """Return the distinct tokens of class n (as columns of P), the rarest first."""
    tokens = np.flatnonzero(formulas.token_roles(case).distinct[n])
    return tokens[np.argsort(case.P[n, tokens])]


def mean_entropy(result: xr.Dataset) -> xr.DataArray:
    """Entropy over distinct tokens, mean over classes (Fig. 6's y axis)."""
    return measures.distinct_entropy(result).mean("sequence_class")


def slopes(times: FloatArray, z: FloatArray) -> FloatArray:
    """Change of z between records, along its first axis, per unit of time."""
    steps = np.diff(times).reshape(-1, *[1] * (z.ndim - 1))
    return np.asarray(np.diff(z, axis=0) / steps)


def first_turn(times: FloatArray, path: FloatArray) -> float:
    """Return the time of the first maximum of a path from t = 0; infinity if it never falls.

    Where the derivative of a cubic spline through the records, in ln t, changes its sign: records
    in even ratios of 1.5 or less then locate a turn to about 1 %, not to the nearest record.
    """
    falls = np.flatnonzero(np.diff(path[1:]) <= 0)
    if not falls.size:
        return float("inf")
    x, i = np.log(times[1:]), int(falls[0])
    velocity = scipy.interpolate.CubicSpline(x, path[1:]).derivative()
    low = x[max(i - 1, 0)]
    if velocity(low) <= 0:
        return float(times[1])  # it falls from the start
    return float(np.exp(scipy.optimize.brentq(velocity, low, x[i + 1])))


# The ratios and the time at which Section 6 (c) is tested: where a larger eta_Y turns from
# sparser to denser attention. TURNS: the times at which entropies are compared, as eta_Z t.
RISING_RATIOS = np.geomspace(1.0, 990.0, 2 * RUNS)
LONG = 1e10
TURNS = (1e1, 1e3, 1e5, 1e7)


def densities(classes: SequenceClasses, *, eta_z: float) -> xr.DataArray:
    """Entropy over distinct tokens in the joint flow, over (ratio, time), at fixed eta_Z."""
    halves = [
        mean_entropy(trained(classes, tuple((float(r * eta_z), eta_z) for r in half), LONG))
        for half in (RISING_RATIOS[:RUNS], RISING_RATIOS[RUNS:])
    ]
    joined = xr.concat(halves, "run").drop_vars(["eta_y", "eta_z"])
    return (
        joined.swap_dims(run="ratio").assign_coords(ratio=RISING_RATIOS).transpose("ratio", "time")
    )


def turning_ratio(entropy: xr.DataArray, time: float) -> float:
    """Return the ratio at which entropy is lowest at `time`: attention is denser from there on.

    The vertex of the parabola through the lowest point and its neighbours, in the logarithm.
    """
    at = entropy.interp(time=time).values
    i = int(np.clip(at.argmin(), 1, at.size - 2))
    x, y = np.log(RISING_RATIOS[i - 1 : i + 2]), at[i - 1 : i + 2]
    a, b, _ = np.polyfit(x - x[1], y, 2)
    return float(np.exp(x[1] - b / (2.0 * a)))
