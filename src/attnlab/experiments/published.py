"""Published values: CSV files in a paper's folder `published/`."""

import csv
from pathlib import Path
from typing import Any


def published(module: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of published/NAME.csv; entries that read as numbers are numbers.

    A file's first line says, after a #, where its values come from.

    Parameters
    ----------
    module : str
        `__file__` of a figure of the paper.
    name : str
        Of the file, without its ending.
    """
    path = Path(module).parents[1] / "published" / f"{name}.csv"
    _, *lines = path.read_text(encoding="utf-8").splitlines()
    return [{key: _number(of) for key, of in row.items()} for row in csv.DictReader(lines)]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
