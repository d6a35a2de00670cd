"""Fig. 3: separate key and query learn one principal component after another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlab import predict, simulate
from attnlab.experiments import Judgement, Standing, published
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from .. import theory
from ..runs import crossed, starts_of, weights_of
from . import FlowRecipe, level_lines, lines

TEXTS = Texts.read(__file__)
RELEASED_STD = 0.01  # of every weight, in the released code's units


def data(recipe: FlowRecipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return loss, how far components are learned and v of each head; trained and predicted."""
    one, run = recipe.task.regression, recipe.flow()
    trained, said = simulate(run, progress=False), predict(run, theory="icl-staircase")
    expected = theory.staircase_times(one, starts_of(trained))
    return xr.Dataset(
        {
            "loss": trained["loss"],
            "predicted_loss": said["loss"],
            "v": (("seed", "time", "head"), abs(weights_of(trained, "value"))),
            "predicted_v": np.cbrt(said["learned"] / one.gamma),
            "half": crossed(trained["learned"]).transpose("seed", "component"),
            "predicted_half": (("seed", "component"), expected),
            "level": ("plateau", theory.plateau_losses(one)),
            "published": (("drop", "end"), released_drops(recipe)),
        }
    )


def released_drops(recipe: FlowRecipe) -> NDArray[np.float64]:
    """Return the flow times of the released drops, (drop, end), scaled to the start of a recipe.

    While weights are small, time goes as one over them.
    """
    rows = published(__file__, "fig3a")
    steps = [[row["first_step"], row["last_step"]] for row in rows]
    times, weight = theory.released_clock(
        steps, learning_rate=0.02, examples=recipe.examples, factors=3
    )
    return times * RELEASED_STD * weight / recipe.std


def draw(curves: xr.Dataset) -> Figure:
    """Draw (a) losses and levels, (b) |v| of the heads of one start and the scalar equation."""
    shown = curves.isel(time=slice(1, None))
    with style.page(2.9) as figure:
        left, right = axes = figure.subplots(1, 2)
        level_lines(left, curves["level"].values)
        for seed, colour in enumerate(style.ordered(curves.sizes["seed"])):
            for name, dash in (("loss", "-"), ("predicted_loss", ":")):
                of = shown[name].isel(seed=seed)
                left.plot(of["time"], of, color=colour, linestyle=dash, linewidth=1)
        middles = curves["level"].rolling(plateau=2).mean()[1:].values
        for ends, middle in zip(curves["published"].values, middles, strict=False):
            left.plot(ends, [middle, middle], "k|-", linewidth=0.8, zorder=5)
        first = shown.isel(seed=0)
        lines(right, first["v"], "heads", color=style.DISTINCT)
        lines(right, first["predicted_v"], "scalar equation", color=style.ACCENT, linestyle=":")
        right.legend()
        for ax in axes:
            ax.set_xscale("log")
        TEXTS.label(axes, starts=curves.sizes["seed"])
    return figure


def judge(curves: xr.Dataset) -> Judgement:
    """Are components learned in order and on time?"""
    half, said = curves["half"].values, curves["predicted_half"].values
    done = np.isfinite(half) & np.isfinite(said)
    ordered = np.all((np.diff(half) > 0) | np.isinf(half[:, 1:]), axis=1)
    ratio = half[done] / said[done]
    return TEXTS.judgement(
        Standing.of(ordered.all(), ordered.mean() > 0.5),
        {
            "in_order": float(ordered.mean()),
            "first_over_predicted": float(np.mean(half[:, 0] / said[:, 0])),
            "median_over_predicted": float(np.median(ratio)),
            "most_off": float(np.abs(ratio - 1).max()),
            "mean_first": float(half[:, 0].mean()),
        },
        ordered=f"{int(ordered.sum())} of {ordered.size}",
        starts=ordered.size,
    )


EXPERIMENT = TEXTS.experiment(recipe=FlowRecipe, data=data, judge=judge, draw=draw)
