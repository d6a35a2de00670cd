"""Errors of each level of the theory against training, and what changes between levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from attnlab.auditing.document import number
from attnlab.auditing.trial import Trial

KINDS = ("z_error", "attention_error")


def ladder_of(trial: Trial) -> xr.Dataset:
    """The errors of each theory, along (theory, at): at the transition and at the end.

    `z_error` is the largest error in z, relative to the largest |z| of training; `attention_error`
    the largest one in attention. nan where a theory is silent or nothing has moved. `time` says
    when: for the predicted transition, if the run gets there, the nearest record, which is that
    time itself where the audit chose the records.
    `leans_on` is what a level uses and the next does not.
    """
    clock = trial.simulation.clock
    times = trial.simulated[clock].values.astype(np.float64)
    places = {}
    if trial.transition is not None and times[-1] >= (t0 := trial.transition[1]):
        places["transition"] = int(abs(times[1:] - t0).argmin()) + 1
    places["end"] = times.size - 1
    there = list(places.values())
    trained = trial.simulated.isel({clock: there}).mean("seed")
    largest = abs(trained["attention_logits"]).max(("query", "token"))
    errors = np.full((len(KINDS), len(trial.theories), len(there)), np.nan)
    for i, of in enumerate(trial.theories):
        if of.name not in trial.predicted:
            continue
        predicted = trial.predicted[of.name].isel({clock: there}).isel(seed=0)
        z = abs(predicted["attention_logits"] - trained["attention_logits"])
        attention = abs(predicted["attention"] - trained["attention"])
        errors[0, i] = z.max(("query", "token")) / largest.where(largest > 0)
        errors[1, i] = attention.max(("sequence_class", "token"))
    return xr.Dataset(
        {kind: (("theory", "at"), values) for kind, values in zip(KINDS, errors, strict=True)},
        {
            "theory": [of.name for of in trial.theories],
            "leans_on": ("theory", [of.leans_on for of in trial.theories]),
            "at": list(places),
            "time": ("at", times[there]),
        },
    )


def costs(ladder: xr.Dataset) -> list[str]:
    """Sentences: what each level leans on, and the error in z with it and without."""
    rungs = ladder["z_error"].isel(theory=np.flatnonzero(ladder["leans_on"] != ""))
    when = [f"at the {at}" for at in rungs["at"].values]
    words = []
    for i, leaning in enumerate(rungs["leans_on"].values):
        here, following = rungs.values[i], rungs.values[i + 1 : i + 2]
        if np.isnan(here).any() or np.isnan(following).any():
            continue
        if following.size:
            each = [f"from {a:.2g} to {b:.2g}" for a, b in zip(here, following[0], strict=True)]
            words.append(f"Without {leaning} the error in z goes {_at(each, when)}.")
        else:
            words.append(f"What is left, {_at([f'{a:.2g}' for a in here], when)}, is {leaning}.")
    return words


def _at(told: list[str], when: list[str]) -> str:
    return " and ".join(f"{what} {at}" for what, at in zip(told, when, strict=True))


def ladder_document(ladder: xr.Dataset) -> dict[str, Any]:
    """All of it as plain data."""
    return {
        "at": ladder["at"].values.tolist(),
        "time": ladder["time"].values.tolist(),
        "rungs": [
            {
                "theory": name,
                "leans_on": str(ladder["leans_on"].values[i]),
                **{kind: [number(of) for of in ladder[kind].values[i].tolist()] for kind in KINDS},
            }
            for i, name in enumerate(ladder["theory"].values.tolist())
        ],
        "costs": costs(ladder),
    }
