"""Frames: the numbers of a run, as the flat arrays that a browser plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import measures
from attnlab.data import SequenceClasses
from attnlab.playground.prediction import fates
from attnlab.playground.run import Run

CLAIMED = {1: "it gains", -1: "it loses", 0: "nothing"}
ACTUAL = {1: "it gained", -1: "it lost", 0: "it stayed"}
ROOM = 80  # tokens of a class that are all drawn: as many as the controls offer
STRONGEST = 24  # tokens drawn of a larger class, so that each has room for its name


@dataclass(frozen=True, eq=False)
class ClassFrames:
    """One class: facts about the tokens that are shown, and attention and logits in each frame."""

    title: str
    note: str  # what share of the class is shown; nothing where all of it is
    facts: dict[str, Any]  # columns, one entry per token
    attention: NDArray[np.float64]  # (frame, token)
    logits: NDArray[np.float64]  # (frame, token)


def shown_tokens(runs: Sequence[Run], *, sequence_class: int, head: int) -> NDArray[np.int64]:
    """The tokens of a class that are shown, its common ones first: all of them, or of very many
    those that are attended most at some moment. `runs` are to be shown alike."""
    tokens = runs[0].classes.support(sequence_class)
    if tokens.size > ROOM:
        most = np.max([_attention(run, tokens, sequence_class, head).max(0) for run in runs], 0)
        tokens = tokens[np.sort(np.argsort(-most, kind="stable")[:STRONGEST])]
    ordered: NDArray[np.int64] = tokens[np.argsort(~runs[0].is_common[tokens], kind="stable")]
    return ordered


def class_title(classes: SequenceClasses, sequence_class: int) -> str:
    """A class in words."""
    query, following = (
        classes.token_name(int(of[sequence_class])) for of in (classes.query, classes.next_token)
    )
    return f"class {sequence_class}: query {query} → next {following}"


def class_frames(
    run: Run, tokens: NDArray[np.int64], *, sequence_class: int, head: int
) -> ClassFrames:
    """The frames of these tokens of one class."""
    result, classes = run.head(head), run.classes
    query = int(classes.query[sequence_class])
    of_class = result.isel(sequence_class=sequence_class, token=tokens)
    attention = _attention(run, tokens, sequence_class, head)
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
    size = classes.support(sequence_class).size
    note = ""
    if tokens.size < size:
        start, end = attention[[0, -1]].sum(1)
        note = (
            f"{tokens.size} of {size:,} tokens, the most attended: {100 * start:.0f} % of "
            f"attention, in the end {100 * end:.0f} %"
        )
    return ClassFrames(class_title(classes, sequence_class), note, facts, attention, logits)


def predicted(
    run: Run, path: xr.Dataset, tokens: NDArray[np.int64], *, sequence_class: int
) -> NDArray[np.float64]:
    """Attention of one class on a path of the theory's, (frame, token) as in its frames."""
    chosen = path["attention"].isel(sequence_class=sequence_class, token=tokens)
    values: NDArray[np.float64] = chosen.transpose(run.clock, "token").values
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


def _attention(
    run: Run, tokens: NDArray[np.int64], sequence_class: int, head: int
) -> NDArray[np.float64]:
    """Attention of one class, (frame, token)."""
    of_class = run.head(head)["attention"].isel(sequence_class=sequence_class, token=tokens)
    values: NDArray[np.float64] = of_class.transpose(run.clock, "token").values.astype(np.float64)
    return values
