"""The full model from zero: weights of both layers, and the loss with both lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean
from attnlab.experiments.drawing import draw_seeds
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs
from ..task import Forest

TEXTS = Texts.read(__file__)


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """task: what is learned. batch, steps: of training by SGD at learning rate 1 with cosine decay.
    seeds: of batches, and of random graphs."""

    task: Forest
    batch: int
    steps: int
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return the measures of the claims by seed and step, and weights of the first seed at the end:
    A_1, and the blocks of A_2 and W for tokens."""
    run = runs.full(recipe.task, steps=recipe.steps, seeds=recipe.seeds, batch=recipe.batch)
    result = simulate(run, progress=progress)
    end = result.isel(seed=0, step=-1)
    S, wide = recipe.task.vocab_size, recipe.task.vocab_size + recipe.task.length
    output = end["parameters.output"].values
    return runs.measured(result).assign(
        A1=(("of_query", "of_key"), end["parameters.first"].values[0]),
        A2=(("asked", "read"), end["parameters.second"].values[0, :S, wide : wide + S]),
        W=(("read_by_2", "output"), output[2 * wide : 2 * wide + S]),
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge recovery, the excess over the count predictor, and the mass at the parent."""
    end = found.isel(step=-1)
    excess, start = mean(end["excess"]), float(found["excess"].isel(step=0).mean())
    recovery = float(end["recovery"].mean())
    whole = (found["recovery"] == 1).all("seed").values
    near = excess.value < start / 10
    return TEXTS.judgement(
        Standing.of(near and excess.below(1e-3), near and recovery == 1),
        {
            "excess": excess,
            "excess_start": start,
            "parent_attention": mean(end["parent_attention"]),
            "recovery": recovery,
            "recovered_at": float(found["step"][whole.argmax() if whole.any() else -1]),
            "released_gap": mean(end["released_gap"]),
        },
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw A_1, the blocks of A_2 and W, the loss with both lines, recovery and attention."""
    with style.page(5.4) as figure:
        halves: Any = figure.subfigures(2, 1)
        weights, (loss, tree) = halves[0].subplots(1, 3), halves[1].subplots(1, 2)
        for ax, name in zip(weights, ("A1", "A2", "W"), strict=True):
            low, high = np.percentile(found[name], (15, 100))  # as published
            ax.imshow(found[name], cmap="Blues", vmin=low, vmax=high)
            ax.set(xticks=[], yticks=[])
        edge, look = found.sizes["asked"] - 0.5, {"color": style.ACCENT, "linewidth": 0.8}
        weights[0].axhline(edge, **look)
        weights[0].axvline(edge, **look)
        gap = float(found["released_gap"].mean())
        loss.axhline(gap, color=style.ACCENT, linestyle=":", label="released count line")
        loss.axhline(0, color=style.OUTLINE, linewidth=0.8)
        for ax, name, colour, label in (
            (loss, "excess", style.DISTINCT, None),
            (tree, "recovery", style.OUTLINE, "recovery"),
            (tree, "parent_attention", style.DISTINCT, "attention to the parent"),
        ):
            step = found["step"]
            draw_seeds(ax, step, found[name], label=label, color=colour, linewidth=0.8)
        loss.legend()
        tree.set_ylim(0, 1.05)
        tree.legend(loc="lower right")
        TEXTS.label([*weights, loss, tree])
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
