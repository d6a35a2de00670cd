"""Fig. 1: merged linear attention and its MLP partner drop once, on top of each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import predict, simulate
from attnlab.experiments import Judgement, Standing, published
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from .. import theory
from ..runs import crossed, gone
from ..task import InContextRegression
from . import DescentRecipe

TEXTS = Texts.read(__file__)

FAR = 0.1  # largest difference of the two curves that still counts as on top of each other
ON_TIME = 0.06  # of the predicted time of the drop


@dataclass(frozen=True, kw_only=True)
class Recipe(DescentRecipe):
    """spectrum, examples: of the training set."""

    spectrum: tuple[float, ...]
    examples: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return the loss over (curve, seed, step) of attention, of the MLP and as predicted.

    The MLP partner is attention with its label blocks held at zero, which is the same function.
    """
    task = InContextRegression(recipe.spectrum, recipe.examples, recipe.sequences)
    trained = simulate(recipe.descent(task, partner=True), progress=False)
    curves = {
        "attention": trained.sel(blocks=True, drop=True),
        "MLP": trained.sel(blocks=False, drop=True),
        "one head": predict(recipe.descent(task), theory="icl-one-head"),
    }
    halves = {name: crossed(gone(curves[name])) for name in ("attention", "one head")}
    return xr.Dataset(
        {
            "loss": xr.concat([of["loss"] for of in curves.values()], "curve"),
            "half": xr.concat(list(halves.values()), xr.DataArray([*halves], dims="timed")),
            "level": ("plateau", theory.plateau_losses(task.regression)[[0, -1]]),
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
        rows = published(__file__, "fig1")
        points = ([row[name] for row in rows] for name in ("step", "loss"))
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
    on_time = bool(np.abs(half / said - 1).max() < ON_TIME)
    return TEXTS.judgement(
        Standing.of(apart < FAR and on_time, apart < FAR or on_time),
        {
            "attention_from_mlp": apart,
            "half_step": float(half.mean()),
            "half_over_predicted": float(np.mean(half / said)),
            "last_loss": float(loss.sel(curve="attention").isel(step=-1).mean()),
        },
        seeds=half.size,
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
