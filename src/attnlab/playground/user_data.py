"""Classes of one's own: a file, or probabilities changed by hand. Both are data, never code."""

from __future__ import annotations

import json
from pathlib import PurePath

import numpy as np

from attnlab.data import SequenceClasses
from attnlab.data.class_files import format_classes, parse_classes
from attnlab.files.documents import SUFFIXES
from attnlab.files.errors import InputError
from attnlab.playground.setting import MOST_WRITTEN, REMEDY

MOST_EDITED = 400  # probabilities that fit in a table on the page


def written(classes: SequenceClasses) -> str:
    """Classes as the compact text that a setting carries, and a link where they are few."""
    return json.dumps(json.loads(format_classes(classes)), separators=(",", ":"))


def from_file(name: str, text: str) -> str:
    """The classes in a YAML or JSON file that a person chose, as a setting carries them."""
    suffix = PurePath(name).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{name}: files of sequence classes end in {', '.join(SUFFIXES)}")
    if len(text) > MOST_WRITTEN:
        raise InputError(
            f"{name}: {len(text):,} characters; the playground takes up to {MOST_WRITTEN:,}. "
            f"{REMEDY}"
        )
    try:
        return written(parse_classes(text, suffix=suffix))
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def with_probability(
    classes: SequenceClasses, *, sequence_class: int, token: int, probability: float
) -> SequenceClasses:
    """The classes with one P(l|n) changed; the other tokens of the class share what is left."""
    if not 0 <= probability <= 1:
        raise InputError(f"probability: expected from 0 to 1, got {probability:g}")
    probs = classes.probs
    row = probs[sequence_class]
    rest = 1 - row[token]
    if rest <= 0 and probability < 1:
        raise InputError(
            f"probability: token {classes.token_name(token)} is the only one of class "
            f"{sequence_class}; give another token some first"
        )
    row *= (1 - probability) / rest if rest > 0 else 0.0
    row[token] = probability
    row /= row.sum()
    return SequenceClasses(
        probs, classes.query, classes.next_token, classes.prior, names=classes.names
    )


def editable(classes: SequenceClasses) -> bool:
    """Whether the probabilities fit in a table on the page."""
    return len(classes) * classes.in_play.size <= MOST_EDITED


def columns(classes: SequenceClasses) -> list[list[float]]:
    """P(l|n) of the contextual tokens, class by class, rounded to be read."""
    return np.round(classes.probs[:, classes.in_play], 5).tolist()
