"""Focus and dilution: attention by query, and the levels at which the loss rests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs, theory
from ..claims.chain import BAYES, PI, STICKINESS, UNIGRAM

TEXTS = Texts.read(__file__)
DRAWN = ("attention", "loss", "seed", "time")


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """seeds, time: of the chain at width 16. late_seeds, late_time: of width 4, to its end."""

    seeds: int
    time: float
    late_seeds: int
    late_time: float


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return attention to the frequent token and the loss along seed and time, both runs; the loss
    of stage I as predicted for the first seed; and the levels of the loss."""
    chains = (
        runs.chain(time=recipe.time, seeds=recipe.seeds),
        runs.chain_end(recipe.late_time, recipe.late_seeds),
    )
    first, late = (simulate(run, progress=report) for run, report in in_turn(chains, progress))
    drawn = [_drawn(first), _drawn(late).rename({name: f"late_{name}" for name in DRAWN})]
    W0, W1 = (first[f"parameters.{of}"][0, 0].values for of in ("embedding", "decoder"))
    stage = theory.stage_one(PI, W0, W1, first["time"].values)
    levels = {
        r"$\ln d$": np.log(len(PI)),
        r"$H(\pi)$": theory.group_loss(PI, STICKINESS, UNIGRAM),
        "rank one": theory.rank_loss(PI, STICKINESS, 1),
        "Bayes": theory.group_loss(PI, STICKINESS, BAYES),
    }
    return xr.merge(drawn).assign(
        stage_one=("time", stage.loss),
        level=xr.DataArray(list(levels.values()), {"name": list(levels)}, ("name",)),
    )


def _drawn(result: xr.Dataset) -> xr.Dataset:
    attention = result["attention"].isel(token=0).rename(sequence="query")
    return xr.Dataset({"attention": attention, "loss": result["loss"]})


def judge(found: xr.Dataset) -> Judgement:
    """Judge focus, its loss, and whether it goes on."""
    attention, late = found["attention"], found["late_attention"]
    peaks = [mean(attention.max("time").isel(query=q).values) for q in range(len(PI))]
    middle = mean(attention.isel(query=1, time=-1).values)
    frequent = mean(late.isel(query=0, late_time=-1).values)
    left = mean((found["late_loss"].isel(late_time=-1) - found["level"][-1]).values)
    turned = np.mean([runs.turn_count(x) for x in attention.isel(query=1).values])
    focused, diluted = peaks[0].value > 0.9, middle.value < peaks[1].value - 0.1
    cycles = left.value > 1e-3
    return TEXTS.judgement(
        Standing.of(focused and diluted and cycles, focused and diluted),
        {
            "peak_frequent": peaks[0],
            "peak_middle": peaks[1],
            "end_middle": middle,
            "late_frequent": frequent,
            "left": left.value,
            "turns_middle": float(turned),
        },
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw attention of each query to the frequent token, and the loss with its levels."""
    with style.page(3.0) as figure:
        axes = figure.subplots(1, 2)
        for q, colour in enumerate(style.ordered(len(PI))):
            for name, look in (("", {"linewidth": 1.0}), ("late_", {"linestyle": ":"})):
                of = found[f"{name}attention"].isel({"query": q, f"{name}seed": 0})
                label = rf"query of $\pi$ = {PI[q]:g}" if not name else None
                axes[0].plot(of[f"{name}time"][1:], of[1:], color=colour, label=label, **look)
        axes[1].plot(found["time"][1:], found["loss"].isel(seed=0)[1:], color=style.DISTINCT)
        late = found["late_loss"].isel(late_seed=0)
        axes[1].plot(late["late_time"][1:], late[1:], ":", color=style.DISTINCT)
        axes[1].plot(
            found["time"][1:], found["stage_one"][1:], "--", color=style.ACCENT, linewidth=1
        )
        axes[1].annotate(
            "stage I", (60, float(found["level"][1]) + 0.015), color=style.ACCENT, fontsize=7
        )
        for name, level in zip(found["name"].values, found["level"].values, strict=True):
            axes[1].axhline(level, color=style.OUTLINE, linewidth=0.6)
            axes[1].annotate(str(name), (1.2, level + 0.008), fontsize=7)
        for ax in axes:
            ax.set(xscale="log", xlim=(1, float(found["late_time"][-1])))
        TEXTS.label(axes)
        style.legend_above(figure, axes[0], title=TEXTS.legend)
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
