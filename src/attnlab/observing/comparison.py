"""Comparison of two trainings: heads matched by what they do, and how they differ at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.atomic import write_text
from attnlab.files.errors import InputError
from attnlab.files.markdown import page, table, words
from attnlab.observing.layer_statistics import LABELS, OF_SEQUENCES
from attnlab.observing.roles import BAND, ROLES
from attnlab.observing.words import with_steps

# Statistics that are compared
COMPARED: tuple[str, ...] = ("relative_entropy", "keys_share", "sink_mass", "previous_mass")
COMPARED += ("mean_distance", "induction_mass", "repeated_induction", "max_logit")
SIDES = ("first", "second")
NONE = "none"  # the role of a head without one
_OF_HEADS = ("layer", "head")
MOST_PAIRS = 60  # in the text: those that differ most


def compare(first: xr.Dataset, second: xr.Dataset, *, match: str = "similarity") -> xr.Dataset:
    """Compare the last steps of two observations: of two seeds, learning rates or models.

    Heads have no order that two trainings share. So each head is matched with one of the other
    training that has a similar score for every role, prefers the same role, and is at a similar
    depth. The errors are standard errors over the sequences of the probe; how much two seeds differ
    by chance, only more seeds can tell.

    Parameters
    ----------
    first, second : xarray.Dataset
        Results of observers, over (step, layer, head) or (layer, head).
    match : {"similarity", "number"}, optional
        "number" matches heads by layer and head, for two states of one training.

    Returns
    -------
    xarray.Dataset
        Over `pair`, `side` ("first", "second") and `statistic`: layer and head of each pair, their
        roles and the steps since which they have them, values, differences (second minus first)
        and errors.
    """
    if match not in ("similarity", "number"):
        raise InputError(f"match: expected 'similarity' or 'number', got {match!r}")
    last = [with_steps(one).isel(step=-1) for one in (first, second)]
    heads = [np.argwhere(one["entropy"].notnull().values) for one in last]
    if not all(map(len, heads)):
        raise InputError("dataset: attention is not a number in any head of the last step")
    pairs, distance = _matched(last, heads, match)
    names = [name for name in COMPARED if all(name in one for one in last)]
    sides = [
        _side(one, here[chosen], names)
        for one, here, chosen in zip(last, heads, pairs, strict=True)
    ]
    found = xr.concat(sides, xr.Variable("side", list(SIDES)), data_vars="all")
    value = found["value"].isel(side=1, drop=True) - found["value"].isel(side=0, drop=True)
    found["difference"], found["distance"] = value, ("pair", distance)
    found["difference_error"] = (found["error"] ** 2).sum("side", skipna=False) ** 0.5
    found.attrs["unmatched"] = [len(here) - len(distance) for here in heads]
    return found


def _side(one: xr.Dataset, heads: NDArray[Any], names: list[str]) -> xr.Dataset:
    """Return some heads of an observation, over `pair` and `statistic`."""
    index = {dim: xr.DataArray(heads[:, i], dims="pair") for i, dim in enumerate(_OF_HEADS)}
    picked = one.isel(index).reset_coords(_OF_HEADS)
    role = picked["head_role"]
    values = [picked[name].sel(LABELS[name].entry, drop=True) for name in names]
    errors = [
        picked.get(f"{name}{OF_SEQUENCES}", picked[name] * np.nan).sel(
            LABELS[name].entry, drop=True
        )
        for name in names
    ]
    onset = picked["role_onset"].isel(role=role.clip(0)).where(role >= 0).drop_vars("role")
    statistic = xr.Variable("statistic", names)
    found = {
        "layer": picked["layer"],
        "head": picked["head"],
        "role": ("pair", np.array([*ROLES, NONE])[role.values]),
        "role_onset": onset,
        "value": xr.concat(values, statistic, coords="minimal"),
        "error": xr.concat(errors, statistic, coords="minimal"),
    }
    return xr.Dataset(found).reset_coords(drop=True)


def _matched(
    last: list[xr.Dataset], heads: list[NDArray[Any]], match: str
) -> tuple[tuple[NDArray[Any], ...], NDArray[np.float64]]:
    """Return the heads of each pair, by their number in `heads`, and their distances."""
    scores, depths, roles = [], [], []
    for one, here in zip(last, heads, strict=True):
        score = np.nan_to_num(one["role_score"].transpose("layer", "head", "role").values)
        scores.append(np.clip(score, -1, 1)[tuple(here.T)])
        depths.append(here[:, 0] / max(1, one.sizes["layer"] - 1))
        roles.append(one["head_role"].values[tuple(here.T)])
    cost = np.abs(scores[0][:, None] - scores[1]).sum(-1)
    cost += np.abs(depths[0][:, None] - depths[1]) + (roles[0][:, None] != roles[1])
    if match == "number":
        names = [
            np.stack([one[dim].values[here[:, i]] for i, dim in enumerate(_OF_HEADS)], axis=-1)
            for one, here in zip(last, heads, strict=True)
        ]
        pairs = np.nonzero((names[0][:, None] == names[1]).all(-1))
        if not len(pairs[0]):
            raise InputError("match: the two have no layer and head in common; give 'similarity'")
    else:
        from scipy.optimize import linear_sum_assignment

        pairs = linear_sum_assignment(cost)
    return pairs, cost[pairs]


def comparison_text(found: xr.Dataset, names: tuple[str, str] = SIDES) -> str:
    """Return a comparison as Markdown; names: of the two trainings."""
    first, second = (str(words(name)) for name in names)
    parts = [f"# {first} and {second}", *_sentences(found, (first, second))]
    means = [["statistic", f"{first}: mean over heads", second, "difference", "heads that differ"]]
    for name in found["statistic"].values:
        one = found.sel(statistic=name)
        value, error = one["difference"], one["difference_error"]
        sides = [f"{float(one['value'].sel(side=side).mean()):.3g}" for side in SIDES]
        differs = int((abs(value) > BAND * error).sum())
        known = int(error.notnull().sum())
        between = f"{float(value.mean()):+.2g}"
        number = "errors are not known"
        if known:
            between += f" ± {float(error.mean()):.1g}"
            number = f"{differs} of {known}"
        means.append([str(words(LABELS[str(name)].title)), *sides, between, number])
    parts += ["## Statistics", table(means)]
    parts.append(
        "Differences are of matched heads, with the mean of their standard errors over sequences; "
        f"a head differs by more than {BAND:g} of its own."
    )
    rows = [[first, "role", "since", second, "role", "since", "distance", "entropy"]]
    for at in np.argsort(-found["distance"].values, kind="stable")[:MOST_PAIRS]:
        pair = found.isel(pair=at)
        cells = [cell for side in SIDES for cell in _cells(pair.sel(side=side))]
        entropy = float(pair["difference"].sel(statistic="relative_entropy"))
        rows.append([*cells, f"{float(pair['distance']):.2f}", f"{entropy:+.2g}"])
    parts += ["## Matched heads, the most different first", table(rows)]
    return "\n\n".join(parts) + "\n"


def _cells(head: xr.Dataset) -> Iterator[str]:
    yield f"layer {int(head['layer'])} head {int(head['head'])}"
    yield str(head["role"].item())
    since = float(head["role_onset"])
    yield f"{since:,.0f}" if np.isfinite(since) else "–"


def _sentences(found: xr.Dataset, names: tuple[str, str]) -> Iterator[str]:
    same = int((found["role"].isel(side=0) == found["role"].isel(side=1)).sum())
    number = found.sizes["pair"]
    left = sum(found.attrs["unmatched"])
    yield (
        f"{same} of {number} matched heads have the same role"
        + (f"; {left} heads have no counterpart." if left else ".")
    )
    rows = [["role", *(f"{name}: heads" for name in names), *(f"{name}: first" for name in names)]]
    for role in (*ROLES, NONE):
        some = found["role"] == role
        if some.any():
            counts = some.sum("pair").values
            onset = found["role_onset"].where(some).min("pair").values
            since = [f"step {step:,.0f}" if np.isfinite(step) else "–" for step in onset]
            rows.append([role, *map(str, counts), *since])
    yield table(rows)


def comparison_page(found: xr.Dataset, path: str | Path, names: tuple[str, str] = SIDES) -> None:
    """Write a comparison as a page that needs nothing beside itself."""
    write_text(Path(path), page(f"{names[0]} and {names[1]}", comparison_text(found, names)))
