"""Fig. 1: merged linear attention and its MLP partner drop once, on top of each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
from . import DescentRecipe, level_lines, lines

TEXTS = Texts.read(__file__)

FAR = 0.1  # largest difference of the two curves that still counts as on top of each other
ON_TIME = 0.06  # of the predicted time of the drop
LABELS = {"attention": "attention", "MLP": "MLP", "one head": "predicted, nothing fitted"}
COLOURS = (style.DISTINCT, style.COMMON, style.OUTLINE)
DASHES = ("-", (0, (3, 2)), ":")


def data(
    recipe: DescentRecipe, *, progress: Progress = False, keep: Path | None = None
) -> xr.Dataset:
    """Return the loss over (curve, seed, step) of attention, of the MLP and as predicted.

    The MLP partner is attention with its label blocks held at zero, which is the same function.
    """
    task = replace(recipe.task, sequences=recipe.sequences)
    run = recipe.descent(task, partner=True)
    trained = simulate(run, progress=False)["loss"]
    said = predict(run, theory="icl-one-head")["loss"].isel(blocks=0, drop=True)
    both = [trained.sel(blocks=of, drop=True) for of in (True, False)]
    return xr.Dataset(
        {
            "loss": xr.concat([*both, said], "curve"),
            "level": ("plateau", theory.plateau_losses(task.regression)[[0, -1]]),
        },
        {"curve": list(LABELS)},
    )


def draw(curves: xr.Dataset) -> Figure:
    """Draw losses of all seeds, the prediction and the published values."""
    with style.page(2.9) as figure:
        ax = figure.subplots()
        for of, label, colour, dash in zip(
            curves["loss"], LABELS.values(), COLOURS, DASHES, strict=True
        ):
            lines(ax, of, label, color=colour, linestyle=dash, linewidth=1.2)
        rows = published(__file__, "fig1")
        points = ([row[name] for row in rows] for name in ("step", "loss"))
        ax.plot(*points, "kx", label="published", zorder=5)
        level_lines(ax, curves["level"].values)
        ax.set(xlabel="step", ylabel="loss", ylim=(0, None))
        style.legend_above(figure, ax)
    return figure


def judge(curves: xr.Dataset) -> Judgement:
    """Do the two fall together, once, and when the theory says?"""
    loss, halves = curves["loss"], crossed(gone(curves))
    apart = float(abs(loss.sel(curve="attention") - loss.sel(curve="MLP")).max())
    half, said = (halves.sel(curve=name).values for name in ("attention", "one head"))
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


EXPERIMENT = TEXTS.experiment(recipe=DescentRecipe, data=data, judge=judge, draw=draw)
