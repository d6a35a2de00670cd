"""Regression of growing condition, and, ours, where the square loss polarises."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean
from attnlab.experiments.cells import over_cells
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.simulation import Simulation, simulate

from .. import runs, theory
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
    """Return loss, largest weight, norms of the gradients and range of the logits along condition,
    seed and time, and the norm of the solution; and the mean largest weight where the square loss
    stops, over spread and b."""

    def one(condition: float, report: Progress) -> xr.Dataset:
        run = runs.regression(condition, recipe.seeds)
        found = simulate(run, progress=report)
        a, solution = found["parameters.attention"], runs.solutions(run)
        return xr.Dataset(
            {
                "loss": found["loss"],
                "top": found["weights"].max("token"),
                "range": a.max("token") - a.min("token"),
                "norm": ("seed", np.linalg.norm(solution, axis=-1)),
                **gradients(found, solution),
            }
        )

    norms = np.linspace(*recipe.norms, recipe.cells)
    spreads = np.geomspace(*recipe.spreads, recipe.cells)
    map_ = losses.ends(spreads, norms, recipe.starts).mean(1)
    beyond = losses.boundary(recipe.spreads, recipe.starts) + np.log(recipe.spreads)[:, None]
    return over_cells(one, progress, condition=recipe.conditions).assign(
        map=xr.DataArray(map_, {"spread": spreads, "b": norms}, ("spread", "b")),
        beyond=("start", beyond.mean(0)),
    )


def gradients(found: xr.Dataset, solution: NDArray[np.float64]) -> dict[str, Any]:
    """Return norms of the gradients in values and logits, (seed, time), of |X (f - solution)|^2."""
    V, a = (found[f"parameters.{of}"].values for of in ("value", "attention"))
    sigma, task = found["weights"].values, Simulation.of(found).task
    X = np.linspace(1.0, 1.0 / task.condition, task.dim)
    g = 2 * X**2 * (np.einsum("stdn,stn->std", V, sigma) - solution[:, None])
    pulled = theory.pull_back(a, np.einsum("std,stdn->stn", g, V))
    size = partial(np.linalg.norm, axis=-1)
    return {
        "value_slope": (("seed", "time"), size(g) * size(sigma)),
        "attention_slope": (("seed", "time"), size(pulled)),
    }


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
    """Draw loss, gradients, logits and largest weight in time, the weight against the norm, and the
    map."""
    with style.page(4.4) as figure:
        axes = figure.subplots(2, 3).ravel()
        colours = style.ordered(found.sizes["condition"])
        in_time = ("loss", "value_slope", "range", "top")
        for k, colour in zip(found["condition"].values, colours, strict=True):
            of = found.sel(condition=k)
            means = of.isel(time=slice(1, None)).mean("seed")
            for ax, name in zip(axes, in_time, strict=False):
                ax.plot(means["time"], means[name], color=colour, label=rf"$\kappa$ = {k:g}")
            axes[1].plot(means["time"], means["attention_slope"], ":", color=colour)
            axes[4].plot(of["norm"], of["top"].isel(time=-1), "o", color=colour, markersize=3)
        for ax in axes[:4]:
            ax.set_xscale("log")
        for ax, least in zip(axes, (1e-6, 1e-4, 1e-3), strict=False):
            ax.set(yscale="log", ylim=(least, None))
        grid = found["map"]
        shown = axes[5].pcolormesh(
            grid["b"], grid["spread"], grid, cmap="viridis", vmin=0, vmax=1, rasterized=True
        )
        figure.colorbar(shown, ax=axes[5], label=r"mean $\max\sigma$")
        line = np.exp(float(found["beyond"].mean()) - grid["b"])
        axes[5].plot(grid["b"], line, color="white", linestyle="--")
        axes[5].set(yscale="log", xlim=grid["b"].values[[0, -1]])
        axes[5].set_ylim(grid["spread"].values[[0, -1]])
        TEXTS.label(axes)
        style.legend_above(figure, axes[0])
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
