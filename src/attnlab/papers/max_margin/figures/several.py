"""Several tokens: W_fin + R W_mm against the programme of one token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean, published
from attnlab.experiments.drawing import draw_mean
from attnlab.experiments.estimate import number_name
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style

from ..runs import even_ratios
from ..several import BY, several_tokens, several_tokens_run

TEXTS = Texts.read(__file__)
COLUMNS = dict(zip(BY, ("several", "several_margin", "one_token"), strict=True))


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """dimensions: d, n = 3, T = 4. records: in even ratios from step 10 on."""

    dimensions: tuple[int, ...]
    instances: int
    steps: int
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """gap, 1 - correlation, over (d, by, seed, step), NaN where the filter drops an instance; kept,
    over (d, seed)."""
    at = even_ratios(10, recipe.steps, recipe.records)
    found = [
        several_tokens(several_tokens_run(d, at=at, seeds=recipe.instances))
        for d, _ in in_turn(recipe.dimensions, progress)
    ]
    return xr.concat(found, "d").assign_coords(d=list(recipe.dimensions))


def draw(found: xr.Dataset) -> Figure:
    """Draw 1 - correlation over steps, a panel for each d, with the released figure's ends."""
    printed = {int(row["d"]): row for row in published(__file__, "several_tokens")}
    colours = dict(zip(BY, (style.DISTINCT, style.GREEN, style.ACCENT), strict=True))
    with style.page(2.6) as figure:
        axes = np.atleast_1d(figure.subplots(1, found.sizes["d"], sharey=True))
        for ax, d in zip(axes, found["d"].values, strict=True):
            of = found["gap"].sel(d=d).dropna("seed")
            for by, colour in colours.items():
                draw_mean(ax, of["step"], of.sel(by=by), color=colour, label=by)
                if d in printed:
                    end = printed[d][COLUMNS[by]]
                    ax.plot(of["step"][-1], end, "o", mfc="none", color=colour)
            ax.set(xlabel="step", xscale="log", yscale="log")
        axes[0].set_ylabel("1 - correlation with W")
        kept = found["kept"].sum("seed").values
        titles = [f"d = {d}, {n} kept" for d, n in zip(found["d"].values, kept, strict=True)]
        style.panel_titles(axes.tolist(), titles)
        style.legend_above(figure, axes[0])
    return figure


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether both parts together are nearest to W at the end, at every d."""
    last = found["gap"].isel(step=-1)
    ends = {
        (d, by): mean(last.sel(d=d, by=by).dropna("seed")) for d in found["d"].values for by in BY
    }
    nearest = [
        ends[d, BY[0]].value < min(ends[d, by].value for by in BY[1:]) for d in last["d"].values
    ]
    kept = found["kept"].mean("seed")
    first = int(found["d"][0])
    return TEXTS.judgement(
        Standing.of(all(nearest), in_part=any(nearest)),
        {
            **{number_name(f"{by} d{d}"): of for (d, by), of in ends.items()},
            **{f"kept_d{d}": float(kept.sel(d=d)) for d in found["d"].values},
        },
        gaps="; ".join(
            f"{ends[d, BY[0]]}, {ends[d, BY[1]]} and {ends[d, BY[2]]} at d = {d}"
            for d in found["d"].values
        ),
        least_kept=float(kept.min()),
        most_kept=float(kept.max()),
        instances=found.sizes["seed"],
        panels=found.sizes["d"],
        one_token=ends[first, BY[2]],
        both=ends[first, BY[0]],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
