"""Fig. 3: separate key and query learn one principal component after another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlab import predict, simulate
from attnlab.experiments import ExperimentRecipe, Judgement, Standing, published
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from .. import theory
from ..model import LinearAttention
from ..runs import crossed, flow, geometric, starts_of, weights_of
from ..task import InContextRegression

TEXTS = Texts.read(__file__)
RELEASED_STD = 0.01  # of every weight, in the released code's units


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """spectrum, examples: of the task. heads, std: of rank 1. time: of the flow, recorded at so
    many `records` in even ratios. seeds: starts."""

    spectrum: tuple[float, ...]
    examples: int
    heads: int
    std: float
    time: float
    records: int
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return loss, how far components are learned and v of each head; trained and predicted."""
    task = InContextRegression(recipe.spectrum, recipe.examples)
    one = task.regression
    at = geometric(recipe.time / 1000, recipe.time, recipe.records)
    run = flow(task, LinearAttention(recipe.heads, 1, recipe.std), at, seeds=recipe.seeds)
    trained = simulate(run, progress=False)
    said = predict(run, theory="icl-staircase")
    size = abs(weights_of(trained, "value"))
    return xr.Dataset(
        {
            "loss": trained["loss"],
            "predicted_loss": said["loss"],
            "v": (("seed", "time", "head"), size),
            "predicted_v": np.cbrt(said["learned"] / one.gamma),
            "half": crossed(trained["learned"]).transpose("seed", "component"),
            "predicted_half": (
                ("seed", "component"),
                theory.staircase_times(one, starts_of(trained)),
            ),
            "level": ("plateau", theory.plateau_losses(one)),
            "published": (("drop", "end"), released_drops(recipe)),
        }
    )


def released_drops(recipe: Recipe) -> NDArray[np.float64]:
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
        axes = figure.subplots(1, 2)
        for level in curves["level"].values:
            axes[0].axhline(level, color="0.8", linewidth=0.8, zorder=0)
        colours = style.ordered(curves.sizes["seed"])
        for (_, of), colour in zip(shown.groupby("seed", squeeze=False), colours, strict=True):
            one = of.squeeze("seed")
            axes[0].plot(one["time"], one["loss"], color=colour, linewidth=1.1)
            axes[0].plot(
                one["time"], one["predicted_loss"], color=colour, linestyle=":", linewidth=0.9
            )
        middles = curves["level"].rolling(plateau=2).mean()[1:].values
        for ends, middle in zip(curves["published"].values, middles, strict=False):
            axes[0].plot(ends, [middle, middle], "k|-", linewidth=0.8, zorder=5)
        first = shown.isel(seed=0)
        for head in range(first.sizes["head"]):
            label = "heads" if not head else None
            axes[1].plot(
                first["time"], first["v"].isel(head=head), color=style.DISTINCT, label=label
            )
        for component in range(first.sizes["component"]):
            said = first["predicted_v"].isel(component=component)
            label = "scalar equation" if not component else None
            axes[1].plot(first["time"], said, color=style.ACCENT, linestyle=":", label=label)
        axes[1].legend()
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


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
