"""Local convergence: attention saturates, and W turns to the programme of what it selects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean, published
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style

from ..model import CrossAttention, released_factors
from ..runs import EXACT, compared, descent, even_ratios
from ..task import TokenSelection

TEXTS = Texts.read(__file__)
NORMS = ("frobenius", "nuclear")
NAMES = {"W": "$W$", "KQ": "$K, Q$"}
NEAR = 0.98  # correlation at which a direction is that of a solution


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """instances: as many seeds. records: in even ratios from step 1 on."""

    sequences: int
    length: int
    vocab_size: int
    instances: int
    steps: int
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """correlation over (trained, norm, seed, step) with the solution of the tokens selected at the
    end, and weight, the mean over sequences of the largest attention weight."""
    task = TokenSelection(recipe.sequences, recipe.length, recipe.vocab_size)
    at = (0, *even_ratios(1, recipe.steps, recipe.records))
    factors = CrossAttention(width=recipe.vocab_size)
    runs = {
        "W": descent(task, EXACT, at=at, seeds=recipe.instances),
        "KQ": descent(task, factors, at=at, seeds=recipe.instances, optimizer=released_factors),
    }
    cells = [(trained, norm) for trained in runs for norm in NORMS]
    found = {
        (trained, norm): compared(runs[trained], norm=norm)
        for (trained, norm), _ in in_turn(cells, progress)
    }
    rows = [
        xr.concat([found[trained, norm]["correlation"] for norm in NORMS], "norm")
        for trained in runs
    ]
    weight = [found[trained, "nuclear"]["weight"].mean("sequence") for trained in runs]
    return xr.Dataset(
        {"correlation": xr.concat(rows, "trained"), "weight": xr.concat(weight, "trained")}
    ).assign_coords(trained=list(runs), norm=list(NORMS))


def draw(found: xr.Dataset) -> Figure:
    """Draw (a) saturation, (b) W and (c) K, Q against both solutions, with s.d. over instances."""
    steps = found["step"].values
    with style.page(2.7) as figure:
        axes = figure.subplots(1, 3, sharey=True)
        colours = dict(zip(NAMES, (style.DISTINCT, style.ACCENT), strict=True))
        for trained, colour in colours.items():
            _band(axes[0], found["weight"].sel(trained=trained), colour, NAMES[trained])
        for ax, trained in zip(axes[1:], NAMES, strict=True):
            for norm, colour in zip(NORMS, (style.DISTINCT, style.GREEN), strict=True):
                _band(
                    ax, found["correlation"].sel(trained=trained, norm=norm), colour, norm.title()
                )
        for row in published(__file__, "local_convergence"):
            if row["measure"] == "softmax_probability":
                ax, colour = axes[0], colours[row["trained"]]
            else:
                norm = row["measure"].removeprefix("correlation_")
                ax, colour = axes[1], style.DISTINCT if norm == "frobenius" else style.GREEN
            ax.plot(row["step"], row["mean"], "o", mfc="none", color=colour)
        for ax in axes:
            ax.set(xlim=(0, steps[-1]), ylim=(0, 1.03))
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
    last = found["correlation"].isel(step=-1)
    ends = {
        f"{trained}_{norm}": mean(last.sel(trained=trained, norm=norm))
        for trained in NAMES
        for norm in NORMS
    }
    weight = {f"{of}_weight": mean(found["weight"].isel(step=-1).sel(trained=of)) for of in NAMES}
    own = ends["W_frobenius"].value > NEAR, ends["KQ_nuclear"].value > NEAR
    return TEXTS.judgement(
        Standing.of(all(own), in_part=any(own)),
        ends | weight,
        steps=int(found["step"][-1]),
        instances=found.sizes["seed"],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
