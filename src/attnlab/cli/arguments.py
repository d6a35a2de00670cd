"""Arguments that several commands take: names on the shelf, numbers, files to be written."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from attnlab.files.errors import InputError
from attnlab.shelf import offered, shelf

# Read from each paper.yaml: help and completion import no paper and no JAX.
PAPERS = tuple(paper.name for paper in shelf().papers)
PRESETS = (
    *offered("presets"),
    "family",
    "single-common",
    "symmetric",
    "local-common",
    "zipf",
    "random",
)
MODELS = ("pairwise", "embedded", "extended", *offered("models"))
THEORIES = tuple(offered("theories"))
PRESET = PRESETS[0]  # of examples in help texts
PICTURES = (".png", ".pdf", ".svg")
FIGURES = tuple(offered("figures"))
WITH_FIGURES = tuple(dict.fromkeys(name.partition("/")[0] for name in FIGURES))
_SHORT = [name.partition("/")[2] for name in FIGURES]
_OWN = [name for name in _SHORT if _SHORT.count(name) == 1]  # of one paper alone
PARTS = (*WITH_FIGURES, *_OWN, "audit", "report", *FIGURES)
# The words that a shell completes, by the name of the parameter.
COMPLETED = {"given": PRESETS, "theory": THEORIES, "paper": PAPERS, "what": PAPERS, "parts": PARTS}
HELP_WORDS = {
    "preset": PRESET,
    "presets": ", ".join(PRESETS),
    "models": ", ".join(MODELS),
    "theory": THEORIES[0],
    "theories": ", ".join(THEORIES),
    "papers": ", ".join(WITH_FIGURES),
}


def completing(*words: str) -> Callable[[str], list[str]]:
    """Return a function that completes a word for a shell, from these words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def number(name: str, text: str) -> float:
    """Return the number that a text stands for; `name` is the option."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name}: expected a number, got {text!r}") from None


def numbers(name: str, text: str) -> list[float]:
    """Return the numbers in a text, with commas between them."""
    return [number(name, part) for part in text.split(",")]


def check_writable(path: Path | None, endings: tuple[str, ...], field: str) -> None:
    """Refuse a file that could not be written, before the work starts."""
    if path is None:
        return
    if path.suffix not in endings:
        raise InputError(f"{field}: the name should end in {' or '.join(endings)}, got {path}")
    if not path.parent.is_dir():
        raise InputError(f"{field}: the folder {path.parent} does not exist")
    try:
        with suppress(FileNotFoundError):
            os.stat(path)
    except OSError as problem:  # no such name can be: too long, say, or a link to itself
        raise InputError(f"{field}: {path}: {problem.strerror}") from None
