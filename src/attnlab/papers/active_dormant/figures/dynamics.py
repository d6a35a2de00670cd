"""Dynamics of one layer: copying, sink and drain in turn, and what each part is for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean, published
from attnlab.experiments.drawing import draw_mean
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style

from .. import runs
from ..evidence import numbers
from ..model import BackcopyTransformer
from ..task import Backcopy

TEXTS = Texts.read(__file__)
CURVES = {
    "copy_risk": ("copy risk", style.OUTLINE, "o"),
    "bigram_kl": ("bigram risk, excess", style.GREEN, "^"),
    "sink_at_others": ("attention to <s>", style.DISTINCT, "s"),
    "sink_logit": ("sink logit", "#56B4E9", "D"),
    "first_value": ("value of <s>", style.COMMON, "v"),
}
PARTS = {"whole": "", "without attention": "_without_attention", "without MLP": "_without_mlp"}
RISKS = {"copy_risk": "copy risk", "bigram_kl": "bigram risk, excess"}


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """task, model: what is learned, and what learns. batch, rate, relu_rate: of AdamW. at: steps to
    record. seeds: of all that is random. probe: sequences on which is measured."""

    task: Backcopy
    model: BackcopyTransformer
    batch: int
    rate: float
    relu_rate: float
    at: tuple[int, ...]
    seeds: int
    probe: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return measures of one layer along seed and step, attention to <s> of ReLU attention, and
    published values; runs that are on file are read from there."""
    relu = replace(recipe.model, attention="relu")
    both = {"softmax": (recipe.model, recipe.rate), "relu": (relu, recipe.relu_rate)}
    found = {}
    for (name, (model, rate)), report in in_turn(list(both.items()), progress):
        settings: dict[str, Any] = {"at": recipe.at, "seeds": recipe.seeds, "batch": recipe.batch}
        run = runs.transformer(recipe.task, model, rate=rate, probe=recipe.probe, **settings)
        found[name] = numbers(run, report).isel(layer=0, drop=True)
    shown = found["softmax"].assign(relu_sink=found["relu"]["sink_at_others"])
    rows, parts = published(__file__, "one_layer"), published(__file__, "parts")
    known = [of for of in (*rows, *parts) if of["bigram_risk"] != ""]
    floor = min(of["bigram_risk"] for of in known)  # the entropy of rows of P, known to 0.006
    for of in known:
        of["bigram_kl"] = of["bigram_risk"] - floor
    for name in CURVES:
        values = [np.nan if row.get(name, "") == "" else row[name] for row in rows]
        shown[f"published_{name}"] = ("published_step", values)
    bars = [[row[name] for row in parts] for name in RISKS]
    shown["published_parts"] = (("risk", "part"), bars)
    return shown.assign_coords(
        published_step=[row["step"] for row in rows], risk=list(RISKS), part=list(PARTS)
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge the order of copying, sink and drain, and that of parts."""
    middle, end = found.mean("seed"), found.isel(step=-1)
    copy, sink, value = (middle[name] for name in ("copy_risk", "sink_at_others", "first_value"))
    copied, half = _reached(copy < copy[0] / 10), _reached(sink > sink.max() / 2)
    late = value["step"] > value["step"][int(value.argmax("step"))]
    drained = _reached(late & (value < value.max() / 2))
    change = abs(end["bigram_kl_without_attention"] - end["bigram_kl"])
    there = float(sink[-1]) > 0.5 and float(end["sink_at_triggers"].mean()) < 0.01
    return TEXTS.judgement(
        Standing.of(there and float(end["drain"].mean()) < 0.5 and half <= drained, there),
        {
            "sink": mean(end["sink_at_others"]),
            "relu_sink": mean(end["relu_sink"]),
            "drain": mean(end["drain"]),
            "bigram_change": mean(change),
            "copied_at": copied,
            "sink_at": half,
            "drained_at": drained,
        },
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw every curve over its maximum, ours and published, and risks without a part."""
    with style.page(4.8) as figure:
        axes = figure.subplots(2, 2).ravel()
        middle = found.mean("seed")
        for name, (label, colour, marker) in CURVES.items():
            look = {"color": colour, "marker": marker, "markersize": 3, "label": label}
            ours, paper = middle[name], found[f"published_{name}"].dropna("published_step")
            axes[0].plot(ours["step"], ours / ours.max(), **look)
            axes[1].plot(paper["published_step"], paper / paper.max(), **look)
        relu = middle["relu_sink"] / middle["sink_at_others"].max()
        axes[0].plot(relu["step"], relu, ":", color=style.DISTINCT, label="the same, ReLU")
        last = float(found["step"][-1])
        for ax, end in zip(axes, (last, 2e5), strict=False):
            if end > 2000:  # linear to 1,000, logarithmic after
                ax.set_xscale("symlog", linthresh=1000)
                ax.set_xticks([0, *(10.0**i for i in (3, 4, 5) if 10**i <= end)])
            ax.set(xlabel="step", xlim=(0, end))
        at_end = found.isel(step=-1)
        for ax, (name, label) in zip(axes[2:], RISKS.items(), strict=True):
            ours = xr.concat([at_end[f"{name}{suffix}"] for suffix in PARTS.values()], "part")
            beside_released(ax, list(PARTS), ours, found["published_parts"].sel(risk=name))
            ax.set_ylabel(label)
        axes[2].legend()
        style.y_labels(axes[:2], ["over its maximum", ""])
        style.panel_titles(axes, ["ours", "released", "copying", "bigrams"])
        style.legend_above(figure, axes[0], ncols=3)
    return figure


def beside_released(ax: Any, names: list[str], ours: xr.DataArray, released: xr.DataArray) -> None:
    """Draw bars of ours, (name, seed), beside released ones, (name,)."""
    place = np.arange(len(names))
    ax.bar(place - 0.2, ours.mean("seed"), 0.4, color=style.DISTINCT, label="ours")
    draw_mean(ax, place - 0.2, ours, fmt="none", color="black")
    look = {"color": "white", "edgecolor": style.OUTLINE, "label": "released"}
    ax.bar(place + 0.2, released, 0.4, **look)
    ax.set_xticks(place, names)


def _reached(there: xr.DataArray) -> float:
    """Return the first recorded step at which something holds; nan where at none."""
    return float(there["step"][int(there.argmax("step"))]) if bool(there.any()) else np.nan


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
