"""Regression of growing condition, and, ours, where the square loss polarises."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean
from attnlab.experiments.cells import over_cells
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs
from ..claims import losses

TEXTS = Texts.read(__file__)


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """conditions: kappa of X. seeds: targets. norms, spreads: b and the scale of a_0 of the map,
    ends of geometric ranges of `cells` values, of which each has `starts`."""

    conditions: tuple[float, ...]
    seeds: int
    norms: tuple[float, float]
    spreads: tuple[float, float]
    cells: int
    starts: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return loss, largest weight and norm of the solution along condition, seed and time; and the
    mean largest weight where the square loss stops, over spread and b."""

    def one(condition: float, report: Progress) -> xr.Dataset:
        run = runs.regression(condition, recipe.seeds)
        found = simulate(run, progress=report)
        norm = np.linalg.norm(losses.solution(found), axis=-1)
        return xr.Dataset({"loss": found["loss"], "top": found["weights"].max("token")}).assign(
            norm=("seed", norm)
        )

    norms = np.linspace(*recipe.norms, recipe.cells)
    spreads = np.geomspace(*recipe.spreads, recipe.cells)
    map_ = [losses.ends(float(spread), norms, recipe.starts).mean(0) for spread in spreads]
    beyond = losses.boundary(recipe.spreads, recipe.starts) + np.log(recipe.spreads)[:, None]
    return over_cells(one, progress, condition=recipe.conditions).assign(
        map=xr.DataArray(map_, {"spread": spreads, "b": norms}, ("spread", "b")),
        beyond=("start", beyond.mean(0)),
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether the largest weight rises with the condition, and where it passes 1/2."""
    top = found["top"].isel(time=-1)
    tops = {float(k): mean(top.sel(condition=k).values) for k in top["condition"]}
    first, *_, last = tops.values()
    rises = bool((top.diff("condition") > 0).mean("seed").min() > 0.5)
    boundary = mean(found["beyond"].values)
    return TEXTS.judgement(
        Standing.of(rises and first.above(0.5), rises),
        {f"top_{k:g}".replace(".", "_"): of for k, of in tops.items()} | {"boundary": boundary},
        first=first,
        last=last,
        low=min(tops),
        high=max(tops),
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw loss and largest weight in time, the weight against the norm, and the map."""
    with style.page(4.6) as figure:
        axes = figure.subplots(2, 2).ravel()
        colours = style.ordered(found.sizes["condition"])
        for k, colour in zip(found["condition"].values, colours, strict=True):
            of = found.sel(condition=k)
            label = rf"$\kappa$ = {k:g}"
            axes[0].plot(of["time"], of["loss"].mean("seed"), color=colour, label=label)
            axes[1].plot(of["time"], of["top"].mean("seed"), color=colour)
            axes[2].plot(of["norm"], of["top"].isel(time=-1), "o", color=colour, markersize=3)
        axes[0].set(xscale="log", yscale="log", xlabel="flow time", ylim=(1e-6, None))
        axes[1].set(xscale="log", xlabel="flow time")
        axes[2].set(xlabel="norm of the solution")
        grid = found["map"]
        shown = axes[3].pcolormesh(
            grid["b"], grid["spread"], grid, cmap="viridis", vmin=0, vmax=1, rasterized=True
        )
        figure.colorbar(shown, ax=axes[3], label=r"mean $\max\sigma$ where it stops")
        line = grid["b"] - float(found["beyond"].mean())
        axes[3].plot(grid["b"], np.exp(-line), color="white", linestyle="--")
        limits = [float(of) for of in (grid["spread"].min(), grid["spread"].max())]
        axes[3].set(yscale="log", xlabel=r"$b=|\beta|$", ylabel="spread of $a_0$", ylim=limits)
        axes[3].set_xlim(float(grid["b"].min()), float(grid["b"].max()))
        style.y_labels(axes[:3], ["square loss", r"$\max\sigma$", r"$\max\sigma$ at the end"])
        style.panel_titles(axes, ["loss", "largest weight", "at the end", "where it polarises"])
        style.legend_above(figure, axes[0])
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
