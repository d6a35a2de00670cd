"""Figures of the max-margin papers, made again, and ours."""

from __future__ import annotations

import csv
from pathlib import Path

PUBLISHED = Path(__file__).parents[1] / "published"


def published(name: str) -> list[dict[str, str]]:
    """Return rows read off the released figures; a file's first line says how we know them."""
    lines = (PUBLISHED / f"{name}.csv").read_text().splitlines()
    return list(csv.DictReader(lines[1:]))
