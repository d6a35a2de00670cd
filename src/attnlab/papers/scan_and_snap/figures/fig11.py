"""Fig. 11: recall of distinct tokens against the threshold, for several eta_Y / eta_Z."""

from __future__ import annotations

from functools import partial

import xarray as xr

from attnlab.experiments import Experiment, Judgement
from attnlab.experiments.estimate import count_of
from attnlab.papers.scan_and_snap.figures import recall


def judge(recalls: xr.Dataset) -> Judgement:
    """Does a smaller ratio fall more slowly?"""
    fall = recalls["fall"]
    slower = fall.diff("ratio") < 0  # each ratio against the next larger one
    beyond = fall.sel(ratio=slice(2, None)).diff("ratio") < 0
    ratios = recalls["ratio"].values
    first, last, words, alt = recall.ends(recalls, varied="ratio", name="ratio")
    numbers = {
        "slower_with_smaller_ratio": float(slower.mean()),
        "slower_with_smaller_ratio_from_2": float(beyond.mean()),
        "fall_smallest_ratio": float(first.mean()),
        "fall_largest_ratio": float(last.mean()),
    }
    summary = (
        f"For recall to fall from 0.75 to 0.25 the threshold has to grow by a factor of, at ratio "
        f"{ratios[0]:g} and {ratios[-1]:g}: {words}. Neighbouring ratios have the paper's order in "
        f"{count_of(slower)} cases, and from ratio 2 on, where Fig. 6 turns, in {count_of(beyond)}."
    )
    headline = (
        f"Neighbouring ratios have this order in {count_of(slower)} cases, and from ratio 2 on in "
        f"{count_of(beyond)}."
    )
    found = recall.outcome(slower, at_ends=first > last)
    return Judgement(found, headline, summary, alt, numbers)


EXPERIMENT = Experiment(
    name="fig11",
    kind="figure",
    title="Recall of distinct tokens and the ratio of the rates",
    recipe=recall.RecallRecipe,
    judge=judge,
    data=partial(recall.curves, varied="ratio"),
    draw=partial(recall.draw_curves, varied="ratio"),
)
