"""Fig. 1: merged linear attention and its MLP partner drop once, on top of each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import predict, simulate
from attnlab.experiments import Experiment, ExperimentRecipe, Judgement, Standing
from attnlab.files.progress import Progress
from attnlab.papers.linear_icl import theory
from attnlab.papers.linear_icl.figures import published
from attnlab.papers.linear_icl.runs import descent, half_times
from attnlab.papers.linear_icl.task import InContextRegression
from attnlab.plots import style

FAR = 0.1  # largest difference of the two curves that still counts as on top of each other
ON_TIME = 0.06  # of the predicted time of the drop


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """spectrum, examples, sequences: of the training set. heads, std, rate, steps: as the released
    code has them. every: steps from record to record. seeds: training sets and starts."""

    spectrum: tuple[float, ...]
    examples: int
    sequences: int
    heads: int
    std: float
    rate: float
    steps: int
    every: int
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return the loss over (curve, seed, step) of attention, of the MLP and as predicted.

    The MLP partner is attention with its label blocks held at zero, which is the same function.
    """
    task = InContextRegression(recipe.spectrum, recipe.examples, recipe.sequences)
    runs = {
        blocks: descent(
            task,
            std=recipe.std,
            rate=recipe.rate,
            steps=recipe.steps,
            every=recipe.every,
            seeds=recipe.seeds,
            heads=recipe.heads,
            blocks=blocks,
        )
        for blocks in (True, False)
    }
    curves = {
        "attention": simulate(runs[True], progress=False),
        "MLP": simulate(runs[False], progress=False),
        "one head": predict(runs[True], theory="icl-one-head"),
    }
    one = theory.Regression(task.spectrum, task.examples)
    halves = {name: half_times(curves[name]) for name in ("attention", "one head")}
    return xr.Dataset(
        {
            "loss": xr.concat([of["loss"] for of in curves.values()], "curve"),
            "half": xr.concat(list(halves.values()), xr.DataArray([*halves], dims="timed")),
            "level": ("plateau", theory.plateau_losses(one)[[0, -1]]),
        },
        {"curve": list(curves), "timed": list(halves)},
    )


def draw(curves: xr.Dataset) -> Figure:
    """Draw losses of all seeds, the prediction and the published values."""
    looks: dict[str, dict[str, Any]] = {
        "attention": {"color": style.DISTINCT, "linewidth": 1.2},
        "MLP": {"color": style.COMMON, "linewidth": 1.2, "linestyle": (0, (3, 2))},
        "one head": {"color": style.OUTLINE, "linewidth": 1, "linestyle": ":"},
    }
    labels = {"one head": "predicted, nothing fitted"}
    with style.page(2.9) as figure:
        ax = figure.subplots()
        for name, look in looks.items():
            for seed, of in enumerate(curves["loss"].sel(curve=name).transpose("seed", "step")):
                ax.plot(of["step"], of, label=labels.get(name, name) if not seed else None, **look)
        rows = published("fig1.csv")
        points = ([float(row[name]) for row in rows] for name in ("step", "loss"))
        ax.plot(*points, "kx", label="published", zorder=5)
        for level in curves["level"].values:
            ax.axhline(level, color="0.85", linewidth=0.8, zorder=0)
        ax.set(xlabel="step", ylabel="loss", ylim=(0, None))
        style.legend_above(figure, ax)
    return figure


def judge(curves: xr.Dataset) -> Judgement:
    """Do the two fall together, once, and when the theory says?"""
    loss = curves["loss"].transpose("curve", "seed", "step")
    apart = float(abs(loss.sel(curve="attention") - loss.sel(curve="MLP")).max())
    half, said = (curves["half"].sel(timed=name).values for name in ("attention", "one head"))
    numbers = {
        "attention_from_mlp": apart,
        "half_step": float(half.mean()),
        "half_over_predicted": float(np.mean(half / said)),
        "last_loss": float(loss.sel(curve="attention").isel(step=-1).mean()),
    }
    headline = (
        f"Attention and its MLP partner differ by at most {apart:.3f} in loss; half of the drop is "
        f"at step {half.mean():.0f} (mean of {half.size} seeds), "
        f"{numbers['half_over_predicted']:.3f} of the predicted time."
    )
    summary = (
        f"{headline} The loss ends at {numbers['last_loss']:.3f}. With label blocks held at zero "
        "attention is the MLP; a finite training set moves them, and they make the difference."
    )
    alt = (
        "Loss against step: a plateau at 1, a steep drop, a slow tail to "
        f"{numbers['last_loss']:.2f}; attention, MLP and prediction lie on each other."
    )
    on_time = bool(np.abs(half / said - 1).max() < ON_TIME)
    standing = Standing.of(apart < FAR and on_time, apart < FAR or on_time)
    return Judgement(standing, headline, summary, alt, numbers)


EXPERIMENT = Experiment(
    name="drop",
    kind="figure",
    title="One drop: merged attention and its MLP partner",
    recipe=Recipe,
    data=data,
    judge=judge,
    draw=draw,
    source="the paper, Fig. 1",
)
