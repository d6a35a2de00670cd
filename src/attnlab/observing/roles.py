"""Roles of heads: what each head attends to, how strongly, and since which step.

Scores are read from the statistics of a measurement, so that roles cost nothing of their own. They
describe the probe: on other text a head may do something else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.observing.layer_statistics import LABELS, OF_SEQUENCES

BAND = 1.96  # standard errors over sequences, of the interval of an onset


class Role(NamedTuple):
    """A role. statistics: the first of these that was measured makes the score. threshold: least
    score of a head with this role. meaning: what such a head does, in a sentence."""

    statistics: tuple[str, ...]
    threshold: float
    meaning: str


# The first five scores are shares of the attention: the largest one above its threshold is the
# role of a head. Otherwise the role is the first of the others that applies.
ROLES = {
    "sink": Role(("sink_mass",), 0.3, "attend to the first key"),
    "previous token": Role(("previous_mass",), 0.3, "attend to the key before"),
    "self": Role(("self_mass",), 0.3, "attend to their own position"),
    # random tokens that come twice show copying best, if they were measured
    "duplicate": Role(
        ("repeated_duplicate", "duplicate_mass"), 0.3, "attend to earlier copies of the token"
    ),
    "induction": Role(
        ("repeated_induction", "induction_mass"), 0.3, "attend to what followed the token before"
    ),
    "dead": Role(("output_norm",), 0.9, "put out less than a tenth of the layer's mean"),
    "uniform": Role(("relative_entropy",), 0.95, "attend to all keys alike"),
    "local": Role(("mean_distance",), 0.75, "attend to near keys"),
    "position-only": Role(("position_only",), 0.9, "attend to positions, whatever the tokens"),
}
SHARES = 5


def with_roles(dataset: xr.Dataset) -> xr.Dataset:
    """Add the roles of heads to the means of an observer, over layer, head and perhaps step.

    `role_score` has the score of each role; `head_role` the role at the last step, as an index of
    `ROLES`, or -1. `role_onset` is the first measured step from which on the score stays above its
    threshold; the interval reaches from `role_onset_low`, the step measured before the score plus
    1.96 standard errors over sequences does so, to `role_onset_high`, where the score minus these
    does; NaN where it never does.
    """
    stepped = "step" in dataset.dims
    order = ("step", "layer", "head") if stepped else ("layer", "head")
    scores, errors = zip(*(_score(dataset, name) for name in ROLES), strict=True)
    score, error = (
        np.stack([one.transpose(*order).values for one in several], axis=-1)
        for several in (scores, errors)
    )
    found: dict[str, Any] = {"role_score": ((*order, "role"), score)}
    found["head_role"] = (("layer", "head"), _role(score[-1] if stepped else score))
    if stepped:
        thresholds = [role.threshold for role in ROLES.values()]
        steps = dataset["step"].values
        since = {
            "role_onset": _since(score >= thresholds),
            "role_onset_low": _since(score + BAND * error >= thresholds),
            "role_onset_high": _since(score - BAND * error >= thresholds),
        }
        since["role_onset_low"] -= since["role_onset_low"] > 0  # it began after that measurement
        for name, index in since.items():
            onset = np.where(index >= 0, steps[index], np.nan)
            found[name] = (("layer", "head", "role"), onset)
    labelled = {name: (*one, LABELS[name].attrs) for name, one in found.items()}
    return dataset.assign(labelled).assign_coords(role=list(ROLES))


def _score(dataset: xr.Dataset, name: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the score of a role and its standard error over sequences; NaN if not measured."""
    measured = next((one for one in ROLES[name].statistics if one in dataset), None)
    unknown = dataset["entropy"] * np.nan
    if measured is None:
        return unknown, unknown
    entry = {"first": 1} if name == "sink" else {}
    score = dataset[measured].sel(entry, drop=True)
    error = dataset.get(f"{measured}{OF_SEQUENCES}")
    error = unknown if error is None else error.sel(entry, drop=True)
    if name == "dead":
        return 1 - score, error
    if name == "local":  # 1 at distance 0, and 0 at the mean distance of all earlier keys
        middle = (dataset["visible_keys"] - 1) / 2
        return 1 - score / middle, error / middle
    return score, error


def _role(score: NDArray[np.float64]) -> NDArray[np.int8]:
    """Return the role of each head by its scores, over (layer, head, role)."""
    applies = score >= [role.threshold for role in ROLES.values()]
    # a large number for shares, so that they come before the other roles
    rank = np.where(applies, -np.arange(len(ROLES), dtype=float), -np.inf)
    rank[..., :SHARES] = np.where(applies[..., :SHARES], score[..., :SHARES], -np.inf)
    return np.where(applies.any(axis=-1), rank.argmax(axis=-1), -1).astype(np.int8)


def _since(above: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the first step from which on this holds to the end, or -1; steps come first."""
    stays = np.logical_and.accumulate(above[::-1], axis=0)[::-1]
    return np.where(stays[-1], stays.argmax(axis=0), -1)
