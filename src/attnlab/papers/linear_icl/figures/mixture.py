"""In-context and in-weight sequences together: in-weight learning comes first, and goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import xarray as xr
from matplotlib.figure import Figure

from attnlab import simulate
from attnlab.auditing.fit import listed
from attnlab.experiments import Judgement, Standing, published
from attnlab.experiments.estimate import count_of
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from ..claims.population import BACK
from ..evidence import LEARNED, passage
from ..runs import side_by_side
from . import DescentRecipe, lines

TEXTS = Texts.read(__file__)

CURVES = {
    "loss": ("training", style.OUTLINE),
    "in_weight_loss": ("in_weight", style.ACCENT),
    "in_context_loss": ("in_context", style.DISTINCT),
}


@dataclass(frozen=True, kw_only=True)
class Recipe(DescentRecipe):
    """fresh: shares of sequences with a task of their own; the first is the one that was
    published."""

    fresh: tuple[float, ...]


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return the training, in-weight and in-context loss over (fresh, seed, step)."""
    tasks = [replace(recipe.task, sequences=recipe.sequences, fresh=of) for of in recipe.fresh]
    found = side_by_side(simulate(recipe.descent(tasks), progress=progress)[[*CURVES]])
    return found.rename(setting="fresh").assign_coords(fresh=list(recipe.fresh))


def draw(curves: xr.Dataset) -> Figure:
    """Draw a panel for each share; published values are crosses."""
    with style.style():
        figure, axes = style.panels(curves.sizes["fresh"])
        for ax, fresh in zip(axes, curves["fresh"].values, strict=True):
            for name, (label, colour) in CURVES.items():
                lines(ax, curves[name].sel(fresh=fresh), label.replace("_", "-"), color=colour)
            ax.set(xlabel="step", title=f"{fresh:.0%} fresh tasks", ylim=(0, 1.45))
        for row in published(__file__, "mixture"):
            colour = dict(CURVES.values())[row["curve"]]
            axes[0].plot(row["step"], row["loss"], "x", color=colour, markersize=5)
        axes[0].set_ylabel("loss (x: published)")
        style.legend_above(figure, axes[0])
    return figure


def judge(curves: xr.Dataset) -> Judgement:
    """Is in-weight learning first and transient at every share between 0 and 1?"""
    of = passage(curves)
    as_said = (of["least"] < LEARNED) & (of["in_weight"] < of["in_context"]) & (of["gap"] < BACK)
    main = of.isel(fresh=0).mean("seed")
    in_context = curves["in_context_loss"].isel(fresh=0)
    return TEXTS.judgement(
        Standing.of(as_said.all(), as_said.any()),
        {
            "least_in_weight": float(main["least"]),
            "last_in_weight": float(main["end"]),
            "last_in_context": float(in_context.isel(step=-1).mean()),
            "most_in_context": float(in_context.max("step").mean()),
            "as_said": float(as_said.mean()),
        },
        main=float(curves["fresh"][0]),
        right=count_of(as_said),
        shares=listed(curves["fresh"].values, "g"),
        panels=curves.sizes["fresh"],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
