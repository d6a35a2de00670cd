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
from ..claims.merged import SHARES, steep
from ..model import LinearAttention
from ..runs import crossed, flow, geometric
from ..task import InContextRegression

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
    sizes = recipe.dimensions, recipe.examples
    drops = [
        theory.drop_times(steep(of, *sizes).regression, recipe.norm, SHARES) for of in recipe.decays
    ]
    spectra = [(r / (1 + r), 1 / (1 + r)) for r in recipe.ratios]
    task, *others = (InContextRegression(of, recipe.examples) for of in spectra)
    ordered = []
    for std in recipe.stds:
        at = geometric(0.5 / std, LAST / std, 300)
        model = LinearAttention(recipe.heads, 1, std)
        run = flow(task, model, at, seeds=recipe.seeds, beside=tuple(others))
        times = crossed(simulate(run, progress=False)["learned"])
        first, second = times.transpose("component", "setting", "seed").values
        ordered.append(first < second)
    return xr.Dataset(
        {"drop": (("decay", "share"), drops), "ordered": (("std", "ratio", "seed"), ordered)},
        {
            "decay": list(recipe.decays),
            "share": list(SHARES),
            "std": list(recipe.stds),
            "ratio": list(recipe.ratios),
        },
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw (a) times of the drop, (b) the share of starts in order."""
    with style.page(2.8) as figure:
        axes = figure.subplots(1, 2)
        for share, colour in zip(SHARES, style.ordered(len(SHARES)), strict=True):
            of = found["drop"].sel(share=share)
            axes[0].plot(
                of["decay"], of, "-o", color=colour, markersize=3, label=f"{share:.0%} gone"
            )
        axes[0].set_yscale("log")
        stds = found["std"].values
        for std, colour in zip(stds, style.ordered(stds.size), strict=True):
            of = found["ordered"].sel(std=std).mean("seed")
            axes[1].plot(
                of["ratio"] - 1, of, "-o", color=colour, markersize=3, label=f"std {std:g}"
            )
        style.log_ticks(axes[1], found["ratio"].values - 1)
        axes[1].axhline(0.5, color="0.8", linewidth=0.8, zorder=0)
        axes[1].set(ylim=(0.4, 1.03))
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
