"""The tied model: one matrix gives values and keys, and one of its columns grows massive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean
from attnlab.experiments.cells import over_cells
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs
from ..claims.path import MASSIVE

TEXTS = Texts.read(__file__)


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """dims: D, as many tokens as components. seeds: targets and starts."""

    dims: tuple[int, ...]
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return loss, largest weight, and the largest and the median norm of columns of U."""

    def one(dim: int, report: Progress) -> xr.Dataset:
        found = simulate(runs.tied(dim, recipe.seeds), progress=report)
        norms = found["value_norms"]
        return xr.Dataset(
            {
                "loss": found["loss"],
                "top": found["weights"].max("token"),
                "largest": norms.max("token"),
                "median": norms.median("token"),
            }
        )

    return over_cells(one, progress, dim=recipe.dims)


def judge(found: xr.Dataset) -> Judgement:
    """Judge the largest weight and the norm of its column over the median."""
    last = found.isel(step=-1).assign(ratio=lambda of: of["largest"] / of["median"])
    ends = {
        f"{name}_{D}": mean(last[name].sel(dim=D).values)
        for D in found["dim"].values
        for name in ("top", "ratio")
    }
    top = last["top"].min().item()
    massive = bool((last["ratio"] > MASSIVE).all())
    return TEXTS.judgement(
        Standing.of(massive and top > 0.9, massive or top > 0.9),
        ends,
        top=top,
        ratios=", ".join(f"{ends[f'ratio_{D}']} at D = {D}" for D in found["dim"].values),
        sizes=found.sizes["dim"],
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw the loss, the largest weight, and the norms of columns, means over seeds."""
    of = found.mean("seed").isel(step=slice(1, None))
    with style.page(2.7) as figure:
        axes = figure.subplots(1, 3)
        for D, colour in zip(found["dim"].values, style.ordered(found.sizes["dim"]), strict=True):
            one = of.sel(dim=D)
            for ax, name in zip(axes, ("loss", "top", "largest"), strict=True):
                ax.plot(of["step"], one[name], color=colour, label=f"D = {D}")
            axes[2].plot(of["step"], one["median"], color=colour, linestyle=":")
        for ax in axes:
            ax.set_xscale("log")
        axes[0].set_yscale("log")
        TEXTS.label(axes)
        style.legend_above(figure, axes[0])
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
