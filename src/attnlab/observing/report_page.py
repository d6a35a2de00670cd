"""Report: one page about a model's attention, which needs nothing beside itself.

Numbers are prepared here, as plain lists; the page's own script draws them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from attnlab import __version__
from attnlab.files.atomic import write_text
from attnlab.files.pages import template
from attnlab.observing.kv_cache import budget_table
from attnlab.observing.snap import STATES
from attnlab.observing.words import POLICY_WORDS, SNAP, in_words, snap_is_sure, with_steps
from attnlab.shelf import single

if TYPE_CHECKING:
    from attnlab.tasks.classes import SequenceClasses

MOST_NUMBERS = 600_000  # on a page; of longer histories some steps are left out
DIGITS = 4
BAND = 1.96  # standard errors


class Shown(NamedTuple):
    """A statistic of the page: a variable, the entry of its other dim, and its title."""

    variable: str
    title: str
    entry: Mapping[str, Any] = {}


SHOWN = (
    Shown("relative_entropy", "entropy, of the largest possible"),
    Shown("entropy", "entropy (nats)"),
    Shown("effective_tokens", "effective tokens, exp(entropy)"),
    Shown("keys_for", "keys for 95 % of the attention", {"mass": 0.95}),
    Shown("keys_share", "keys for 95 %, of the visible ones", {"mass": 0.95}),
    Shown("top_mass", "attention to the strongest key", {"k": 1}),
    Shown("sink_mass", "attention to the first key", {"first": 1}),
    Shown("self_mass", "attention to its own place"),
    Shown("previous_mass", "attention to the place before"),
    Shown("local_mass", "attention to the 64 nearest"),
    Shown("mean_distance", "mean distance (keys)"),
    Shown("induction_mass", "induction, above chance"),
    Shown("duplicate_mass", "duplicate tokens, above chance"),
    Shown("repeated_induction", "induction on random tokens that come twice"),
    Shown("repeated_duplicate", "duplicate tokens on random tokens that come twice"),
    Shown("common_mass", "attention to tokens of several sequences"),
    Shown("heavy_mass", "received by the heaviest tenth of keys"),
    Shown("frequency_correlation", "rank correlation of received with frequency"),
    Shown("idf_correlation", "rank correlation of received with idf"),
    Shown("max_logit", "largest logit, over all queries"),
    Shown("largest_logit", "largest logit of a query, mean over queries"),
    Shown("entropy_slack", "entropy above its floor (nats)"),
    Shown("attention_speed", "speed of the maps, per step"),
    Shown("heavy_overlap", "heavy hitters that were heavy before"),
    Shown("learnable_sink_mass", "attention to the learnable sink"),
)


def report(
    dataset: xr.Dataset, path: str | Path | None = None, *, theory: Sequence[str] = ()
) -> str:
    """Return the page about a dataset of `attnlab.observe`, as HTML.

    Parameters
    ----------
    dataset : xarray.Dataset
        Over (step, layer, head), measured or loaded; one over (layer, head) is one snapshot.
    path : path, optional
        Where it is written, if it is.
    theory : sequence of str, optional
        Sentences of `expected(...)`, if papers were asked; without them, those
        that came with the dataset.

    Returns
    -------
    str
        The page, which needs nothing from elsewhere.
    """
    dataset = with_steps(dataset)
    theory = theory or json.loads(dataset.attrs.get("theory", "[]"))
    spec = json.loads(dataset.attrs.get("spec", "{}"))
    page = template("attnlab.observing", "report.html", short=short).render(
        version=__version__,
        title=f"Attention of {spec.get('model', 'a training')}",
        words=in_words(dataset),
        theory=list(theory),
        data=page_data(dataset),
        snaps=snap_table(dataset),
        caches=cache_table(dataset),
        heads=head_caches(dataset),
        lint=json.loads(dataset.attrs["lint"]) if "lint" in dataset.attrs else None,
        settings=_settings(dataset, spec),
    )
    if path is not None:
        write_text(path, page)
    return page


def page_data(dataset: xr.Dataset) -> dict[str, Any]:
    """Return what the page's script draws: statistics over (step, layer, head), rounded, None for
    NaN."""
    there = [one for one in SHOWN if one.variable in dataset]
    of_step = len(there) * dataset.sizes["layer"] * dataset.sizes["head"]
    number = dataset.sizes["step"]
    kept = np.unique(
        np.linspace(0, number - 1, min(number, max(2, MOST_NUMBERS // of_step))).round().astype(int)
    )
    some = dataset.isel(step=kept)
    steps = some["step"].values.tolist()
    modules = some["module"].values.tolist() if "module" in some.coords else []
    return {
        "steps": steps,
        "left_out": int(number - kept.size),
        "modules": [str(module) for module in modules],
        "statistics": [_drawn(some, one) for one in there],
        "snaps": _numbers(dataset["snap_step"]) if "snap_step" in dataset else None,
    }


def snap_table(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return a row for each head: its state, when it snapped and how surely, what still moves."""
    if "snap_state" not in dataset:
        return []
    sure = snap_is_sure(dataset)
    measured = dataset["entropy"].isel(step=-1).notnull().values
    state = dataset["snap_state"].values
    return [
        {
            "layer": int(dataset["layer"][layer]),
            "head": int(dataset["head"][head]),
            "state": STATES[state[layer, head]],
            "claimed": bool(sure[layer, head]),
            **{name: _number(dataset[name].values[layer, head]) for name in SNAP},
        }
        for layer, head in np.argwhere(measured).tolist()
    ]


