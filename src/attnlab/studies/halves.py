"""Halves: every number of a study, found again on each half of its seeds.

An error over a few seeds is itself a rough number, and often too small. The halves have no run in
common, so that they show it: where they differ by much more than their errors, or have no value,
there are too few seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import xarray as xr

from attnlab.figures.finding import Finding

MOST_APART = 3.0  # halves agree where they differ by no more errors than this

Numbers = Mapping[str, float]


def on_halves(judge: Callable[[xr.Dataset], Finding], runs: xr.Dataset) -> list[dict[str, float]]:
    """The numbers that `judge` finds on the first and on the second half of the seeds."""
    middle = runs.sizes["seed"] // 2
    return [
        dict(judge(runs.isel(seed=half)).numbers)
        for half in (slice(None, middle), slice(middle, None))
    ]


def apart(halves: Sequence[Numbers]) -> dict[str, float]:
    """How many errors the halves differ by, for each number that has an error."""
    first, second = halves
    found = {}
    for name in first:
        if f"{name}_error" in first:
            difference = abs(first[name] - second[name])
            error = math.hypot(first[f"{name}_error"], second[f"{name}_error"])
            found[name] = difference / error if error else math.inf if difference else 0.0
    return found


def unsettled(halves: Sequence[Numbers]) -> dict[str, float]:
    """The numbers in which the halves do not agree, with how many errors they differ by."""
    return {name: by for name, by in apart(halves).items() if not by <= MOST_APART}
