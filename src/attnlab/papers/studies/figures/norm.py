"""Study: freeze, or winner takes all? The same sequence classes in the same flow, one switch.

Scan and Snap normalises what attention reads (l2) and says that attention freezes before one token
has it all; polarisation normalises nothing and says that one token takes all.
"""

from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Estimate, Judgement, Standing, Table, Texts, mean, over_cells
from attnlab.experiments.drawing import draw_mean, draw_range
from attnlab.files.progress import Progress
from attnlab.models import Extended
from attnlab.papers.polarisation.theory import cross_entropy_ratio
from attnlab.plots import style
from attnlab.simulation import Flow, Record, simulate

from ..drawn import DrawnClasses, by_draw, distinct

TEXTS = Texts.read(__file__)
NORMS = {"none": "no norm (polarisation)", "l2": r"$\ell_2$ norm (Scan and Snap)"}
ALL, LATE = 0.9, 1e-4  # "takes all"; late is from this fraction of the time on


@dataclass(frozen=True, kw_only=True)
class Recipe(DrawnClasses):
    """Settings of the study; ratios: eta_Y/eta_Z, at eta_Z = 1."""

    ratios: tuple[float, ...]


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Over (norm, ratio, seed, ...): `top`, the largest attention of a class, and `common`, that to
    all common tokens, means over classes (time); `late`, how much attention goes elsewhere in the
    late part; `frequent`, the share of classes whose winner is the most frequent distinct token;
    `contrast`, the attention to this token over that to the least frequent distinct one, relative
    to the start; `tail`, 1 - top over the law of polarisation at the end."""
    return over_cells(partial(_cell, recipe), progress, norm=NORMS)


def _cell(recipe: Recipe, norm: Any, progress: Progress) -> xr.Dataset:
    K, sets = recipe.classes, recipe.sets()
    ratio = xr.DataArray(list(recipe.ratios), dims="ratio", coords={"ratio": list(recipe.ratios)})
    times = (0.0, *np.geomspace(1.0, recipe.time, recipe.records))
    found = simulate(
        sets,
        model=Extended(normalization=norm),
        motion=Flow(recipe.time, rtol=1e-7, atol=1e-9),
        eta_y=ratio,
        eta_z=1.0,
        record=Record("attention", at=times),
        dtype="float64",
        progress=progress,
    )
    attention = by_draw(found["attention"])
    P = attention.isel(time=0, ratio=0, drop=True)
    drawn, order = P > 0, P.where(distinct(P))
    often, seldom = order.fillna(-1).argmax("token"), order.fillna(2).argmin("token")
    top, end = attention.max("token"), attention.isel(time=-1, drop=True)
    late = attention.sel(time=LATE * recipe.time, method="nearest").drop_vars("time")
    n = drawn.sum("token")
    rho = cross_entropy_ratio(sets[0].vocab_size, 1.0) / ratio
    law = 2 * (n - 1) / (n * rho * np.log(recipe.time * ratio / K) ** 2)
    spread = end.isel(token=often) / end.isel(token=seldom)
    start = P.isel(token=often) / P.isel(token=seldom)
    kept = {
        "top": top,
        "common": attention.where(drawn & ~distinct(P), 0.0).sum("token"),
        "late": abs(end - late).sum("token") / 2,
        "frequent": end.argmax("token") == often,
        "contrast": spread / start,
        "tail": (1 - top.isel(time=-1, drop=True)) / law,
    }
    means = {name: of.mean("sequence_class") for name, of in kept.items()}
    return xr.Dataset(means).transpose("ratio", "seed", ...)


def ends(runs: xr.Dataset) -> dict[tuple[str, float], dict[str, Estimate]]:
    """Return the numbers at the end, by norm and ratio; the law of the tail is without the norm."""
    names = ("top", "late", "frequent", "contrast", "common", "tail")
    last = runs.isel(time=-1, drop=True)
    return {
        (norm, ratio): {
            name: mean(last[name].sel(norm=norm, ratio=ratio))
            for name in names
            if norm == "none" or name != "tail"
        }
        for norm, ratio in product(NORMS, runs["ratio"].values.tolist())
    }


def table(runs: xr.Dataset) -> Table:
    """One row for each norm and ratio."""
    rows: list[dict[str, float]] = []
    cells = []
    for (norm, ratio), found in ends(runs).items():
        numbers = {name: of.value for name, of in found.items()}
        rows.append({"ratio": ratio, "tail": np.nan, **numbers})
        cells.append([norm, f"{ratio:g}", *map(str, found.values()), "-"][: len(TEXTS.heading)])
    return TEXTS.table(rows, cells, seeds=runs.sizes["seed"], time=float(runs["time"][-1]))


def draw(runs: xr.Dataset) -> Figure:
    """The winner's attention and that to common tokens against time; contrast at the end."""
    time = runs["time"].values[1:]
    with style.page(2.8) as figure:
        axes = figure.subplots(1, 3)
        for (norm, label), dash in zip(NORMS.items(), ("-", ":"), strict=True):
            for one, styles in style.entries(
                runs.sel(norm=norm).isel(time=slice(1, None)), "ratio"
            ):
                curve = {"color": styles["color"], "linestyle": dash}
                text = rf"{label}, $\eta_Y/\eta_Z$ = {float(one['ratio']):g}"
                draw_range(axes[0], time, one["top"], label=text, **curve)
                draw_range(axes[1], time, one["common"], **curve)
            contrast = runs["contrast"].sel(norm=norm)
            marker = {"marker": "o", "color": "0.2", "linestyle": dash}
            draw_mean(axes[2], np.arange(contrast.sizes["ratio"]), contrast, **marker)
        for ax in axes[:2]:
            ax.set(xscale="log", ylim=(0, 1))
        axes[2].set_xticks(range(runs.sizes["ratio"]), [f"{r:g}" for r in runs["ratio"].values])
        axes[2].set_yscale("log")
        TEXTS.label(axes)
        style.legend_above(figure, axes[0], ncols=2)
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """Judge whether one token takes all without the norm, and not with it."""
    found, ratios = ends(runs), runs["ratio"].values[[0, -1]].tolist()
    last = runs["top"].isel(time=-1)
    free, held = last.sel(norm="none") > ALL, last.sel(norm="l2") < ALL
    numbers = {
        f"{name}_{norm}_{of:g}": x for (norm, of), at in found.items() for name, x in at.items()
    }
    return TEXTS.judgement(
        Standing.of((free & held).all(), in_part=bool(held.all())),
        numbers,
        **{
            f"{norm}_{name}": found[norm, ratio]
            for norm, (name, ratio) in product(NORMS, zip(("even", "fast"), ratios, strict=True))
        },
        tails=[found["none", ratio]["tail"] for ratio in ratios],
        ratios=ratios,
        time=float(runs["time"][-1]),
        late_from=float(LATE * runs["time"][-1]),
        seeds=runs.sizes["seed"],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw, table=table)
