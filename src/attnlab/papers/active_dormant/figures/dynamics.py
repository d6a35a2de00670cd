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

TEXTS = Texts.beside(__file__)
CURVES = {
    "copy_risk": ("copy risk", style.OUTLINE, "o"),
    "bigram": ("bigram risk, excess", style.GREEN, "^"),
    "sink": ("attention to <s>", style.DISTINCT, "s"),
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
    settings: dict[str, Any] = {"at": recipe.at, "seeds": recipe.seeds, "batch": recipe.batch}
    relu = replace(recipe.model, attention="relu")
    found = []
    for (model, rate), report in in_turn(
        [(recipe.model, recipe.rate), (relu, recipe.relu_rate)], progress
    ):
        run = runs.transformer(recipe.task, model, rate=rate, probe=recipe.probe, **settings)
        found.append(numbers(run, report).isel(layer=0, drop=True))
    softmax, of_relu = found
    names = {"bigram_kl": "bigram", "sink_at_others": "sink"}
    kept = [name for name in softmax if str(name).startswith(("copy_risk", "bigram_kl"))]
    shown = softmax[
        [*kept, "sink_at_others", "sink_at_triggers", "sink_logit", "first_value", "drain"]
    ]
    shown = shown.assign({new: shown[old] for old, new in names.items()})
    shown["relu_sink"] = of_relu["sink_at_others"]
    rows = published(__file__, "one_layer")
    for name in ("copy_risk", "bigram_risk", "sink", "sink_logit", "first_value"):
        values = np.array([row[name] if row[name] != "" else np.nan for row in rows], float)
        if name == "bigram_risk":  # its floor is the entropy of the rows, which we know to 0.006
            name, values = "bigram", values - np.nanmin(values)
        shown[f"published_{name}"] = ("published_step", values)
    parts = published(__file__, "parts")
    floor = parts[0]["bigram_risk"]
    bars = [[row["copy_risk"] for row in parts], [row["bigram_risk"] - floor for row in parts]]
    shown["published_parts"] = (("risk", "part"), bars)
    return shown.assign_coords(
        published_step=[row["step"] for row in rows], risk=list(RISKS), part=list(PARTS)
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge the order of copying, sink and drain, and that of parts."""
    middle, end = found.mean("seed"), found.isel(step=-1)
    copied = _reached(middle["copy_risk"] < middle["copy_risk"][0] / 10)
    half = _reached(middle["sink"] > middle["sink"].max() / 2)
    drained = _reached(
        (middle["first_value"] < middle["first_value"].max() / 2)
        & (middle["step"] > middle["step"][int(middle["first_value"].argmax("step"))])
    )
    change = abs(end["bigram_kl_without_attention"] - end["bigram_kl"])
    sink = mean(end["sink"])
    there = sink.value > 0.5 and float(end["sink_at_triggers"].mean()) < 0.01
    return TEXTS.judgement(
        Standing.of(there and float(end["drain"].mean()) < 0.5 and half <= drained, there),
        {
            "sink": sink,
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
        axes[0].plot(
            middle["step"],
            middle["relu_sink"] / middle["sink"].max(),
            ":",
            color=style.DISTINCT,
            label="the same, ReLU",
        )
        axes[0].set(xlabel="step", xlim=(0, float(found["step"][-1])))
        axes[1].set_xscale("symlog", linthresh=1000)
        axes[1].set(xlabel="step", xlim=(0, None))
        place = np.arange(len(PARTS))
        for ax, (name, label) in zip(axes[2:], RISKS.items(), strict=True):
            end = found.isel(step=-1)
            ours = xr.concat([end[f"{name}{suffix}"] for suffix in PARTS.values()], "part")
            released = found["published_parts"].sel(risk=name)
            ax.bar(place - 0.2, ours.mean("seed"), 0.4, color=style.DISTINCT, label="ours")
            draw_mean(ax, place - 0.2, ours, fmt="none", color="black")
            ax.bar(
                place + 0.2, released, 0.4, color="white", edgecolor=style.OUTLINE, label="released"
            )
            ax.set_xticks(place, list(PARTS))
            ax.set_ylabel(label)
        axes[2].legend()
        style.y_labels(axes[:2], ["over its maximum", ""])
        titles = ["ours", "released", "copying", "bigrams"]
        style.panel_titles(axes, titles)
        style.legend_above(figure, axes[0], ncols=3)
    return figure


def _reached(there: xr.DataArray) -> float:
    """Return the first recorded step at which something holds; nan where at none."""
    return float(there["step"][int(there.argmax("step"))]) if bool(there.any()) else np.nan


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
