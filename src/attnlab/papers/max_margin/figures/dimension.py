"""What the dimension d decides: ranks of solutions, whether there are any, and what is selected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean, over_cells, published
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from ..runs import PROGRAMMES, compared, kinds, ranks, wide

TEXTS = Texts.read(__file__)
COLOURS = {"global": style.DISTINCT, "local": style.COMMON, "neither": style.OUTLINE}


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
    """frobenius and nuclear, the ranks over (n, d, instance), NaN where the programme has no
    solution; global, local and neither, 0 or 1, over (width, seed)."""
    rank = over_cells(
        lambda n, d, _: ranks(n, d, recipe.instances)[list(PROGRAMMES)].rename(seed="instance"),
        progress,
        n=recipe.sequences,
        d=recipe.dimensions,
    )

    def ending(width: int, _: object) -> xr.Dataset:
        return xr.Dataset(kinds(compared(wide(width, seeds=recipe.runs)).isel(step=-1)))

    return rank.merge(over_cells(ending, False, width=recipe.widths))


def draw(found: xr.Dataset) -> Figure:
    """Draw (a) ranks of feasible instances, (b) how many are, (c) what training from 0 selects."""
    d, places = found["d"].values, np.arange(found.sizes["width"])
    with style.page(2.9) as figure:
        axes = figure.subplots(1, 3)
        for n, colour in zip(found["n"].values, style.ordered(found.sizes["n"]), strict=True):
            of = found.sel(n=n)
            for norm, dashes in zip(PROGRAMMES, ("-", ":"), strict=True):
                errors = of[norm].std("instance") / of[norm].count("instance") ** 0.5
                look = {"color": colour, "linestyle": dashes, "capsize": 2}
                axes[0].errorbar(d, of[norm].mean("instance"), errors, **look)
            for row in published(__file__, "rank"):
                if (row["norm"], row["n"]) == ("frobenius", n):
                    axes[0].plot(row["d"], row["rank"], "o", mfc="none", color=colour, ms=4)
            feasible = of["frobenius"].notnull().mean("instance")
            axes[1].plot(d, feasible, "o-", ms=3, color=colour, label=f"n = {n}")
        under = np.zeros(len(places))
        for kind, colour in COLOURS.items():
            share = found[kind].mean("seed").values
            axes[2].bar(places, share, bottom=under, color=colour, label=kind)
            under = under + share
        axes[2].set_xticks(places, [str(width) for width in found["width"].values])
        axes[1].legend(loc="lower right")
        axes[2].legend(loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=3, handlelength=1)
        for ax in axes[:2]:
            ax.set_xticks(d, [str(value) for value in d])
        TEXTS.label(axes)
    return figure


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether nuclear ranks are lower, and global optimality grows with d."""
    rank = {
        f"{norm}_rank_n{n}_d{d}": mean(of)
        for norm in PROGRAMMES
        for n in found["n"].values
        for d in found["d"].values
        if (of := found[norm].sel(n=n, d=d).dropna("instance").values).size > 1
    }
    best = {f"global_d{d}": mean(found["global"].sel(width=d)) for d in found["width"].values}
    first, *_, last = best.values()
    everywhere = not bool((found["nuclear"] > found["frobenius"]).any())
    n, d = found["n"].values[-1], found["d"].values[-1]
    return TEXTS.judgement(
        Standing.of(everywhere and last.above(first.value), in_part=everywhere),
        rank | best,
        n=n,
        d=d,
        low=rank[f"nuclear_rank_n{n}_d{d}"],
        short=rank[f"frobenius_rank_n{n}_d{d}"],
        first=first,
        last=last,
        narrow=found["width"].values[0],
        wide=found["width"].values[-1],
        infeasible=float(found["frobenius"].isnull().mean("instance").max()),
        instances=found.sizes["instance"],
        runs=found.sizes["seed"],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
