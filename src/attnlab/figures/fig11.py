"""Fig. 11: recall of distinct tokens against the threshold, for several eta_Y / eta_Z."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from attnlab.figures.finding import Finding, Outcome
from attnlab.figures.recall import RecallRecipe, curves, draw_curves
from attnlab.sweep import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Recall of distinct tokens and the ratio of the rates"
Recipe = RecallRecipe


def data(
    recipe: RecallRecipe, *, progress: Progress = False, keep: Path | None = None
) -> xr.Dataset:
    """recall over (num_last, ratio, threshold); see `recall.curves`."""
    return curves(recipe, varied="ratio", progress=progress, keep=keep)


def draw(recalls: xr.Dataset) -> Figure:
    """A panel for each num_last, a curve for each ratio."""
    fixed = rf"$\eta_Z$ = {recalls.attrs['eta_z']:g}"
    return draw_curves(recalls, varied="ratio", symbol=r"$\eta_Y/\eta_Z$", fixed=fixed)


def judge(recalls: xr.Dataset) -> Finding:
    """Does a smaller ratio fall more slowly?"""
    fall = recalls["fall"]
    slower = fall.diff("ratio") < 0  # each ratio against the next larger one
    beyond = fall.sel(ratio=slice(2, None)).diff("ratio") < 0
    ratios = recalls["ratio"].values
    first, last = fall.isel(ratio=0), fall.isel(ratio=-1)
    numbers = {
        "slower_with_smaller_ratio": float(slower.mean()),
        "slower_with_smaller_ratio_from_2": float(beyond.mean()),
        "fall_smallest_ratio": float(first.mean()),
        "fall_largest_ratio": float(last.mean()),
    }
    ends = "; ".join(
        f"{float(a):.2f} and {float(b):.2f} with {int(n)} {'query' if n == 1 else 'queries'}"
        for n, a, b in zip(recalls["num_last"].values, first.values, last.values, strict=True)
    )
    summary = (
        f"For recall to fall from 0.75 to 0.25 the threshold has to grow by a factor of, at ratio "
        f"{ratios[0]:g} and {ratios[-1]:g}: {ends}. So the smallest ratio falls more slowly than "
        f"the largest. Neighbouring ratios keep this order in {int(slower.sum())} of "
        f"{slower.size} cases, and from ratio 2 on in {int(beyond.sum())} of {beyond.size}: below "
        f"ratio 2 the order is not general, as in Fig. 6."
    )
    alt = (
        f"Recall of distinct tokens falls from 1 to 0 as the threshold grows past 1/M, in "
        f"{recalls.sizes['num_last']} panels. The factor over which it falls from 0.75 to 0.25, at "
        f"ratio {ratios[0]:g} and {ratios[-1]:g}: {ends}."
    )
    if slower.all():
        outcome = Outcome.REPRODUCED
    else:
        outcome = Outcome.PARTLY if bool((first > last).all()) else Outcome.DIFFERS
    headline = (
        f"Neighbouring ratios have this order in {int(slower.sum())} of {slower.size} cases, and "
        f"from ratio 2 on in {int(beyond.sum())} of {beyond.size}."
    )
    return Finding(outcome, headline, summary, alt, numbers)
