"""Frames: the numbers of a run, as the flat arrays that a browser plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.figures import style
from attnlab.playground.prediction import fates
from attnlab.playground.run import Run
from attnlab.results import measures, roles

FATES = {1: "gains", -1: "loses", 0: "no claim"}


@dataclass(frozen=True, eq=False)
class ClassFrames:
    """One class: facts about the tokens that it draws, and attention and logits in each frame."""

    title: str
    facts: dict[str, Any]  # columns, one entry per token
    attention: NDArray[np.float64]  # (frame, token)
    logits: NDArray[np.float64]  # (frame, token)
    predicted: NDArray[np.float64]  # (frame, token), of attention; nan without a prediction


def class_frames(
    run: Run, *, sequence_class: int, head: int, path: xr.Dataset | None
) -> ClassFrames:
    """The frames of one class, its common tokens first."""
    result, classes = run.head(head), run.classes
    common = roles.is_common(result).values
    support = classes.support(sequence_class)
    tokens = support[np.argsort(~common[support], kind="stable")]
    query = int(classes.query[sequence_class])
    of_class = result.isel(sequence_class=sequence_class, token=tokens)
    attention = of_class["attention"].transpose(run.clock, "token").values.astype(np.float64)
    z = of_class["attention_logits"].sel(query=query).transpose(run.clock, "token")
    logits = z.values.astype(np.float64)
    predicted = np.full(attention.shape, np.nan)
    columns = np.searchsorted(classes.in_play, tokens)
    if path is not None:
        chosen = path["attention"].isel(sequence_class=sequence_class, token=columns)
        predicted = chosen.transpose("time", "token").values
    claimed = fates(run.setting)[classes.query_index[sequence_class], columns]
    gain = logits[-1] - logits[0]
    facts = {
        "x": np.arange(tokens.size),
        "token": [classes.token_name(int(token)) for token in tokens],
        "role": ["common" if common[token] else "distinct" for token in tokens],
        "colour": [style.COMMON if common[token] else style.DISTINCT for token in tokens],
        "probability": of_class["probability"].values,
        "claimed": [FATES[int(fate)] for fate in claimed],
        "actual": [f"{FATES[int(np.sign(g))] if g else 'stays'} (z by {g:+.3g})" for g in gain],
    }
    following = classes.token_name(int(classes.next_token[sequence_class]))
    title = f"class {sequence_class}: query {classes.token_name(query)} → next {following}"
    return ClassFrames(title, facts, attention, logits, predicted)


def traces(run: Run, *, head: int, path: xr.Dataset | None) -> dict[str, NDArray[np.float64]]:
    """Columns over the moments of a run, means over classes; nan without a prediction.

    x is the moment on a logarithmic axis, where the start stands at half the first one after it.
    """
    result, moments = run.head(head), run.moments
    columns = {
        "moment": moments,
        "x": np.where(moments > 0, moments, moments[1] / 2),
        "loss": result["loss"].values.astype(np.float64),
    }
    for name, measure in (("entropy", measures.entropy), ("common", measures.common_mass)):
        columns[name] = measure(result).mean("sequence_class").values
        columns[f"{name}_theory"] = (
            np.full(moments.size, np.nan)
            if path is None
            else measure(path).mean("sequence_class").values
        )
    return columns
