"""Fig. 12: recall of distinct tokens against the threshold, for several eta_Z."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from attnlab.figures.finding import Finding, Outcome
from attnlab.figures.recall import RecallRecipe, curves, draw_curves
from attnlab.sweep import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Recall of distinct tokens and eta_Z"
Recipe = RecallRecipe


def data(
    recipe: RecallRecipe, *, progress: Progress = False, keep: Path | None = None
) -> xr.Dataset:
    """recall over (num_last, eta_z, threshold); see `recall.curves`."""
    return curves(recipe, varied="eta_z", progress=progress, keep=keep)


def draw(recalls: xr.Dataset) -> Figure:
    """A panel for each num_last, a curve for each eta_Z."""
    fixed = rf"$\eta_Y/\eta_Z$ = {recalls.attrs['ratio']:g}"
    return draw_curves(recalls, varied="eta_z", symbol=r"$\eta_Z$", fixed=fixed)


def judge(recalls: xr.Dataset) -> Finding:
    """Does a larger eta_Z fall more slowly?"""
    fall = recalls["fall"]
    slower = fall.diff("eta_z") > 0  # each eta_Z against the next larger one
    rates = recalls["eta_z"].values
    first, last = fall.isel(eta_z=0), fall.isel(eta_z=-1)
    numbers = {
        "slower_with_larger_eta_z": float(slower.mean()),
        "fall_smallest_eta_z": float(first.mean()),
        "fall_largest_eta_z": float(last.mean()),
    }
    ends = "; ".join(
        f"{float(a):.2f} and {float(b):.2f} with {int(n)} {'query' if n == 1 else 'queries'}"
        for n, a, b in zip(recalls["num_last"].values, first.values, last.values, strict=True)
    )
    summary = (
        f"For recall to fall from 0.75 to 0.25 the threshold has to grow by a factor of, at "
        f"eta_Z = {rates[0]:g} and {rates[-1]:g}: {ends}. So a larger eta_Z falls more slowly; "
        f"neighbouring rates keep this order in {int(slower.sum())} of {slower.size} cases."
    )
    alt = (
        f"Recall of distinct tokens falls from 1 to 0 as the threshold grows past 1/M, in "
        f"{recalls.sizes['num_last']} panels. The factor over which it falls from 0.75 to 0.25, at "
        f"eta_Z {rates[0]:g} and {rates[-1]:g}: {ends}."
    )
    if slower.all():
        outcome = Outcome.REPRODUCED
    else:
        outcome = Outcome.PARTLY if bool((last > first).all()) else Outcome.DIFFERS
    headline = f"Neighbouring rates have this order in {int(slower.sum())} of {slower.size} cases."
    return Finding(outcome, headline, summary, alt, numbers)
