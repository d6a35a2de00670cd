"""Report: one self-contained page about a model's attention.

Numbers are prepared here, as plain lists; the page's own script draws them.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from attnlab import __version__
from attnlab.files.atomic import write_text
from attnlab.files.markdown import raw_template
from attnlab.observing.kv_cache import budget_table
from attnlab.observing.layer_statistics import LABELS, Label
from attnlab.observing.snap import STATES
from attnlab.observing.words import POLICY_WORDS, SNAP, in_words, snap_is_sure, with_steps
from attnlab.shelf import single

if TYPE_CHECKING:
    from attnlab.tasks.classes import SequenceClasses

MOST_NUMBERS = 600_000  # on a page, which leaves out steps of longer histories
DIGITS = 4
BAND = 1.96  # standard errors


def report(
    dataset: xr.Dataset, path: str | Path | None = None, *, theory: Sequence[str] = ()
) -> str:
    """Return the page about a dataset of `attnlab.observe`, as HTML.

    Parameters
    ----------
    dataset : xarray.Dataset
        Over (step, layer, head), measured or loaded; one over (layer, head) is one snapshot.
    path : path, optional
        File to write.
    theory : sequence of str, optional
        Sentences of `expected(...)`; by default those of the dataset's attributes.

    Returns
    -------
    str
        The page, self-contained.
    """
    dataset = with_steps(dataset)
    theory = theory or json.loads(dataset.attrs.get("theory", "[]"))
    spec = json.loads(dataset.attrs.get("spec", "{}"))
    page = raw_template("attnlab.observing", "report.html", short=short).render(
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
    """Return the data of the page's script: statistics over (step, layer, head), rounded, None for
    NaN."""
    there = [label for name, label in LABELS.items() if label.title and name in dataset]
    of_step = len(there) * dataset.sizes["layer"] * dataset.sizes["head"]
    number = dataset.sizes["step"]
    most = min(number, max(2, MOST_NUMBERS // of_step))
    kept = np.unique(np.linspace(0, number - 1, most).round().astype(int))
    some = dataset.isel(step=kept)
    modules = some["module"].values.tolist() if "module" in some.coords else []
    return {
        "steps": some["step"].values.tolist(),
        "left_out": int(number - kept.size),
        "modules": [str(module) for module in modules],
        "statistics": [_drawn(some, label) for label in there],
        "snaps": _numbers(dataset["snap_step"]) if "snap_step" in dataset else None,
    }


def snap_table(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return a row for each head: its state, its snap with the interval, and its speed since."""
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
    """Return means over heads at the end: the mass that each policy keeps at each budget."""
    if "retained_mass" not in dataset:
        return []
    last = dataset.isel(step=-1, drop=True).mean(("layer", "head"))
    rows = itertools.groupby(_rounded(budget_table(last)), lambda cell: cell["policy"])
    return [{"policy": POLICY_WORDS[name], "cells": list(cells)} for name, cells in rows]


def head_caches(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return the rows of `budget_table` at the end, for readers who build caches."""
    if "retained_mass" not in dataset:
        return []
    return _rounded(budget_table(dataset.isel(step=-1, drop=True)))


def _rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{n: _number(v) if isinstance(v, float) else v for n, v in row.items()} for row in rows]


def short(value: float | None) -> str:
    """Return a number in three digits; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _drawn(dataset: xr.Dataset, label: Label) -> dict[str, Any]:
    values = dataset[label.name].sel(label.entry)
    # errors over sequences include those of sampled rows
    errors = (f"{label.name}_sequence_se", f"{label.name}_se")
    error = next((dataset[name].sel(label.entry) for name in errors if name in dataset), None)
    band = None if error is None or not bool((error > 0).any()) else _numbers(BAND * error)
    return {
        "name": label.name,
        "title": label.title,
        "meaning": str(values.attrs.get("long_name", label.title)),
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
    versions["torch"] = dataset.attrs.get("torch")
    shown["versions"] = ", ".join(f"{name} {one}" for name, one in versions.items() if one)
    return shown


def _numbers(values: xr.DataArray) -> Any:
    """Return nested lists in the order step, layer, head; rounded, None for NaN."""

    def rounded(inner: Any) -> Any:
        return [rounded(one) for one in inner] if isinstance(inner, list) else _number(inner)

    return rounded(values.transpose("step", "layer", "head", missing_dims="ignore").values.tolist())


def _number(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def expected(dataset: xr.Dataset, text: Any = None, names: Any = None) -> list[str]:
    """Return the statements of each paper about a measured model and the tokens it learns from.

    Parameters
    ----------
    dataset : xarray.Dataset
        Result of `attnlab.observe`.
    text : array_like, optional
        Tokens that the model learns from; by default those of the dataset.
    names : tokenizer or sequence of str, optional
        A tokenizer, or the names of tokens in the order of their ids.

    Returns
    -------
    list of str
        Sentences; where a paper cannot tell, its reason.
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
        Result of `attnlab.tasks.text.estimate_classes`.

    Examples
    --------
    >>> from attnlab import observing
    >>> ids = [0, 2, 3, 1, 2, 4] * 20
    >>> found = observing.classes(ids, queries=1, following=2, context=3, min_count=2)
    >>> sorted(found.names[i] for i in found.next_token)
    ['token 3', 'token 4']
    """
    from attnlab.tasks.text.corpus import corpus_of_ids
    from attnlab.tasks.text.windows import estimate_classes  # imports JAX, which is slow

    corpus, _ = corpus_of_ids(ids, names=names, context=context)
    return estimate_classes(
        corpus, queries=queries, following=following, context=context, min_count=min_count
    )
