"""What the dimension d decides: ranks of solutions, whether there are any, and what is selected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Estimate, ExperimentRecipe, Judgement, Standing, mean, published
from attnlab.experiments.drawing import draw_estimates
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style

from ..runs import kinds, ranks, wide

TEXTS = Texts.read(__file__)
KINDS = ("global", "local", "neither")


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """sequences, dimensions: n and d of the ranks, T = 5. widths: d of training, n = 4, T = 5.
    instances: seeds of the ranks, runs: of training."""

    sequences: tuple[int, ...]
    dimensions: tuple[int, ...]
    instances: int
    widths: tuple[int, ...]
    runs: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """rank over (norm, n, d, instance), NaN where the programme has no solution; ending, 0 or 1,
    over (kind, width, seed)."""
    cells = [(n, d) for n in recipe.sequences for d in recipe.dimensions]
    found = [
        ranks(n, d, recipe.instances)[["frobenius", "nuclear"]].to_array("norm")
        for (n, d), _ in in_turn(cells, progress)
    ]
    shape = (len(recipe.sequences), len(recipe.dimensions), *found[0].shape)
    rank = np.stack([of.values for of in found]).reshape(shape)
    ended = [kinds(wide(d, recipe.runs)) for d in recipe.widths]
    kind = [[of[name].values.astype(float) for of in ended] for name in KINDS]
    return xr.Dataset(
        {
            "rank": (("n", "d", "norm", "instance"), rank),
            "ending": (("kind", "width", "seed"), np.array(kind)),
        },
        {
            "n": list(recipe.sequences),
            "d": list(recipe.dimensions),
            "norm": ["frobenius", "nuclear"],
            "kind": list(KINDS),
            "width": list(recipe.widths),
        },
    )


def _mean(values: xr.DataArray) -> Estimate:
    """Return the mean over instances that have a solution; NaN below two of them."""
    kept = values.dropna("instance").rename(instance="seed")
    return mean(kept) if kept.size > 1 else Estimate(np.nan, np.nan, kept.size)


def draw(found: xr.Dataset) -> Figure:
    """Draw (a) ranks of feasible instances, (b) how many are, (c) what training from 0 selects."""
    d = found["d"].values
    with style.page(2.9) as figure:
        axes = figure.subplots(1, 3)
        printed = published(__file__, "rank")
        for n, colour in zip(found["n"].values, style.ordered(found.sizes["n"]), strict=True):
            of = found["rank"].sel(n=n)
            for norm, dashes in (("frobenius", "-"), ("nuclear", ":")):
                means = [_mean(of.sel(norm=norm, d=at)) for at in d]
                label = f"n = {n}" if norm == "frobenius" else None
                draw_estimates(axes[0], d, means, color=colour, linestyle=dashes, label=label)
            rows = [row for row in printed if row["norm"] == "frobenius" and row["n"] == n]
            shown = [(row["d"], row["rank"]) for row in rows]
            axes[0].plot(*zip(*shown, strict=True), "o", mfc="none", color=colour, markersize=4)
            feasible = of.sel(norm="frobenius").notnull().mean("instance")
            axes[1].plot(d, feasible, "o-", markersize=3, color=colour, label=f"n = {n}")
        under = np.zeros(found.sizes["width"])
        places = np.arange(found.sizes["width"])
        colours = (style.DISTINCT, style.COMMON, style.OUTLINE)
        for kind, colour in zip(KINDS, colours, strict=True):
            share = found["ending"].sel(kind=kind).mean("seed").values
            axes[2].bar(places, share, bottom=under, color=colour, label=kind)
            under = under + share
        axes[2].set_xticks(places, [str(width) for width in found["width"].values])
        axes[0].legend(loc="upper left")
        axes[2].legend(loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=3, handlelength=1)
        for ax in axes[:2]:
            ax.set_xticks(d, [str(value) for value in d])
        TEXTS.label(axes)
    return figure


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether nuclear ranks are lower, and global optimality grows with d."""
    rank = {
        f"{norm}_rank_n{n}_d{d}": _mean(found["rank"].sel(n=n, d=d, norm=norm))
        for norm in found["norm"].values
        for n in found["n"].values
        for d in found["d"].values
        if found["rank"].sel(n=n, d=d, norm=norm).notnull().sum() > 1
    }
    best = {
        f"global_d{d}": mean(found["ending"].sel(kind="global", width=d))
        for d in found["width"].values
    }
    infeasible = found["rank"].sel(norm="frobenius").isnull().mean("instance")
    n, d = (int(found[of][-1]) for of in ("n", "d"))
    low, short = (rank[f"{norm}_rank_n{n}_d{d}"] for norm in ("nuclear", "frobenius"))
    first, *_, last = best.values()
    lower = found["rank"].sel(norm="nuclear") <= found["rank"].sel(norm="frobenius")
    everywhere = bool((lower | found["rank"].isnull().any("norm")).all())
    return TEXTS.judgement(
        Standing.of(everywhere and last.above(first.value), in_part=everywhere),
        rank | best,
        n=n,
        d=d,
        low=low,
        short=short,
        first=first,
        last=last,
        narrow=int(found["width"][0]),
        wide=int(found["width"][-1]),
        infeasible=float(infeasible.max()),
        instances=found.sizes["instance"],
        runs=found.sizes["seed"],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
