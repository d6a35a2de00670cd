"""Ours: the direction's error over steps, by how the slope of attention is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.auditing.fit import slope
from attnlab.experiments import ExperimentRecipe, Judgement, Standing, jackknife, mean, over_cells
from attnlab.experiments.drawing import draw_mean
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from .. import theory
from ..model import CrossAttention, normalised, released
from ..runs import ETA, EVEN, FROM_ZERO, compared, descent, even_ratios, late_training

TEXTS = Texts.read(__file__)
USUAL = CrossAttention(scale=0, arithmetic="usual")
HOW = {
    "accurate": (FROM_ZERO, normalised),
    "naive": (USUAL, normalised),
    "released": (USUAL, released),
}
FITTED_FROM = 1000  # steps


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """Equal scores from W = 0. records: in even ratios from step 30 on."""

    seeds: int
    steps: int
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """error and size, |W|, over (how, seed, step); offset, over seed."""
    at = even_ratios(30, recipe.steps, recipe.records)

    runs = {
        how: descent(EVEN, model, at=at, seeds=recipe.seeds, optimizer=optimizer)
        for how, (model, optimizer) in HOW.items()
    }

    def measure(how: str, _: object) -> xr.Dataset:
        of = compared(runs[how])
        return xr.Dataset({"error": (2 - 2 * of["best"]) ** 0.5, "size": of["size"]})

    late = [np.linalg.norm(of.offset) for of in late_training(runs["accurate"])]
    return over_cells(measure, progress, how=HOW).assign(offset=("seed", late))


def draw(found: xr.Dataset) -> Figure:
    """Draw (a) the direction's error and (b) |W| over steps."""
    steps = found["step"].values
    first = found.sel(how="accurate").mean("seed")
    guides = (
        (0, first["offset"].item() / (ETA * steps), ":", r"$|$offset$|/\eta t$"),
        (0, first["error"].values[0] * (steps / steps[0]) ** theory.BOUND, "--", "$t^{-3/4}$"),
        (1, ETA * steps, ":", r"$\eta t$"),
    )
    with style.page(2.9) as figure:
        axes = figure.subplots(1, 2)
        for how, colour in zip(HOW, (style.DISTINCT, style.ACCENT, style.GREEN), strict=True):
            for ax, what in zip(axes, ("error", "size"), strict=True):
                draw_mean(ax, steps, found[what].sel(how=how), color=colour, label=how)
        for panel, values, dashes, label in guides:
            axes[panel].plot(steps, values, dashes, color=style.OUTLINE, label=label)
        for ax, where in zip(axes, ("lower left", "upper left"), strict=True):
            ax.set(xscale="log", yscale="log")
            ax.legend(loc=where)
        TEXTS.label(axes)
    return figure


def judge(found: xr.Dataset) -> Judgement:
    """Judge the exponent of the error in accurate arithmetic, and how the naive form fails."""
    error = found["error"]
    late = error.sel(how="accurate").isel(step=found["step"].values >= FITTED_FROM)
    exponent = jackknife(lambda of: slope(of["step"], of.mean("seed")), late)
    ends = {f"{how}_error": mean(error.sel(how=how).isel(step=-1)) for how in HOW}
    sizes = {f"{how}_size": mean(found["size"].sel(how=how).isel(step=-1)) for how in HOW}
    bounded = exponent.value <= theory.BOUND
    fails = ends["naive_error"].above(ends["accurate_error"].value)
    steps = int(found["step"][-1])
    return TEXTS.judgement(
        Standing.of(bounded and fails, in_part=bounded),
        {"exponent": exponent, **ends, **sizes},
        steps=steps,
        eta=ETA,
        travelled=ETA * steps,
        seeds=found.sizes["seed"],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
