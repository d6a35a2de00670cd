"""In-context and in-weight sequences together: in-weight learning comes first, and goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import xarray as xr
from matplotlib.figure import Figure

from attnlab import simulate
from attnlab.experiments import Experiment, ExperimentRecipe, Judgement, Standing
from attnlab.experiments.cells import over_cells
from attnlab.files.progress import Progress
from attnlab.papers.linear_icl.figures import published
from attnlab.papers.linear_icl.runs import descent
from attnlab.papers.linear_icl.task import InContextRegression
from attnlab.plots import style

CURVES = {
    "loss": ("training", style.OUTLINE),
    "in_weight_loss": ("in_weight", style.ACCENT),
    "in_context_loss": ("in_context", style.DISTINCT),
}
LEARNED = 0.7


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """dimensions: of white inputs. fresh: shares of sequences with a task of their own; the first
    is the one that was published. sequences, heads, std, rate, steps, every, seeds: as released."""

    dimensions: int
    fresh: tuple[float, ...]
    sequences: int
    heads: int
    std: float
    rate: float
    steps: int
    every: int
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return the training, in-weight and in-context loss over (fresh, seed, step)."""

    def one(fresh: float, report: Progress) -> xr.Dataset:
        spectrum = (1 / recipe.dimensions,) * recipe.dimensions
        task = InContextRegression(spectrum, sequences=recipe.sequences, fresh=fresh)
        run = descent(
            task,
            std=recipe.std,
            rate=recipe.rate,
            steps=recipe.steps,
            every=recipe.every,
            seeds=recipe.seeds,
            heads=recipe.heads,
        )
        return simulate(run, progress=False)[[*CURVES]]

    return over_cells(one, progress, fresh=recipe.fresh)


def draw(curves: xr.Dataset) -> Figure:
    """Draw a panel for each share; published values are crosses."""
    with style.style():
        figure, axes = style.panels(curves.sizes["fresh"])
        for ax, fresh in zip(axes, curves["fresh"].values, strict=True):
            for name, (label, colour) in CURVES.items():
                for seed, of in enumerate(curves[name].sel(fresh=fresh).transpose("seed", "step")):
                    ax.plot(
                        of["step"],
                        of,
                        color=colour,
                        label=None if seed else label.replace("_", "-"),
                    )
            ax.set(xlabel="step", title=f"{fresh:.0%} fresh tasks", ylim=(0, 1.45))
        for row in published("mixture.csv"):
            colour = dict(CURVES.values())[row["curve"]]
            axes[0].plot(float(row["step"]), float(row["loss"]), "x", color=colour, markersize=5)
        axes[0].set_ylabel("loss (x: published)")
        style.legend_above(figure, axes[0])
    return figure


def judge(curves: xr.Dataset) -> Judgement:
    """Is in-weight learning first and transient at every share between 0 and 1?"""
    own, other = (curves[f"{kind}_loss"] for kind in ("in_weight", "in_context"))
    least, last = own.min("step"), own.isel(step=-1)
    first = (own < LEARNED).argmax("step") < (other < LEARNED).argmax("step")
    back = abs(last - own.isel(step=0)) < 0.2
    as_said = (least < LEARNED) & first & back
    main = float(curves["fresh"][0])
    numbers = {
        "least_in_weight": float(least.isel(fresh=0).mean()),
        "last_in_weight": float(last.isel(fresh=0).mean()),
        "last_in_context": float(other.isel(fresh=0, step=-1).mean()),
        "most_in_context": float(other.isel(fresh=0).max("step").mean()),
        "as_said": float(as_said.mean()),
    }
    headline = (
        f"With {main:.0%} fresh tasks the in-weight loss falls to {numbers['least_in_weight']:.2f} "
        f"and is back at {numbers['last_in_weight']:.2f} at the end, when the in-context loss is "
        f"{numbers['last_in_context']:.2f}."
    )
    summary = (
        f"{headline} In-weight learning is first and transient in {int(as_said.sum())} of "
        f"{as_said.size} runs, at shares of {', '.join(f'{p:g}' for p in curves['fresh'].values)}."
    )
    alt = (
        f"Losses against step in {curves.sizes['fresh']} panels: in-weight falls first and rises "
        "again, in-context rises slightly and then falls, training falls all the time."
    )
    return Judgement(Standing.of(as_said.all(), as_said.any()), headline, summary, alt, numbers)


EXPERIMENT = Experiment(
    name="mixture",
    kind="figure",
    title="In-weight learning comes first, and goes",
    recipe=Recipe,
    data=data,
    judge=judge,
    draw=draw,
)
