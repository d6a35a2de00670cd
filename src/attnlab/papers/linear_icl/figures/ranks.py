"""Fig. 4: with rank R the loss rests only where R divides the number of learned components."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import simulate
from attnlab.auditing.fit import listed
from attnlab.experiments import ExperimentRecipe, Judgement, Standing
from attnlab.experiments.cells import over_cells
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from .. import theory
from ..claims.separate import LONG
from ..evidence import plateaus, rests
from ..model import LinearAttention
from ..runs import flow, geometric
from ..task import InContextRegression

TEXTS = Texts.read(__file__)


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """dimensions: of the spectrum D, D-1, ..., 1 of trace 1. ranks: the last is full. heads, std,
    time, records, seeds: of each flow."""

    dimensions: int
    examples: int
    ranks: tuple[int, ...]
    heads: int
    std: float
    time: float
    records: int
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return loss over (rank, seed, time), and the log time near each level: `rest`."""
    falling = np.arange(recipe.dimensions, 0.0, -1.0)
    task = InContextRegression(tuple((falling / falling.sum()).tolist()), recipe.examples)
    at = geometric(recipe.time / 1000, recipe.time, recipe.records)

    def one(rank: int, report: Progress) -> xr.Dataset:
        run = flow(task, LinearAttention(recipe.heads, rank, recipe.std), at, seeds=recipe.seeds)
        found = simulate(run, progress=report)[["loss"]]
        return found.assign(rest=(("seed", "learned"), rests(found, *plateaus(task.regression))))

    return over_cells(one, progress, rank=recipe.ranks).assign(
        level=("plateau", theory.plateau_losses(task.regression)),
        learned=np.arange(1, recipe.dimensions),
    )


def draw(curves: xr.Dataset) -> Figure:
    """Draw a panel for each rank, with the levels that its rank divides."""
    ranks = curves["rank"].values
    levels = curves["level"].values
    with style.style():
        figure, axes = style.panels(ranks.size, columns=4, sharex=True)
        for ax, rank in zip(axes, ranks, strict=True):
            for m, level in enumerate(levels):
                kept = m % rank == 0 or m == levels.size - 1
                ax.axhline(level, color="0.7" if kept else "0.93", linewidth=0.8, zorder=0)
            for of in curves["loss"].sel(rank=rank).transpose("seed", "time")[:, 1:]:
                ax.plot(of["time"], of, color=style.DISTINCT, linewidth=1)
            ax.set(xscale="log", xlabel="flow time", title=f"R = {rank}")
        axes[0].set_ylabel("loss")
    return figure


def judge(curves: xr.Dataset) -> Judgement:
    """Are plateaus where R divides m, and nowhere else?"""
    rest = curves["rest"].mean("seed").transpose("rank", "learned")
    divides = curves["learned"] % curves["rank"] == 0
    seen = rest > rest.isel(rank=-1) + LONG
    between = (curves["rank"] != curves["rank"][-1]) & (curves["rank"] > 1)
    right = bool((seen == divides).where(between, True).all())
    where = {R: curves["learned"].values[seen.sel(rank=R).values] for R in curves["rank"].values}
    return TEXTS.judgement(
        Standing.CORRECTED if right else Standing.FAILS,
        {
            "rest_where_divides": float(rest.where(divides & between).min()),
            "rest_elsewhere": float(rest.where(~divides & between).max()),
        },
        plateaus="; ".join(f"R = {R}: m = {listed(m, 'd') or 'none'}" for R, m in where.items()),
        ranks=len(where),
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
