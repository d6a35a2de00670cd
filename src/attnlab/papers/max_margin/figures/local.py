"""Local convergence: attention saturates, and W turns to the programme of what it selects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean, over_cells, published
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from ..runs import PROGRAMMES, PUBLISHED, compared, descent, even_ratios, factors

TEXTS = Texts.read(__file__)
COLOURS = dict(zip(PROGRAMMES, (style.DISTINCT, style.GREEN), strict=True))
TRAINED = {"W": ("$W$", style.DISTINCT), "KQ": ("$K, Q$", style.ACCENT)}
NEAR = 0.98  # correlation at which a direction is that of a solution


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """instances: as many seeds. records: in even ratios from step 1 on."""

    instances: int
    steps: int
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """correlation over (trained, norm, seed, step) with the solution of the tokens selected at the
    end, and weight, the mean over sequences of the largest attention weight."""
    at = (0, *even_ratios(1, recipe.steps, recipe.records))
    runs = {
        "W": descent(PUBLISHED, at=at, seeds=recipe.instances),
        "KQ": factors(at=at, seeds=recipe.instances),
    }

    def measure(trained: str, norm: str, _: object) -> xr.Dataset:
        return compared(runs[trained], norm=norm)[["correlation", "weight"]]

    return over_cells(measure, progress, trained=TRAINED, norm=PROGRAMMES)


def draw(found: xr.Dataset) -> Figure:
    """Draw (a) saturation, (b) W and (c) K, Q against both solutions, with s.d. over instances."""
    with style.page(2.7) as figure:
        axes = figure.subplots(1, 3, sharey=True)
        for ax, (trained, (name, colour)) in zip(axes[1:], TRAINED.items(), strict=True):
            of = found.sel(trained=trained)
            _band(axes[0], of["weight"].isel(norm=0), colour, name)
            for norm in PROGRAMMES:
                _band(ax, of["correlation"].sel(norm=norm), COLOURS[norm], norm.title())
        for row in published(__file__, "local_convergence"):
            norm = row["measure"].removeprefix("correlation_")
            weight = norm == "softmax_probability"
            colour = TRAINED[row["trained"]][1] if weight else COLOURS[norm]
            axes[0 if weight else 1].plot(row["step"], row["mean"], "o", mfc="none", color=colour)
        for ax in axes:
            ax.set(xlim=(0, found["step"].values[-1]), ylim=(0, 1.03))
            ax.set_xscale("symlog", linthresh=1)
            ax.legend(loc="lower right")
        TEXTS.label(axes)
    return figure


def _band(ax: Any, values: xr.DataArray, colour: str, label: str) -> None:
    middle, spread = values.mean("seed"), values.std("seed")
    ax.plot(values["step"], middle, color=colour, label=label)
    low, high = middle - spread, middle + spread
    ax.fill_between(values["step"], low, high, color=colour, alpha=0.2, linewidth=0)


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether W goes to the Frobenius solution, and K, Q to the nuclear one."""
    last = found.isel(step=-1)
    ends = {
        f"{trained}_{norm}": mean(last["correlation"].sel(trained=trained, norm=norm))
        for trained in TRAINED
        for norm in PROGRAMMES
    }
    weight = {f"{of}_weight": mean(last["weight"].sel(trained=of).isel(norm=0)) for of in TRAINED}
    own = ends["W_frobenius"].value > NEAR, ends["KQ_nuclear"].value > NEAR
    return TEXTS.judgement(
        Standing.of(all(own), in_part=any(own)),
        ends | weight,
        steps=int(found["step"][-1]),
        instances=found.sizes["seed"],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
