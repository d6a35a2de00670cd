"""The minimal model: W and layer 1 against steps, with mean descent, and where W ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean, published
from attnlab.experiments.drawing import draw_seeds
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.theory import predict

from .. import runs
from ..predict import end_weight

TEXTS = Texts.read(__file__)


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """symbols, length, seeds, steps: of training. lengths: at which the end is predicted."""

    symbols: int
    length: int
    seeds: int
    steps: int
    lengths: tuple[int, ...]


SHOWN = ("diagonal", "off_diagonal", "lag_one")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return the diagonal of W, the rest and lag-1 attention along seed and step, as trained, as
    predicted, and with the released mask; the best w by length; and released ends."""
    k, T = recipe.symbols, recipe.length
    at = (*(step for step in runs.EARLY if step < recipe.steps), recipe.steps)
    right, released = (
        runs.minimal(k, at=at, seeds=recipe.seeds, length=T, first=first)
        for first in ("softmax", "released")
    )

    def shown(of: xr.Dataset) -> xr.DataArray:
        of = of.assign(lag_one=of["lag_mass"].isel(lag=1, drop=True))
        return of[list(SHOWN)].to_array("quantity")

    predicted = predict(replace(right, seeds=1), theory="induction-descent")
    return xr.Dataset(
        {
            "trained": shown(simulate(right, progress=progress)),
            "predicted": shown(predicted).isel(seed=0, drop=True),
            "released_mask": shown(simulate(released, progress=progress)),
            "end": ("length", [end_weight(runs.chains(k, n)) for n in recipe.lengths]),
            "published": ("run", [row["diagonal"] for row in published(__file__, "end")]),
        },
        {"length": list(recipe.lengths)},
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge the order of layers and the prediction."""
    lag, predicted, mask = (
        found[name].sel(quantity="lag_one") for name in ("trained", "predicted", "released_mask")
    )
    error = float(abs(lag - predicted).max("step").mean())
    moved = float(abs(lag - lag.isel(step=0)).max("step").mean())
    return TEXTS.judgement(
        Standing.of(error < 0.1 * moved, error < moved),
        {
            "lag_half": mean(runs.first_step(lag > 0.5)),
            "released_half": float(runs.first_step(mask > 0.5).mean()),
            "error": error,
            "moved": moved,
            "diagonal": float(found["trained"].isel(step=-1).sel(quantity="diagonal").mean()),
        },
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw W, lag-1 attention with the prediction and the released mask, and the end of W."""
    with style.page(2.6) as figure:
        axes = figure.subplots(1, 3)
        step = found["step"].values
        for ax, name, colour, label, prediction in (
            (axes[0], "diagonal", style.DISTINCT, "diagonal", None),
            (axes[0], "off_diagonal", style.COMMON, "off the diagonal", None),
            (axes[1], "lag_one", style.DISTINCT, "trained", "mean descent"),
        ):
            of = found.sel(quantity=name)
            draw_seeds(ax, step, of["trained"], color=colour, linewidth=0.7, label=label)
            ax.plot(step, of["predicted"], "--", color="black", label=prediction)
        mask = found["released_mask"].sel(quantity="lag_one").mean("seed")
        axes[1].plot(step, mask, ":", color=style.ACCENT, label="released mask")
        for ax in axes[:2]:
            room = 1.3 * ax.get_ylim()[1]  # the legend stands above the curves
            ax.set(xlim=(0, step[-1]), ylim=(None, room))
            ax.legend(loc="upper left")
        axes[2].plot(found["length"], found["end"], "--", color="black", label="best w")
        look = {"color": style.ACCENT, "fillstyle": "none", "label": "released"}
        axes[2].plot(np.full(found.sizes["run"], 100), found["published"], "o", **look)
        axes[2].set(xscale="log", ylim=(0, None))
        style.log_ticks(axes[2], found["length"].values)
        axes[2].legend()
        TEXTS.label(axes)
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
