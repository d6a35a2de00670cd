"""The tied model: one matrix gives values and keys, and one of its columns grows massive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Experiment, ExperimentRecipe, Judgement, Standing
from attnlab.experiments.cells import over_cells
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs

MASSIVE = 3.0  # times the median norm


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
    last = found.isel(step=-1)
    numbers: dict[str, float] = {}
    told = []
    for D in found["dim"].values:
        of = last.sel(dim=D)
        top = runs.estimate(of["top"].values)
        ratio = runs.estimate((of["largest"] / of["median"]).values)
        numbers |= {**top.numbers(f"top_{D}"), **ratio.numbers(f"ratio_{D}")}
        told.append(f"{ratio} at D = {D}")
    top = last["top"].min().item()
    massive = bool((last["largest"] / last["median"] > MASSIVE).all())
    headline = (
        f"One token has at least {top:.3f} of attention, and its column is longer than the median "
        f"by a factor of {', '.join(told)}."
    )
    return Judgement(
        Standing.of(massive and top > 0.9, massive or top > 0.9),
        headline,
        f"{headline} The loss, and the start of a, are our assumptions.",
        f"Loss, largest weight and norms of columns against steps for {found.sizes['dim']} sizes: "
        "one column grows and the median stays near 1.",
        numbers,
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
            ax.set(xlabel="step", xscale="log")
        axes[0].set_yscale("log")
        style.y_labels(axes, ["logistic loss", r"$\max\sigma$", "norm of a column of $U$"])
        style.panel_titles(axes, ["loss", "largest weight", "largest; dotted: median"])
        style.legend_above(figure, axes[0])
    return figure


EXPERIMENT = Experiment(
    name="tied",
    kind="figure",
    title="Tied values and keys: a massive column",
    recipe=Recipe,
    data=data,
    judge=judge,
    draw=draw,
    source="Polarisation, as we know it",
)
