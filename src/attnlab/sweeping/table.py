"""table.csv: a row for each cell of a sweep."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.sweeping.index import Index


def table(index: Index, numbers: Mapping[str, NDArray[np.float64]]) -> str:
    """Return CSV text: the swept values, the numbers of runs that finished and failed, and every
    summary number as its mean and sample standard deviation over the seeds that finished."""
    finished = index.finished()
    counts = finished.sum(axis=2)
    columns: dict[str, NDArray[Any]] = {"seeds": counts, "failed": finished.shape[2] - counts}
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.filterwarnings("ignore", category=RuntimeWarning)  # cells without a number
        for name, values in numbers.items():
            kept = np.where(finished, values, np.nan)
            columns[f"{name}_mean"] = np.nanmean(kept, axis=2)
            columns[f"{name}_std"] = np.nanstd(kept, axis=2, ddof=1)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*index.settings, *index.cells, *columns])
    flat = [column.ravel() for column in columns.values()]
    swept = product(*index.settings.values(), *index.cells.values())
    for parameters, row in zip(swept, zip(*flat, strict=True), strict=True):
        writer.writerow([*parameters, *map(_cell, row)])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.8g}"
    return int(value)
