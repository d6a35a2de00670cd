"""Maps of where theory breaks: errors of predictions against training, over one setting at a time.

Each map compares Eq. 10 (with the corrected coefficients) with training, by three measures, and the
next level of the theory in the first of them:

- `speed`: by what factor Eq. 10 moves the dominant token's logit further than training does
  (1 is right; negative: in the other direction);
- `sgd_speed`: the same of the theory "sgd", which has the decoder that SGD trains;
- `gain`: the relative error of Eq. 11 in ln chi;
- `fate`: the share of tokens with a fate by Theorem 2 whose logit ends on the wrong side of 0.

The classes have one common token and three distinct tokens each; its probability falls from
`common_prob` in class 0 to half of that in the last, because unequal classes are where fates go
wrong. Everything is measured at 10 t_0. Steps and flow time: see `attnlab.auditing.runs`.

A fourth map says where the order of Section 6 (c) turns: `turn`, the ratio eta_Y/eta_Z from which
on a larger eta_Y makes attention denser, over the time.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from attnlab import formulas
from attnlab.auditing.runs import ratios, trained
from attnlab.formulas.checks import FloatArray
from attnlab.tasks.classes import SequenceClasses
from attnlab.theory import Case

from . import cases, theory
from .hypotheses import FAST

M = 1000
RATIOS = (0.25, 1.0, 4.0, FAST, 150.0, 1000.0)
COMMON = (0.1, 0.2, 0.4, 0.8)
CLASSES = (2, 4, 8, 16)
LENGTHS = (16, 256, 4096)
# What each kind of error is, and what its value is wrong by.
KINDS = {
    "speed": (
        "Logit of the dominant token, Eq. 10 over training (1 is right; negative: opposite)",
        "factor",
    ),
    "sgd_speed": ("The same with the decoder that SGD trains (theory sgd) over training", "factor"),
    "gain": ("Relative error of Eq. 11", "difference"),
    "fate": ("Share of tokens that end on the wrong side of their fate (Theorem 2)", "difference"),
}
TURN = "eta_Y / eta_Z from which on a larger eta_Y is denser (Section 6 (c)); reversed below"
ETA_Y = 0.9
ETA_Z = ETA_Y / FAST  # where the ratio is not varied


def graded(K: int, common_prob: float) -> SequenceClasses:
    """K classes of one query that share one common token, less and less of it."""
    ramp = np.array([0.1, 0.55, 1.0]) / 1.65
    p = common_prob * np.linspace(1.0, 0.5, K)
    rows = [
        {0: float(p[n]), **{1 + 3 * n + j: float((1 - p[n]) * w) for j, w in enumerate(ramp)}}
        for n in range(K)
    ]
    first = 1 + 3 * K
    return SequenceClasses(
        rows,
        [first] * K,
        list(range(first + 1, first + 1 + K)),
        vocab_size=M,
        origin=f"graded: K = {K}, common_prob = {common_prob:g}",
    )


def predictions(case: Case, time: float) -> dict[str, FloatArray]:
    """Return the predicted logits (Q, L) at `time`, by the measure of the error they are for."""
    at = np.array([time])
    sgd = formulas.sgd_flow(case, at, rtol=1e-7, atol=1e-10)
    return {"speed": cases.eq_10(case, at).logits[0], "sgd_speed": sgd.logits[0]}


def errors(case: Case, predicted: Mapping[str, FloatArray], z: FloatArray) -> dict[str, float]:
    """Return the errors of `predictions`, given the logits (Q, L) of training at the same time."""
    n, high, _ = cases.most_and_least_frequent(case)
    dominant = case.psi[n], high
    fates = theory.token_fates(case)
    return {
        **{kind: float(path[dominant] / z[dominant]) for kind, path in predicted.items()},
        "gain": float(cases.gain_error(case, z)),
        "fate": float((z * fates < 0)[fates != 0].mean()),
    }


def _table(
    cells: Mapping[tuple[float, float], dict[str, float]], knob: str, title: str
) -> xr.Dataset:
    """Return cells by (knob, common_prob) as a dataset with a variable for each kind of error."""
    rows, columns = (sorted({key[axis] for key in cells}) for axis in (0, 1))
    return xr.Dataset(
        {
            kind: (
                (knob, "common_prob"),
                [[cells[r, c][kind] for c in columns] for r in rows],
                {"caption": caption, "wrong": wrong},
            )
            for kind, (caption, wrong) in KINDS.items()
        },
        {knob: rows, "common_prob": columns},
        {"title": title},
    )


def ratio_map() -> xr.Dataset:
    """Errors over eta_Y/eta_Z and overlap: two classes, the joint flow."""
    cells: dict[tuple[float, float], dict[str, float]] = {}
    for prob in COMMON:
        case = Case(graded(2, prob), ETA_Y, ETA_Z, 1e6)
        time = 10 * cases.transition_time(case)
        rates = ratios(*RATIOS, eta_y=ETA_Y)
        at = trained(case.classes, rates, case.steps, exactly=(time,)).sel(time=time)
        for i, ratio in enumerate(RATIOS):
            z = cases.logits(case, at.isel(run=i))
            here = case.at(eta_z=ETA_Y / ratio)
            cells[ratio, prob] = errors(here, predictions(here, time), z)
    return _table(cells, "ratio", "eta_Y / eta_Z: two classes, the joint flow at 10 t_0")


def _stepped(case: Case, steps: int, **settings: Any) -> FloatArray:
    """Return the logits after plain steps, the mean over seeds."""
    return cases.logits(case, cases.train_steps(case, steps, **settings).isel(step=-1).mean("seed"))


def class_map() -> xr.Dataset:
    """Errors over K and overlap: expected-gradient steps (T infinite), eta_Y/eta_Z = 30."""
    cells: dict[tuple[float, float], dict[str, float]] = {}
    for K in CLASSES:
        for prob in COMMON:
            case = Case(graded(K, prob), ETA_Y, ETA_Z, 1e6)
            steps = round(10 * cases.transition_time(case))
            z = _stepped(case, steps, gradient="population")
            cells[K, prob] = errors(case, predictions(case, steps), z)
    title = "Number of classes K: expected-gradient steps to 10 t_0, eta_Y / eta_Z = 30"
    return _table(cells, "classes", title)


def length_map() -> xr.Dataset:
    """Errors over T and overlap: batches of 64 sampled sequences, mean over 16 seeds, K = 2."""
    cells: dict[tuple[float, float], dict[str, float]] = {}
    # A rarer token needs a sampler of another shape, and that another compilation.
    for prob in COMMON[-3:]:
        case = Case(graded(2, prob), ETA_Y, ETA_Z, 1e6)
        steps = round(10 * cases.transition_time(case))
        predicted = predictions(case, steps)  # the theory has no length
        for length in LENGTHS:
            z = _stepped(case, steps, length=length, batch_size=64, seeds=16)
            cells[length, prob] = errors(case, predicted, z)
    title = "Length T: batches of 64 sequences to 10 t_0, K = 2, eta_Y / eta_Z = 30"
    return _table(cells, "length", title)


def clock_map() -> xr.Dataset:
    """Return the ratio at which Section 6 (c)'s order turns, over eta_Z t and overlap, K = 2."""
    eta_z = 1e-3
    columns = [cases.densities(graded(2, prob), eta_z=eta_z) for prob in COMMON]
    return xr.Dataset(
        {
            "turn": (
                ("clock", "common_prob"),
                [
                    [cases.turning_ratio(column, clock / eta_z) for column in columns]
                    for clock in cases.TURNS
                ],
                {"caption": TURN, "wrong": "factor"},
            )
        },
        {"clock": list(cases.TURNS), "common_prob": list(COMMON)},
        {"title": "eta_Z t: two classes, the joint flow at eta_Z = 0.001"},
    )


MAKERS: dict[str, Callable[[], xr.Dataset]] = {
    "ratio": ratio_map,
    "classes": class_map,
    "length": length_map,
    "clock": clock_map,
}
