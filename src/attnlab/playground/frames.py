"""Frames: the numbers of a run, as the flat arrays that a browser plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.playground.prediction import fates
from attnlab.playground.run import Run
from attnlab.results import measures

CLAIMED = {1: "it gains", -1: "it loses", 0: "nothing"}
ACTUAL = {1: "it gained", -1: "it lost", 0: "it stayed"}


@dataclass(frozen=True, eq=False)
class ClassFrames:
    """One class: facts about the tokens that it draws, and attention and logits in each frame."""

    title: str
    facts: dict[str, Any]  # columns, one entry per token
    attention: NDArray[np.float64]  # (frame, token)
    logits: NDArray[np.float64]  # (frame, token)


def class_frames(run: Run, *, sequence_class: int, head: int) -> ClassFrames:
    """The frames of one class, its common tokens first."""
    result, classes = run.head(head), run.classes
    tokens = _tokens(run, sequence_class)
    query = int(classes.query[sequence_class])
    of_class = result.isel(sequence_class=sequence_class, token=tokens)
    attention = of_class["attention"].transpose(run.clock, "token").values.astype(np.float64)
    z = of_class["attention_logits"].sel(query=query).transpose(run.clock, "token")
    logits = z.values.astype(np.float64)
    columns = np.searchsorted(classes.in_play, tokens)
    claimed = fates(run.setting)[classes.query_index[sequence_class], columns]
    gain = logits[-1] - logits[0]
    facts = {
        "token": [classes.token_name(int(token)) for token in tokens],
        "common": run.is_common[tokens].tolist(),
        "probability": of_class["probability"].values.tolist(),
        "claimed": [CLAIMED[int(fate)] for fate in claimed],
        "actual": [f"{ACTUAL[int(np.sign(g))]} (z by {g:+.3g})" for g in gain],
    }
    following = classes.token_name(int(classes.next_token[sequence_class]))
    title = f"class {sequence_class}: query {classes.token_name(query)} → next {following}"
    return ClassFrames(title, facts, attention, logits)


def predicted(run: Run, path: xr.Dataset, *, sequence_class: int) -> NDArray[np.float64]:
    """Attention of one class on a path of the theory's, (frame, token) as in its frames."""
    columns = np.searchsorted(run.classes.in_play, _tokens(run, sequence_class))
    chosen = path["attention"].isel(sequence_class=sequence_class, token=columns)
    values: NDArray[np.float64] = chosen.transpose("time", "token").values
    return values


def traces(result: xr.Dataset) -> dict[str, NDArray[np.float64]]:
    """Entropy and common mass over time, means over classes; of a run, which recorded them, or of a
    path."""
    measured = {
        "entropy": result["entropy"] if "entropy" in result else measures.entropy(result),
        "common": (
            result["common_mass"] if "common_mass" in result else measures.common_mass(result)
        ),
    }
    return {
        name: values.mean("sequence_class").values.astype(np.float64)
        for name, values in measured.items()
    }


def _tokens(run: Run, sequence_class: int) -> NDArray[np.int64]:
    support = run.classes.support(sequence_class)
    order = np.argsort(~run.is_common[support], kind="stable")
    ordered: NDArray[np.int64] = support[order]
    return ordered
