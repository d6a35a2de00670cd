"""Ours: the direction's error over steps, by how the slope of attention is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.auditing.fit import slope
from attnlab.experiments import ExperimentRecipe, Judgement, Standing, jackknife, mean
from attnlab.experiments.drawing import draw_mean
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style

from .. import theory
from ..model import CrossAttention, normalised, released
from ..runs import ETA, FROM_ZERO, compared, descent, even_ratios, late_training
from ..task import TokenSelection

TEXTS = Texts.read(__file__)
HOW = {
    "accurate": (FROM_ZERO, normalised),
    "naive": (CrossAttention(scale=0, arithmetic="usual"), normalised),
    "released": (CrossAttention(scale=0, arithmetic="usual"), released),
}
FITTED_FROM = 1000  # steps


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """Equal scores from W = 0. records: in even ratios from step 30 on."""

    sequences: int
    length: int
    vocab_size: int
    seeds: int
    steps: int
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """error and size, |W|, over (how, seed, step); offset, over seed."""
    task = TokenSelection(recipe.sequences, recipe.length, recipe.vocab_size, scores="equal")
    at = even_ratios(30, recipe.steps, recipe.records)
    runs = {
        how: descent(task, model, at=at, seeds=recipe.seeds, optimizer=optimizer)
        for how, (model, optimizer) in HOW.items()
    }
    found = [
        compared(run, best=True)[["error", "size"]]
        for run, _ in in_turn([*runs.values()], progress)
    ]
    late = late_training(runs["accurate"])
    offset = ("seed", [float(np.linalg.norm(of.offset)) for of in late])
    return xr.concat(found, "how").assign_coords(how=list(runs)).assign(offset=offset)


def draw(found: xr.Dataset) -> Figure:
    """Draw (a) the direction's error and (b) |W| over steps."""
    steps = found["step"].values
    with style.page(2.9) as figure:
        axes = figure.subplots(1, 2)
        colours = (style.DISTINCT, style.ACCENT, style.GREEN)
        for how, colour in zip(HOW, colours, strict=True):
            for ax, what in zip(axes, ("error", "size"), strict=True):
                draw_mean(ax, steps, found[what].sel(how=how), color=colour, label=how)
        late = float(found["offset"].mean()) / (ETA * steps)
        axes[0].plot(steps, late, ":", color=style.OUTLINE, label=r"$|$offset$|/\eta t$")
        first = float(found["error"].sel(how="accurate").isel(step=0).mean())
        bound = first * (steps / steps[0]) ** theory.BOUND
        axes[0].plot(steps, bound, "--", color=style.OUTLINE, label="$t^{-3/4}$")
        axes[1].plot(steps, ETA * steps, ":", color=style.OUTLINE, label=r"$\eta t$")
        for ax in axes:
            ax.set(xscale="log", yscale="log")
            ax.legend(loc="lower left" if ax is axes[0] else "upper left")
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
