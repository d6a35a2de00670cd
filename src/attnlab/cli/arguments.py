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
    *offered("presets"), "family", "single-common", "symmetric", "local-common", "zipf", "random",
)  # fmt: skip
MODELS = ("pairwise", "embedded", "extended", *offered("models"))
THEORIES = tuple(offered("theories"))
PRESET = PRESETS[0]  # of examples in help texts
PICTURES = (".png", ".pdf", ".svg")


def completing(*words: str) -> Callable[[str], list[str]]:
    """For a shell: those of the words that begin as what was typed does."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def number(name: str, text: str) -> float:
    """A number; `name` is the option it was given for."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name}: expected a number, got {text!r}") from None


def numbers(name: str, text: str) -> list[float]:
    """Numbers with commas between them."""
    return [number(name, part) for part in text.split(",")]


def check_writable(path: Path | None, endings: tuple[str, ...], field: str) -> None:
    """Refuse before the work starts what could not be written after it."""
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