def cache_table(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return means over heads at the end: of each policy, what it keeps at each budget."""
    if "retained_mass" not in dataset:
        return []
    names = [name for name in ("retained_mass", "output_error") if name in dataset]
    last = dataset[names].isel(step=-1).mean(("layer", "head"))

    def cell(**entry: Any) -> dict[str, Any]:
        return {name: _number(float(last[name].sel(entry))) for name in names}

    return [
        {
            "policy": POLICY_WORDS[str(policy)],
            "cells": [
                {"budget": float(budget), **cell(policy=policy, budget=budget)}
                for budget in last["budget"].values
            ],
        }
        for policy in last["policy"].values
    ]


def head_caches(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return the rows of `budget_table` at the end, for those who build caches."""
    if "retained_mass" not in dataset:
        return []
    rows = budget_table(dataset.isel(step=-1, drop=True))
    return [
        {name: _number(value) if isinstance(value, float) else value for name, value in of.items()}
        for of in rows
    ]


def short(value: float | None) -> str:
    """Return a number in three digits, a dash for none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _drawn(dataset: xr.Dataset, shown: Shown) -> dict[str, Any]:
    values = dataset[shown.variable].sel(shown.entry)
    # sequences that differ tell of sampled rows too
    errors = (f"{shown.variable}_sequence_se", f"{shown.variable}_se")
    error = next((dataset[name].sel(shown.entry) for name in errors if name in dataset), None)
    band = None if error is None or not bool((error > 0).any()) else _numbers(BAND * error)
    return {
        "name": shown.variable,
        "title": shown.title,
        "meaning": str(values.attrs.get("long_name", shown.title)),
        "values": _numbers(values),
        "band": band,
    }


def _settings(dataset: xr.Dataset, spec: Mapping[str, Any]) -> dict[str, str]:
    versions = json.loads(dataset.attrs.get("versions", "{}"))
    shown = {key: str(value) for key, value in spec.items() if value is not None}
    if "checkpoints" in spec:
        shown["checkpoints"] = ", ".join(map(str, spec["checkpoints"]))
    if "seconds" in dataset.attrs:
        shown["seconds spent on measuring"] = f"{float(dataset.attrs['seconds']):.1f}"
    if "made_at" in dataset.attrs:
        shown["made at"] = str(dataset.attrs["made_at"])
    shown["versions"] = ", ".join(
        f"{name} {version}"
        for name, version in {**versions, "torch": dataset.attrs.get("torch")}.items()
        if version
    )
    return shown


def _numbers(values: xr.DataArray) -> Any:
    """Return nested lists in the order step, layer, head; rounded, None where there is no
    number."""
    dims = [dim for dim in ("step", "layer", "head") if dim in values.dims]
    array = values.transpose(*dims).values
    flat: list[Any] = [_number(value) for value in array.ravel().tolist()]
    for size in array.shape[:0:-1]:
        flat = [flat[i : i + size] for i in range(0, len(flat), size)]
    return flat


def _number(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def expected(dataset: xr.Dataset, text: Any = None, names: Any = None) -> list[str]:
    """Return what each paper says about a measured model, given the tokens that it learns from.

    Parameters
    ----------
    dataset : xarray.Dataset
        As `attnlab.observe` makes it.
    text : array_like, optional
        Tokens that the model learns from; by default those that came with the dataset.
    names : tokenizer or sequence of str, optional
        A tokenizer, or the names of tokens in the order of their ids.

    Returns
    -------
    list of str
        Sentences; where a paper cannot tell, why.
    """
    return [
        sentence
        for _, offer in single("expectation")
        for sentence in offer.load()(dataset, text, names=names)
    ]


def classes(
    ids: Any,
    *,
    names: Any = None,
    queries: int = 5,
    following: int = 4,
    context: int = 35,
    min_count: int = 10,
) -> SequenceClasses:
    """Estimate the sequence classes of a text from its token ids, for `simulate` and `predict`.

    Parameters
    ----------
    ids : array_like
        Token ids, (sequence, position) or one long sequence, as a model takes them.
    names : tokenizer or sequence of str, optional
        A tokenizer, or the names of tokens in the order of their ids; by default a token is called
        by its id.
    queries : int, optional
        Number of query words.
    following : int, optional
        Number of next words of each.
    context : int, optional
        Number of words before a pair that count.
    min_count : int, optional
        Rarer pairs and words are left out.

    Returns
    -------
    SequenceClasses
        As `attnlab.tasks.text.estimate_classes` makes them.

    Examples
    --------
    >>> from attnlab import observing
    >>> ids = [0, 2, 3, 1, 2, 4] * 20
    >>> found = observing.classes(ids, queries=1, following=2, context=3, min_count=2)
    >>> sorted(found.names[i] for i in found.next_token)
    ['token 3', 'token 4']
    """
    from attnlab.tasks.text.classes import estimate_classes  # imports JAX, which is slow
    from attnlab.tasks.text.ids import corpus_of_ids

    corpus, _ = corpus_of_ids(ids, names=names, context=context)
    return estimate_classes(
        corpus, queries=queries, following=following, context=context, min_count=min_count
    )
