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
    """Return loss, both lines, attention to parents and recovery by seed and step, and the weights
    of the first seed at the end."""
    run = runs.full(recipe.task, steps=recipe.steps, seeds=recipe.seeds, batch=recipe.batch)
    result = simulate(run, progress=progress)
    found = runs.measured(result)[["parent_attention", "recovery", "excess"]]
    end = result.isel(seed=0, step=-1)
    S, wide = recipe.task.vocab_size, recipe.task.vocab_size + recipe.task.length
    output = end["parameters.output"].values
    return found.assign(
        loss=result["probe_loss"],
        counts=result["counts_loss"],
        released=result["released_loss"],
        A1=(("of_query", "of_key"), end["parameters.first"].values[0]),
        A2=(("asked", "read"), end["parameters.second"].values[0, :S, wide : wide + S]),
        W=(("read_by_2", "output"), output[2 * wide : 2 * wide + S]),
    ).assign_attrs(symbols=S)


def judge(found: xr.Dataset) -> Judgement:
    """Judge recovery, the excess over the count predictor, and the mass at the parent."""
    end = found.isel(step=-1)
    excess, start = mean(end["excess"].values), float(found["excess"].isel(step=0).mean())
    recovery = float(end["recovery"].mean())
    whole = (found["recovery"] == 1).all("seed").values
    near = excess.value < start / 10
    return TEXTS.judgement(
        Standing.of(near and excess.below(1e-3), near and recovery == 1),
        {
            "excess": excess,
            "excess_start": start,
            "parent_attention": mean(end["parent_attention"].values),
            "recovery": recovery,
            "recovered_at": float(found["step"][whole.argmax() if whole.any() else -1]),
            "released_gap": mean((end["released"] - end["counts"]).values),
        },
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw A_1, the blocks of A_2 and W, the loss with both lines, recovery and attention."""
    with style.page(5.4) as figure:
        halves: Any = figure.subfigures(2, 1)
        wide, curves = halves[0].subplots(1, 3), halves[1].subplots(1, 2)
        for ax, name in zip(wide, ("A1", "A2", "W"), strict=True):
            low, high = np.percentile(found[name], (15, 100))  # as published
            ax.imshow(found[name], cmap="Blues", vmin=low, vmax=high)
            ax.set(xticks=[], yticks=[])
        S = found.attrs["symbols"] - 0.5
        for line in (wide[0].axhline, wide[0].axvline):
            line(S, color=style.ACCENT, linewidth=0.8)
        wide[0].set(xlabel="key: tokens | positions", ylabel="query: tokens | positions")
        wide[1].set(xlabel="token read by layer 1", ylabel="test token")
        wide[2].set(xlabel="output", ylabel="token read by layer 2")
        step = found["step"]
        for ax, values, colour, label in (
            (curves[0], found["loss"] - found["counts"], style.DISTINCT, None),
            (curves[1], found["recovery"], style.OUTLINE, "recovery"),
            (curves[1], found["parent_attention"], style.DISTINCT, "attention to the parent"),
        ):
            draw_seeds(ax, step, values, color=colour, label=label, linewidth=0.8)
        gap = float((found["released"] - found["counts"]).mean())
        curves[0].axhline(0, color=style.OUTLINE, linewidth=0.8)
        curves[0].axhline(gap, color=style.ACCENT, linestyle=":", label="released count line")
        curves[0].legend()
        curves[0].set(xlabel="step", ylabel="loss - count predictor's")
        curves[1].set(xlabel="step", ylim=(0, 1.05))
        curves[1].legend(loc="lower right")
        titles = ["$A_1$", "$A_2$, tokens", "$W$, tokens", "loss", "recovery before mass"]
        style.panel_titles([*wide, *curves], titles)
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
