"""Experiments: the figures of papers, made again, and studies; one file each, one protocol.

    from attnlab.experiments import experiment, recipe_for, run

    fig9 = experiment("fig9")
    curves = fig9.data(recipe_for("fig9"))    # a labelled dataset
    fig9.draw(curves).savefig("fig9.png")     # a matplotlib figure
    print(fig9.judge(curves).summary)         # what it says about the claim

    run(fig9, recipe_for("fig9"), out="out")  # all of it, as files in a folder of its paper

Where several papers have a figure of one name, say "paper/figure". An experiment of your own is an
`Experiment` as well (docs/guides/own_paper.md).
"""

from attnlab.experiments.base import Experiment, Judgement, Standing, Table
from attnlab.experiments.catalogue import experiment, figures, recipe_for
from attnlab.experiments.estimate import (
    Estimate,
    Share,
    apart,
    jackknife,
    mean,
    on_halves,
    share,
    unsettled,
)
from attnlab.experiments.made import Made
from attnlab.experiments.recipe import ExperimentRecipe, SimulationRecipe, StudyRecipe
from attnlab.experiments.run import run

__all__ = [
    "Estimate", "Experiment", "ExperimentRecipe", "Judgement", "Made", "Share", "SimulationRecipe",
    "Standing", "StudyRecipe", "Table", "apart", "experiment", "figures", "jackknife", "mean",
    "on_halves", "recipe_for", "run", "share", "unsettled",
]  # fmt: skip
