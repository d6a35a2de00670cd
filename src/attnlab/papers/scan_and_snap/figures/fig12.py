"""Fig. 12: recall of distinct tokens against the threshold, for several eta_Z."""

from __future__ import annotations

from functools import partial

import xarray as xr

from attnlab.experiments import Experiment, Judgement
from attnlab.experiments.estimate import count_of
from attnlab.papers.scan_and_snap.figures import recall


def judge(recalls: xr.Dataset) -> Judgement:
    """Does a larger eta_Z fall more slowly?"""
    slower = recalls["fall"].diff("eta_z") > 0  # each eta_Z against the next larger one
    rates = recalls["eta_z"].values
    first, last, words, alt = recall.ends(recalls, varied="eta_z", name="eta_Z")
    numbers = {
        "slower_with_larger_eta_z": float(slower.mean()),
        "fall_smallest_eta_z": float(first.mean()),
        "fall_largest_eta_z": float(last.mean()),
    }
    summary = (
        f"For recall to fall from 0.75 to 0.25 the threshold has to grow by a factor of, at "
        f"eta_Z = {rates[0]:g} and {rates[-1]:g}: {words}. Neighbouring rates have the "
        f"paper's order in {count_of(slower)} cases."
    )
    headline = f"Neighbouring rates have this order in {count_of(slower)} cases."
    found = recall.outcome(slower, at_ends=last > first)
    return Judgement(found, headline, summary, alt, numbers)


EXPERIMENT = Experiment(
    name="fig12",
    kind="figure",
    title="Recall of distinct tokens and eta_Z",
    recipe=recall.RecallRecipe,
    judge=judge,
    data=partial(recall.curves, varied="eta_z"),
    draw=partial(recall.draw_curves, varied="eta_z"),
)
