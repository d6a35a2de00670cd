"""Fig. 4: with rank R the loss rests only where R divides the number of learned components."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import simulate
from attnlab.auditing.fit import listed
from attnlab.experiments import Judgement, Standing
from attnlab.experiments.cells import over_cells
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from .. import theory
from ..claims.separate import LONG
from ..evidence import plateaus, rests
from . import FlowRecipe, level_lines, lines

TEXTS = Texts.read(__file__)


@dataclass(frozen=True, kw_only=True)
class Recipe(FlowRecipe):
    """ranks: the last is full."""

    ranks: tuple[int, ...]


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return loss over (rank, seed, time), and the log time near each level on the way: `rest`."""
    one = recipe.task.regression

    def cell(rank: int, report: Progress) -> xr.Dataset:
        found = simulate(recipe.flow(rank), progress=report)[["loss"]]
        return found.assign(rest=(("seed", "learned"), rests(found, *plateaus(one))[:, :-1]))

    return over_cells(cell, progress, rank=recipe.ranks).assign(
        level=("plateau", theory.plateau_losses(one)), learned=np.arange(1, len(recipe.spectrum))
    )


def draw(curves: xr.Dataset) -> Figure:
    """Draw a panel for each rank, with the levels that its rank divides."""
    ranks = curves["rank"].values
    levels = curves["level"].values
    with style.style():
        figure, axes = style.panels(ranks.size, columns=4, sharex=True)
        for ax, rank in zip(axes, ranks, strict=True):
            level_lines(ax, levels, "0.93")
            level_lines(ax, {*levels[::rank], levels[-1]}, "0.7")
            shown = curves["loss"].sel(rank=rank).isel(time=slice(1, None))
            lines(ax, shown, color=style.DISTINCT, linewidth=1)
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
