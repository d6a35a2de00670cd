"""Arguments that several verbs take: numbers, lists of them, files to be written."""

from __future__ import annotations

from pathlib import Path

PICTURES = (".png", ".pdf", ".svg")


def number(name: str, text: str) -> float:
    """A number; `name` is the option it was given for."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name}: expected a number, got {text!r}") from None


def numbers(name: str, text: str) -> list[float]:
    """Numbers with commas between them."""
    return [number(name, part) for part in text.split(",")]


def check_writable(path: Path | None, endings: tuple[str, ...], field: str) -> None:
    """Refuse before the work starts what could not be written after it."""
    if path is None:
        return
    if path.suffix not in endings:
        raise ValueError(f"{field}: the name should end in {' or '.join(endings)}, got {path}")
    if not path.parent.is_dir():
        raise ValueError(f"{field}: the folder {path.parent} does not exist")
