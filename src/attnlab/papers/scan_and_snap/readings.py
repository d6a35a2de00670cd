"""Readings of a training run in the theory's terms, shared by several claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
import xarray as xr
from numpy.typing import NDArray

from attnlab import formulas, measures
from attnlab.auditing.runs import TRAINED_RATIOS, trained
from attnlab.files.errors import InputError
from attnlab.theory import Case, Check, Relation
from attnlab.theory.comparison import Form

from . import theory
from .cases import climbed, transition_time

FORMS: tuple[Form, Form] = ("printed", "corrected")


def in_training(
    about: str, predicted: Any, measured: Any, relation: Relation | None = None, **how: Any
) -> Check:
    """Check what the joint training of Y and Z shows; the other arguments are those of `Check`."""
    return Check(about, predicted, measured, relation, training=True, **how)


def in_both_forms(
    about: str, predicted: Any, measured: Any, relation: Relation | None = None, **how: Any
) -> list[Check]:
    """Check the printed form and the corrected one; what they do not share is given by form."""
    return [
        Check(about, _of(form, predicted), _of(form, measured), relation, form=form, **how)
        for form in FORMS
    ]


def on_both_paths(about: str, predicted: Any, measured: Mapping[str, Any]) -> list[Check]:
    """Check what is measured along "Eq. 10" and in "training"; predictions may be given by path."""
    return [
        Check(f"{about}, {name}", _of(name, predicted), values, training=name == "training")
        for name, values in measured.items()
    ]


def _of(name: str, values: Any) -> Any:
    return values[name] if isinstance(values, dict) else values


def logits(case: Case, result: xr.Dataset) -> NDArray[np.float64]:
    """Recorded z as the theory has it: (..., query, contextual token)."""
    values = result["attention_logits"].isel(token=case.classes.in_play).values
    return np.asarray(values, dtype=np.float64)


def run_at(case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times and logits (time, Q, L) of the joint flow at the case's rates."""
    ratio = case.eta_y / case.eta_z
    rung = min(TRAINED_RATIOS, key=lambda value: abs(value / ratio - 1.0))
    if np.isclose(rung, ratio):
        result = climbed(case).sel(ratio=rung)
    else:
        rates = ((case.eta_y, case.eta_z),)
        exactly = (transition_time(case), 10 * transition_time(case))
        result = trained(case.classes, rates, case.steps, exactly=exactly).isel(run=0)
    return result["time"].values, logits(case, result)


def falling(about: str, values: Mapping[str, NDArray[np.float64]]) -> list[Check]:
    """Check each record along both paths against the one before."""
    before = {name: path[:-1] for name, path in values.items()}
    return on_both_paths(about, before, {name: path[1:] for name, path in values.items()})


def both_paths(
    case: Case, times: NDArray[np.float64] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Logits (time, Q, L) by Eq. 10, at the times of the records or others, and in training."""
    recorded, z = run_at(case)
    return {"Eq. 10": reduced(case, recorded if times is None else times).logits, "training": z}


def reduced(
    case: Case, times: NDArray[np.float64], z0: NDArray[np.float64] | None = None
) -> theory.AttentionFlow:
    """Eq. 10 solved on a case at given steps, with the class weight P(n)."""
    return theory.attention_flow(case, times, z0=z0, weight=case.prior)


def as_dataset(case: Case, times: NDArray[np.float64], z: NDArray[np.float64]) -> xr.Dataset:
    """A predicted path of logits in the schema of a simulation, so that measures read it too."""
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
    """A class, and the most and least frequent of its distinct tokens (as columns of P).

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


def gain_error(case: Case, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """The relative error of r/r_0 - 1 by Eq. 11, r of the most and least frequent distinct token.

    z is (..., Q, L). Of r itself, of which that is a small part at first, the error is smaller.
    """
    n, high, low = most_and_least_frequent(case)
    gain = theory.relative_gain(case, z, reference=low)[..., n, high]
    start = theory.relative_gain(case, reference=low)[n, high]
    grown = theory.growth_factor(z[..., case.psi[n], high]) - 1.0
    return np.asarray(np.abs((gain / start - 1.0) / grown - 1.0))


def by_frequency(case: Case, n: int) -> NDArray[np.int64]:
    """The distinct tokens of class n (as columns of P), the rarest first."""
    tokens = np.flatnonzero(formulas.token_roles(case).distinct[n])
    return tokens[np.argsort(case.P[n, tokens])]


def mean_entropy(result: xr.Dataset) -> xr.DataArray:
    """Entropy over distinct tokens, mean over classes (Fig. 6's y axis)."""
    return measures.distinct_entropy(result).mean("sequence_class")


def slopes(times: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Change of z between records, along its first axis, per unit of time."""
    steps = np.diff(times).reshape(-1, *[1] * (z.ndim - 1))
    return np.asarray(np.diff(z, axis=0) / steps)


def first_turn(times: NDArray[np.float64], path: NDArray[np.float64]) -> float:
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
