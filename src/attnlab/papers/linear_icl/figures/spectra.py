"""Ours: how even a spectrum must be for one drop, and how uneven for a staircase in order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import simulate
from attnlab.experiments import ExperimentRecipe, Judgement, Standing
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from .. import theory
from ..evidence import SHARES
from ..model import LinearAttention
from ..runs import crossed, flow, geometric, proportional

TEXTS = Texts.read(__file__)

SURE = 0.95  # of starts
LAST = 80.0  # over std: the end of a flow, in which the first component is learned


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """decays: a of lambda_d ~ d^-a. norm: the growing part of merged attention's start. dimensions,
    examples: of the task. ratios, stds, heads, seeds: of separate attention in two dimensions."""

    dimensions: int
    examples: int
    decays: tuple[float, ...]
    norm: float
    ratios: tuple[float, ...]
    stds: tuple[float, ...]
    heads: int
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return `drop`, the times of the merged drop over (decay, share), of one head along Lambda^2;
    and `ordered`, which flows learn the larger of two components first, over (std, ratio, seed)."""
    d, shares = np.arange(1.0, recipe.dimensions + 1), [*SHARES.values()]
    spectra = [proportional(d**-decay, recipe.examples).regression for decay in recipe.decays]
    drops = [theory.drop_times(of, recipe.norm, shares) for of in spectra]
    pairs = [proportional((ratio, 1.0), recipe.examples) for ratio in recipe.ratios]
    ordered = []
    for std in recipe.stds:
        at, model = geometric(0.5 / std, LAST / std, 300), LinearAttention(recipe.heads, 1, std)
        found = simulate(flow(pairs, model, at, seeds=recipe.seeds), progress=False)
        first, second = crossed(found["learned"]).transpose("component", "setting", "seed").values
        ordered.append(first < second)
    return xr.Dataset(
        {"drop": (("decay", "share"), drops), "ordered": (("std", "ratio", "seed"), ordered)},
        {
            "decay": list(recipe.decays),
            "share": shares,
            "std": list(recipe.stds),
            "ratio": list(recipe.ratios),
        },
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw (a) times of the drop, (b) the share of starts in order."""
    with style.page(2.8) as figure:
        left, right = axes = figure.subplots(1, 2)
        for of, look in style.entries(found["drop"], "share"):
            left.plot(of["decay"], of, label=f"{float(of['share']):.0%} gone", **look)
        left.set_yscale("log")
        for of, look in style.entries(found["ordered"].mean("seed"), "std"):
            right.plot(of["ratio"] - 1, of, label=f"std {float(of['std']):g}", **look)
        style.log_ticks(right, found["ratio"].values - 1)
        right.axhline(0.5, color="0.8", linewidth=0.8, zorder=0)
        right.set(ylim=(0.4, 1.03))
        for ax in axes:
            ax.legend()
        TEXTS.label(axes)
    return figure


def judge(found: xr.Dataset) -> Judgement:
    """Find where the tail is as long as the wait, and from which ratio on the order is sure."""
    half, last = (found["drop"].sel(share=share) for share in (0.5, 0.99))
    tail = ((last - half) / half).values
    kept = found["ordered"].mean("seed")
    ratios, n = found["ratio"].values, found.sizes["seed"]
    edges = {}
    for std in found["std"].values:
        sure = kept.sel(std=std).values >= SURE
        from_here = [r for i, r in enumerate(ratios) if sure[i:].all()]
        edges[std] = from_here[0] if from_here else np.inf
    nearest = kept.isel(ratio=0)
    return TEXTS.judgement(
        Standing.PARTLY,
        {
            "one_drop_decay": float(np.interp(0.0, np.log(tail), found["decay"].values)),
            "tail_white": float(tail[0]),
            "tail_steepest": float(tail[-1]),
            "ordered_widest": float(kept.isel(ratio=-1).min()),
        },
        sure=SURE,
        edges=", ".join(f"{ratio:g} at std {std:g}" for std, ratio in edges.items()),
        starts=n,
        error=float(np.sqrt(nearest * (1 - nearest) / n).max()),
        nearest=ratios[0],
        widest=ratios[-1],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
