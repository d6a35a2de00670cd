"""Flow of the reparametrised head: one context beside several, and a published value of <s>."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean, published
from attnlab.experiments.drawing import draw_range
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.theory import predict

from .. import runs
from ..evidence import EVIDENCE

TEXTS = Texts.read(__file__)
LOOKS = {"one": (style.COMMON, "one context"), "many": (style.DISTINCT, "contexts that differ")}
SHOWN = ("sink_logit", "sink_mass", "value_size")


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """contexts: that differ. seeds: chains. last, records: times are spaced evenly in ln t; one
    context is at rest by 10^7."""

    contexts: int
    seeds: int
    last: float
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return means over query tokens along contexts, seed and time, as trained and as predicted for
    late times; and the value of <s> of a released run and of ours on file."""
    times = (0.0, *np.geomspace(100.0, recipe.last, recipe.records).tolist())
    found = []
    for count, report in in_turn([0, recipe.contexts], progress):
        at = times if count else [t for t in times if t < 1.01 * runs.REST]
        run = runs.flow(count, seeds=recipe.seeds, at=at)
        trained, predicted = simulate(run, progress=report), predict(run, theory="dormant-late")
        logits = {"sink_logit": trained["parameters.sink"], "late": predicted["parameters.sink"]}
        means = {name: of.mean("parameters.sink_0") for name, of in logits.items()}
        mass = trained["sink_mass"].mean("query")
        found.append(xr.Dataset({**means, "sink_mass": mass, "value_size": trained["value_size"]}))
    both = xr.concat(found, "contexts", join="outer").assign_coords(contexts=list(LOOKS))
    rows = published(__file__, "one_layer")
    known = [row for row in rows if row["first_value"] != ""]
    both["published"] = ("published_step", [row["first_value"] for row in known])
    both = both.assign_coords(published_step=[row["step"] for row in known])
    ours = EVIDENCE.read("one-softmax")["first_value"].isel(layer=0, drop=True)
    return both.assign(ours=ours.mean("seed"))


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether a sink and a drain come with one context, and with several."""
    of = {name: found.sel(contexts=name).dropna("time", subset=["sink_mass"]) for name in LOOKS}
    sinks = {name: mean(one["sink_mass"].isel(time=-1)) for name, one in of.items()}
    sizes = {name: one["value_size"] for name, one in of.items()}
    left = {name: mean(size.isel(time=-1) / size.max("time")) for name, size in sizes.items()}
    forms = {name: sinks[name].value > 0.5 and left[name].value < 0.1 for name in LOOKS}
    late = abs(of["many"]["late"] - of["many"]["sink_logit"]).isel(time=-1)
    size = sizes["many"].mean("seed")
    return TEXTS.judgement(
        Standing.of(all(forms.values()), forms["many"]),
        {
            **{f"sink_{name}": of for name, of in sinks.items()},
            **{f"left_{name}": of for name, of in left.items()},
            "height": float(size.max()),
            "height_at": float(found["time"][int(size.argmax("time"))]),
            "late_error": float(late.mean()),
        },
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw sink logits, sink mass and value against flow time, and the value of training runs."""
    with style.page(4.6) as figure:
        axes = figure.subplots(2, 2).ravel()
        time = found["time"].values[1:]
        for name, (colour, label) in LOOKS.items():
            of = found.sel(contexts=name).isel(time=slice(1, None))
            for ax, shown in zip(axes, SHOWN, strict=False):
                draw_range(ax, time, of[shown], color=colour, label=label)
            axes[0].plot(time, of["late"].mean("seed"), "--", color="black", linewidth=1)
        axes[0].plot([], [], "--", color="black", linewidth=1, label="predicted, late")
        for ax in axes[:3]:
            ax.set(xscale="log", xlabel="flow time", xlim=(time[0], time[-1]))
        axes[0].set(ylim=(-0.5, None))
        ax = axes[3]
        step, value = found["published_step"].values, found["published"]
        ax.plot(step, value / value.max(), "s--", color=style.OUTLINE, label="released run")
        ours = found["ours"]
        ax.plot(ours["step"], ours / ours.max(), "o-", color=style.DISTINCT, label="our runs")
        ax.set(xlabel="step", xlim=(0, None))
        ax.set_xscale("symlog", linthresh=1000)
        ax.set_xticks([0, 1e3, 1e4, 1e5])
        ax.legend()
        style.y_labels(axes, ["", "", "size of the value of <s>", "over its maximum"])
        titles = ["sink logits", "attention to <s>", "value: a hump", "value in transformers"]
        style.panel_titles(axes, titles)
        style.legend_above(figure, axes[0])
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
