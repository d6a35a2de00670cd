"""Report: one self-contained page about a model's attention.

Numbers are prepared here, as plain lists; the page's own script draws them.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import __version__
from attnlab.files.atomic import write_text
from attnlab.files.errors import visible
from attnlab.files.markdown import raw_template
from attnlab.observing.layer_statistics import LABELS, Label
from attnlab.observing.roles import BAND, ROLES
from attnlab.observing.snap import SNAPPED, STATES
from attnlab.observing.words import POLICY_WORDS, SNAP, in_words, snap_is_sure, with_steps
from attnlab.shelf import single

if TYPE_CHECKING:
    from attnlab.tasks.classes import SequenceClasses

MOST_BYTES = 2_200_000  # of curves on a page, which leaves out steps of longer histories
LEVELS = 2**16 - 2  # of a number on a page; one more stands for NaN
DIGITS = 4
MOST_TOKENS = 96  # of a sequence whose attention weights are drawn

ROLE = ("head_role", "role_score", "role_onset", "role_onset_low", "role_onset_high")
ROLE_COLUMNS = ("role", "score", "since step", "interval")
ROLE_NOTE = (
    "What each head does at the end, with its score and the step since which it does so: "
    + "; ".join(f"{name}: heads that {role.meaning}" for name, role in ROLES.items())
    + ". Intervals are over sequences of the probe."
)
SNAP_COLUMNS: tuple[str, ...] = ("state", "snap step", "90 % interval", "resamples without (%)")
SNAP_COLUMNS += ("speed left", "moved since")
SNAP_NOTE = (
    "A head has snapped from the step on at which its attention changes at less than 2 % of its "
    "fastest, per learning rate, over at least three equal spans that hold at least a tenth of all "
    "learning rate spent. The 90 % interval is over resamples of the probe's sequences in this one "
    "training, and never narrower than a span; a snap is claimed where at most 5 % of the "
    "resamples have none. Speed left: in the last span, over the fastest. Moved since: the most "
    "attention that can have gone elsewhere after the snap."
)
CACHE_NOTE = (
    "Share of the attention of the last queries that each policy keeps in a cache of this size, "
    "and the relative error of the attention output."
)


def report(
    dataset: xr.Dataset,
    path: str | Path | None = None,
    *,
    theory: Sequence[str] = (),
    maps: Sequence[xr.DataArray] = (),
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
    maps : sequence of xarray.DataArray, optional
        Results of `head_map`, to be drawn with their tokens, the first 96 of a sequence.

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
        data=page_data(dataset) | {"maps": [_drawn_map(one) for one in maps]},
        caches=cache_table(dataset),
        lint=json.loads(dataset.attrs["lint"]) if "lint" in dataset.attrs else None,
        settings=_settings(dataset, spec),
    )
    if path is not None:
        write_text(path, page)
    return page


def page_data(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the data of the page's script: statistics over (step, layer, head), packed, and tables
    of heads."""
    there = [label for name, label in LABELS.items() if label.title and name in dataset]
    arrays = len(there) + sum(_error(dataset, label) is not None for label in there)
    of_step = arrays * dataset.sizes["layer"] * dataset.sizes["head"] * 2 * 4 / 3  # in base64
    number = dataset.sizes["step"]
    most = min(number, max(2, int(MOST_BYTES // of_step)))
    kept = np.unique(np.linspace(0, number - 1, most).round().astype(int))
    some = dataset.isel(step=kept)
    modules = some["module"].values.tolist() if "module" in some.coords else []
    snaps = None
    if "snap_step" in dataset:
        snaps = [[_number(one) for one in row] for row in dataset["snap_step"].values]
    return {
        "steps": some["step"].values.tolist(),
        "left_out": int(number - kept.size),
        "layers": dataset.sizes["layer"],
        "heads": dataset.sizes["head"],
        "modules": [str(module) for module in modules],
        "statistics": [_drawn(some, label) for label in there],
        "snaps": snaps,
        "tables": [table for table in tables(dataset) if table["rows"]],
    }


def tables(dataset: xr.Dataset) -> Iterator[dict[str, Any]]:
    """Yield the tables of heads at the last step: roles, snaps, and caches by budget."""
    last = dataset.isel(step=-1)
    heads = [(layer, head) for layer, head in np.argwhere(last["entropy"].notnull().values)]
    names = [[str(int(dataset["layer"][at[0]])), str(int(dataset["head"][at[1]]))] for at in heads]

    def table(
        title: str, note: str, columns: Sequence[str], cells: Callable[[Any], list[str]]
    ) -> dict[str, Any]:
        rows = [[*name, *cells(at)] for name, at in zip(names, heads, strict=True)]
        return {"title": title, "note": note, "columns": ["layer", "head", *columns], "rows": rows}

    yield table("Roles", ROLE_NOTE, ROLE_COLUMNS, partial(_role_cells, _arrays(last, ROLE)))
    if "snap_state" in dataset:
        arrays = _arrays(dataset, ("snap_state", *SNAP)) | {"sure": snap_is_sure(dataset)}
        yield table("Snaps", SNAP_NOTE, SNAP_COLUMNS, partial(_snap_cells, arrays))
    if "retained_mass" not in dataset:
        return
    kept = last[[name for name in ("retained_mass", "output_error") if name in dataset]]
    columns = [
        f"{policy}{'' if name == 'retained_mass' else ': error'}"
        for policy in kept["policy"].values
        for name in kept
    ]
    for budget in kept["budget"].values:
        one = kept.sel(budget=budget).transpose("layer", "head", "policy")
        both = np.stack([values.values for values in one.values()], axis=-1)  # layer head policy 2
        yield table(
            f"KV cache of {100 * float(budget):g} %",
            CACHE_NOTE,
            columns,
            partial(_cache_cells, both),
        )


def _arrays(dataset: xr.Dataset, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    return {name: dataset[name].transpose("layer", "head", ...).values for name in names}


def _role_cells(arrays: Mapping[str, NDArray[Any]], at: Any) -> list[str]:
    role = int(arrays["head_role"][at])
    if role < 0:
        return ["none", "–", "–", "–"]
    score, since, low, high = (_number(float(arrays[name][at][role])) for name in ROLE[1:])
    return [list(ROLES)[role], short(score), short(since), _between(low, high)]


def _snap_cells(arrays: Mapping[str, NDArray[Any]], at: Any) -> list[str]:
    step, low, high, missing, left, since = (_number(float(arrays[name][at])) for name in SNAP)
    state = int(arrays["snap_state"][at])
    doubt = " (not claimed)" if state == SNAPPED and not arrays["sure"][at] else ""
    interval = _between(low, high) if step is not None else short(None)
    share = short(None if missing is None else 100 * missing)
    return [STATES[state] + doubt, short(step), interval, share, short(left), short(since)]


def _cache_cells(values: NDArray[Any], at: Any) -> list[str]:
    return [short(_number(float(value))) for value in values[at].ravel()]


def _between(low: float | None, high: float | None) -> str:
    return short(None) if low is None or high is None else f"{short(low)} to {short(high)}"


def cache_table(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return means over heads at the end: the mass that each policy keeps at each budget."""
    if "retained_mass" not in dataset:
        return []
    names = [name for name in ("retained_mass", "output_error") if name in dataset]
    last = dataset[names].isel(step=-1, drop=True).mean(("layer", "head"))
    frame = last.to_dataframe(["policy", "budget"]).reset_index().astype(object)
    rows = frame.where(frame.notnull(), None).to_dict("records")
    by_policy = itertools.groupby(rows, lambda cell: cell["policy"])
    return [{"policy": POLICY_WORDS[name], "cells": list(cells)} for name, cells in by_policy]


def short(value: float | None) -> str:
    """Return a number in three digits; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _drawn(dataset: xr.Dataset, label: Label) -> dict[str, Any]:
    values, error = dataset[label.name].sel(label.entry), _error(dataset, label)
    return {
        "name": label.name,
        "title": label.title,
        "meaning": str(values.attrs.get("long_name", label.title)),
        "values": packed(values.transpose("step", "layer", "head")),
        "band": None if error is None else packed(BAND * error.transpose("step", "layer", "head")),
    }


def _drawn_map(one: xr.DataArray) -> dict[str, Any]:
    """Return the start of a map of attention weights, over query and key."""
    some = one.isel(query=slice(MOST_TOKENS), key=slice(MOST_TOKENS))
    words = [visible(str(word)) for word in some["word"].values]
    return {"title": one.attrs["long_name"], "words": words, "values": packed(some)}


def _error(dataset: xr.Dataset, label: Label) -> xr.DataArray | None:
    """Return the standard error of a statistic, if there is one; that over sequences includes that
    of sampled rows."""
    errors = (f"{label.name}_sequence_se", f"{label.name}_se")
    error = next((dataset[name].sel(label.entry) for name in errors if name in dataset), None)
    return error if error is not None and bool((error > 0).any()) else None


def packed(values: xr.DataArray) -> dict[str, Any]:
    """Return numbers as 16 bits each, from `low` to `high`."""
    numbers = values.values.astype(np.float64)
    finite = np.isfinite(numbers)
    low, high = (float(end(numbers[finite])) if finite.any() else 0.0 for end in (np.min, np.max))
    share = (np.where(finite, numbers, low) - low) / ((high - low) or 1.0)
    levels = np.where(finite, np.round(LEVELS * share), LEVELS + 1).astype("<u2")
    return {"low": low, "high": high, "data": base64.b64encode(levels.tobytes()).decode()}


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
