"""Several tokens: W_fin + R W_mm against the programme of one token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean, over_cells, published
from attnlab.experiments.drawing import draw_mean
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from ..runs import BY, even_ratios, relus, several_tokens

TEXTS = Texts.read(__file__)


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """dimensions: d, n = 3, T = 4. records: in even ratios from step 10 on."""

    dimensions: tuple[int, ...]
    instances: int
    steps: int
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """1 - correlation with each of `runs.BY`, over (d, seed, step), NaN where the filter drops an
    instance."""
    at = even_ratios(10, recipe.steps, recipe.records)

    def measure(d: int, _: object) -> xr.Dataset:
        return several_tokens(relus(d, at=at, seeds=recipe.instances))[list(BY)]

    return over_cells(measure, progress, d=recipe.dimensions)


def draw(found: xr.Dataset) -> Figure:
    """Draw 1 - correlation over steps, a panel for each d, with the released figure's ends."""
    printed = {row["d"]: row for row in published(__file__, "several_tokens")}
    titles = []
    with style.page(2.6) as figure:
        axes = np.atleast_1d(figure.subplots(1, found.sizes["d"], sharey=True))
        for ax, d in zip(axes, found["d"].values, strict=True):
            of = found.sel(d=d).dropna("seed")
            titles.append(f"d = {d}, {of.sizes['seed']} kept")
            colours = style.DISTINCT, style.GREEN, style.ACCENT
            for by, colour in zip(BY, colours, strict=True):
                draw_mean(ax, of["step"], of[by], color=colour, label=by.replace("_", " "))
                if d in printed:
                    ax.plot(of["step"][-1], printed[d][by], "o", mfc="none", color=colour)
            ax.set(xlabel="step", xscale="log", yscale="log")
        axes[0].set_ylabel("1 - correlation with W")
        style.panel_titles(axes.tolist(), titles)
        style.legend_above(figure, axes[0])
    return figure


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether both parts together are nearest to W at the end, at every d."""
    end = found.isel(step=-1)
    last = {int(d): end.sel(d=d).dropna("seed") for d in found["d"]}
    ends = {d: [mean(of[by]) for by in BY] for d, of in last.items()}
    nearest = [both.value < min(of.value for of in others) for both, *others in ends.values()]
    kept = {f"kept_d{d}": of.sizes["seed"] / found.sizes["seed"] for d, of in last.items()}
    first = ends[int(found["d"][0])]
    numbers = {f"{by}_d{d}": end for d, of in ends.items() for by, end in zip(BY, of, strict=True)}
    return TEXTS.judgement(
        Standing.of(all(nearest), in_part=any(nearest)),
        numbers | kept,
        gaps="; ".join("{}, {} and {}".format(*of) + f" at d = {d}" for d, of in ends.items()),
        least_kept=min(kept.values()),
        most_kept=max(kept.values()),
        instances=found.sizes["seed"],
        panels=len(last),
        one_token=first[-1],
        both=first[0],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
