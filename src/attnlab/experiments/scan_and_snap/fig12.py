"""Fig. 12: recall of distinct tokens against the threshold, for several eta_Z."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from attnlab.experiments.base import Experiment, Judgement
from attnlab.experiments.recall import RecallRecipe, curves, draw_curves, ends, outcome
from attnlab.files.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def data(
    recipe: RecallRecipe, *, progress: Progress = False, keep: Path | None = None
) -> xr.Dataset:
    """recall over (num_last, eta_z, threshold); see `recall.curves`."""
    return curves(recipe, varied="eta_z", progress=progress, keep=keep)


def draw(recalls: xr.Dataset) -> Figure:
    """A panel for each num_last, a curve for each eta_Z."""
    fixed = rf"$\eta_Y/\eta_Z$ = {recalls.attrs['ratio']:g}"
    return draw_curves(recalls, varied="eta_z", symbol=r"$\eta_Z$", fixed=fixed)


def judge(recalls: xr.Dataset) -> Judgement:
    """Does a larger eta_Z fall more slowly?"""
    slower = recalls["fall"].diff("eta_z") > 0  # each eta_Z against the next larger one
    rates, at = recalls["eta_z"].values, ends(recalls, varied="eta_z", name="eta_Z")
    numbers = {
        "slower_with_larger_eta_z": float(slower.mean()),
        "fall_smallest_eta_z": float(at.first.mean()),
        "fall_largest_eta_z": float(at.last.mean()),
    }
    summary = (
        f"For recall to fall from 0.75 to 0.25 the threshold has to grow by a factor of, at "
        f"eta_Z = {rates[0]:g} and {rates[-1]:g}: {at.words}. Neighbouring rates have the "
        f"paper's order in {int(slower.sum())} of {slower.size} cases."
    )
    headline = f"Neighbouring rates have this order in {int(slower.sum())} of {slower.size} cases."
    found = outcome(slower, at_ends=at.last > at.first)
    return Judgement(found, headline, summary, at.alt, numbers)


EXPERIMENT = Experiment(
    name="fig12", kind="figure", title="Recall of distinct tokens and eta_Z",
    recipe=RecallRecipe, data=data, judge=judge, draw=draw,
)  # fmt: skip
