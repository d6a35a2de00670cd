"""The published toy: attention and scores to 10^6 steps, and, ours, the law of what is left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.auditing.fit import slope
from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.measures import maps
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs, theory
from ..claims.path import in_order

TEXTS = Texts.read(__file__)


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """seeds: starts. time: of the flow; 10^5 are the published 10^6 steps of 0.1. tokens: of the
    law, which is drawn up to `tau`. records: of either."""

    seeds: int
    time: float
    tokens: tuple[int, ...]
    tau: float
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return weights and scores, tokens in the order of u_0, beside the path from the first start;
    and what is left, 1 - max sigma, over its law, along tau for each number of tokens."""
    result = simulate(runs.toy(recipe.seeds, recipe.time, recipe.records), progress=progress)
    u, a, sigma = in_order(result)
    time, tau = result["time"].values, np.geomspace(1.0, recipe.tau, recipe.records)
    first: Any = {"along": "time", "clock": theory.logistic_clock}
    path = theory.one_direction(u[0, 0], a[0, 0], time, **first)
    left = []
    for n in recipe.tokens:
        u0 = 0.1 * np.random.default_rng(n).normal(size=n)
        found = theory.one_direction(u0, np.zeros(n), tau)
        left.append(theory.remainder(found.logits) / theory.tail(tau, n))
    dims = ("seed", "time", "token")
    return xr.Dataset(
        {
            "weights": (dims, sigma),
            "scores": (dims, u),
            "predicted": (("time", "token"), path.weights),
            "left": (("tokens", "tau"), left),
        },
        {"time": time, "tokens": list(recipe.tokens), "tau": tau},
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge the order, the winner's share at the end, and the constant of the law."""
    end = found["weights"].isel(time=-1)
    share = mean(end.isel(token=0).values)
    ordered = bool((found["scores"].diff("token") < 0).all())
    entropy = mean(maps.entropy(end.transpose("seed", "token").values))
    late = found["tau"] > found["tau"].max() / 100
    power = [slope(found["tau"][late], of[late.values]) for of in found["left"].values]
    polarised = share.above(1.5 / end.sizes["token"])
    return TEXTS.judgement(
        Standing.of(polarised and ordered, polarised),
        {
            "winner_share": share,
            "entropy": entropy,
            "order_kept": float(ordered),
            "path_error": float(abs(found["predicted"] - found["weights"].isel(seed=0)).max()),
            "law_constant": float(found["left"].isel(tau=-1).max()),
            "law_exponent": float(np.mean(power)) - 2.0,
        },
        time=float(end["time"]),
        starts=end.sizes["seed"],
        power=power[-1] - 2,
        shown=end.isel(seed=0, token=0).item(),
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw weights (log-log), scores (log time), and what is left over its law."""
    one = found.isel(seed=0, time=slice(1, None))
    with style.page(2.6) as figure:
        axes = figure.subplots(1, 3)
        for token, colour in enumerate(style.ordered(one.sizes["token"])):
            of = one.isel(token=token)
            axes[0].plot(one["time"], of["weights"], color=colour)
            axes[0].plot(one["time"][::12], of["predicted"][::12], "o", color=colour, markersize=2)
            axes[1].plot(one["time"], of["scores"], color=colour)
        late = one["time"] > 1
        axes[1].plot(one["time"][late], np.log(one["time"][late]), ":", color=style.OUTLINE)
        axes[1].annotate(r"$\ln t$", (0.33, 0.5), xycoords="axes fraction", color=style.OUTLINE)
        for left, dash in zip(found["left"], style.DASHES, strict=False):
            look = {
                "color": style.DISTINCT,
                "linestyle": dash,
                "label": f"n = {int(left['tokens'])}",
            }
            axes[2].plot(found["tau"], left, **look)
        axes[2].axhline(1.0, color=style.OUTLINE, linewidth=0.8)
        axes[2].legend()
        axes[0].set_yscale("log")
        axes[2].set_ylim(0, 4)
        for ax in axes:
            ax.set_xscale("log")
        TEXTS.label(axes)
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
