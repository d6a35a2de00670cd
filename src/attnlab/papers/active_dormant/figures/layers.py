"""Three layers: the residual of <s> with Adam, SGD and ReLU, and what the first block does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean, published
from attnlab.experiments.drawing import draw_range
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style

from .. import runs
from ..claims.layers import PEAK
from ..evidence import numbers
from ..model import BackcopyTransformer
from ..task import Backcopy
from .dynamics import beside_released

TEXTS = Texts.read(__file__)
LOOKS = {
    "adam": (style.DISTINCT, "o", "Adam"),
    "sgd": (style.COMMON, "^", "SGD"),
    "relu": (style.GREEN, "s", "Adam, ReLU"),
}
KEPT = ("first_residual", "peak", "sink_at_others", "drain")


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """task, model: of training, but for layers and attention. batch: of all runs. rate: of Adam.
    at: steps to record. seeds: of all that is random."""

    task: Backcopy
    model: BackcopyTransformer
    batch: int
    rate: float
    at: tuple[int, ...]
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return measures along run, seed, step and layer, the sink logit of the second block with and
    without the first, and published values; runs that are on file are read from there."""
    found = []
    for name, report in in_turn(list(runs.THREE), progress):
        of = {name: getattr(recipe, name) for name in ("task", "model", "batch", "rate", "at")}
        run = runs.three_layers(name, seeds=recipe.seeds, **of)
        found.append(numbers(run, report))
    shown = xr.concat([of[list(KEPT)] for of in found], "run").assign_coords(run=list(runs.THREE))
    second = found[0].isel(layer=1, step=-1, drop=True)
    logits = [second["sink_logit"], second["sink_logit_without_first"]]
    shown["second_logit"] = xr.concat(logits, "model")
    rows = published(__file__, "residual")
    shown["published"] = (
        ("run", "published_step"),
        [[row[name] for row in rows] for name in runs.THREE],
    )
    first = published(__file__, "first_block")
    shown["published_logit"] = ("model", [row["sink_logit"] for row in first])
    names = {"published_step": [row["step"] for row in rows], "model": ["whole", "cut"]}
    return shown.assign_coords(names)


def judge(found: xr.Dataset) -> Judgement:
    """Judge who has a residual peak: Adam alone, as published."""
    most = found["peak"].isel(step=-1).max("layer")
    peaks = {name: mean(most.sel(run=name)) for name in runs.THREE}
    sinks = found["sink_at_others"].isel(step=-1).max("layer")
    right = [(peaks[name].value > PEAK) == (name == "adam") for name in runs.THREE]
    size = found["first_residual"].isel(layer=0)
    grown = (size.isel(step=-1) / size.isel(step=0)).mean("seed")
    logit = found["second_logit"].mean("seed")
    return TEXTS.judgement(
        Standing.of(all(right), right[0] or any(right[1:])),
        {
            **{f"peak_{name}": of for name, of in peaks.items()},
            **{f"sink_{name}": mean(sinks.sel(run=name)) for name in runs.THREE},
            **{f"grown_{name}": float(grown.sel(run=name)) for name in runs.THREE},
            "logit": float(logit.sel(model="whole")),
            "logit_cut": float(logit.sel(model="cut")),
        },
        last=int(found["step"][-1]),
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw |h_0| over its start, released and ours, the residual peak, and the second block."""
    with style.page(4.6) as figure:
        axes: Any = figure.subplots(2, 2).ravel()
        size = found["first_residual"].isel(layer=0)
        grown, peaks = size / size.isel(step=0), found["peak"].max("layer")
        step = found["step"].values
        for name, (colour, marker, label) in LOOKS.items():
            look = {"color": colour, "marker": marker}
            paper = found["published"].sel(run=name)
            axes[0].plot(
                found["published_step"], paper / paper[0], markersize=4, label=label, **look
            )
            for ax, ours in zip(axes[1:], (grown, peaks), strict=False):
                draw_range(ax, step, ours.sel(run=name), markersize=3, **look)
        axes[2].axhline(1, color=style.OUTLINE, linewidth=0.6)
        for ax in axes[:3]:
            ax.set(xlabel="step", yscale="log", xlim=(0, None))
        axes[0].set_yticks([1, 2, 4], ["1", "2", "4"], minor=False)
        axes[0].minorticks_off()
        logit = found["second_logit"].transpose("model", "seed")
        beside_released(axes[3], ["whole", "without first block"], logit, found["published_logit"])
        axes[3].legend()
        style.y_labels(axes, ["$|h_0|$ over its start", "", "$|h_0|$ over others", "sink logit"])
        titles = ["released", "ours", "ours: largest over blocks", "second block"]
        style.panel_titles(axes, titles)
        style.legend_above(figure, axes[0])
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
