"""Figures of the paper made again, and one of our own."""

from __future__ import annotations

import csv
from importlib import resources


def published(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of published values, whose first line says where they come from."""
    text = resources.files("attnlab.papers.linear_icl").joinpath("published", name).read_text()
    return list(csv.DictReader(text.splitlines()[1:]))
