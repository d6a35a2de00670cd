"""Ours: freeze or winner takes all? The same two sequence classes, with and without the l2 norm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import predict
from attnlab.experiments import ExperimentRecipe, Judgement, Standing, Table
from attnlab.experiments.cells import over_cells
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs

TEXTS = Texts.read(__file__)
NORMS = {"none": "no norm", "l2": r"$\ell_2$ norm (Scan and Snap)"}
TOKENS = ("common", "common", "distinct, 0.4", "distinct, 0.2")
COLOURS = (style.COMMON, style.COMMON, style.DISTINCT, style.GREEN)
READ = (1e2, 1e6, 1e10)


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """ratios: eta_Y/eta_Z. time: of the flow, at eta_Z = 1."""

    ratios: tuple[float, ...]
    time: float


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return attention of the first class, (norm, ratio, time, token); `alone`: as
    `polarisation-class` predicts it, NaN with the norm."""

    def one(norm: str, report: Progress) -> xr.Dataset:
        run = runs.classes(norm, recipe.ratios, recipe.time)
        found = simulate(run, progress=report)["attention"]
        alone = found * np.nan
        if norm == "none":
            alone = predict(run, theory="polarisation-class")["attention"]
        both = xr.Dataset({"attention": found, "alone": alone})
        return both.isel(seed=0, sequence_class=0, token=slice(4), drop=True).rename(eta_y="ratio")

    return over_cells(one, progress, norm=NORMS).drop_vars(
        ["token", "query_token", "next_token", "prior"], errors="ignore"
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge the winner's share at the end with and without the norm."""
    first = float(found["ratio"][0])
    end = found["attention"].isel(time=-1).sel(ratio=first)
    free, held = (float(end.sel(norm=norm).isel(token=2)) for norm in NORMS)
    kept = float(end.sel(norm="l2").isel(token=2) / end.sel(norm="l2").isel(token=3))
    off = abs(found["alone"] - found["attention"]).sel(norm="none", ratio=first)
    moved = abs(found["attention"] - found["attention"].isel(time=0)).sel(norm="none", ratio=first)
    return TEXTS.judgement(
        Standing.of(free > 0.99 and held < 0.6, free > held),
        {
            "free_winner": free,
            "held_winner": held,
            "held_ratio": kept,
            "alone_error": float(off.max()),
            "slow_winner": float(found["attention"].isel(time=-1, token=2).sel(norm="none")[-1]),
        },
        time=float(found["time"][-1]),
        fastest=float(found["ratio"][-1]),
        moved=float(moved.max()),
        panels=2 * found.sizes["ratio"],
    )


def table(found: xr.Dataset) -> Table:
    """Return the share of the frequent distinct token at three times, and the ratio at the end."""
    rows, cells = [], [["norm", "eta_Y/eta_Z", *(f"t = {t:.0e}" for t in READ), "ratio at the end"]]
    for norm in NORMS:
        for ratio in found["ratio"].values:
            of = found["attention"].sel(norm=norm, ratio=ratio)
            shares = of.isel(token=2).sel(time=list(READ), method="nearest").values
            kept = float(of.isel(token=2, time=-1) / of.isel(token=3, time=-1))
            rows.append({"ratio": float(ratio), "last": float(shares[-1]), "kept": kept})
            cells.append([norm, f"{ratio:g}", *(f"{x:.3f}" for x in shares), f"{kept:.2f}"])
    return Table(rows, TEXTS.caption, cells)


def draw(found: xr.Dataset) -> Figure:
    """Draw attention of the first class, a row for each ratio and a column for each norm."""
    ratios = found["ratio"].values
    with style.page(2.0 * len(ratios) + 0.6) as figure:
        axes = figure.subplots(len(ratios), 2, sharex=True, sharey=True, squeeze=False)
        for row, ratio in zip(axes, ratios, strict=True):
            for ax, norm in zip(row, NORMS, strict=True):
                of = found.sel(norm=norm, ratio=ratio).isel(time=slice(1, None))
                for token, (name, colour) in enumerate(zip(TOKENS, COLOURS, strict=True)):
                    label = name if token else None  # one label for both common tokens
                    one = of.isel(token=token)
                    ax.plot(of["time"], one["attention"], color=colour, label=label)
                    ax.plot(of["time"], one["alone"], ":", color=colour, linewidth=1)
                ax.set(xscale="log", ylim=(0, 1))
            row[0].set_ylabel(rf"attention, $\eta_Y/\eta_Z$ = {ratio:g}")
        for ax in axes[-1]:
            ax.set_xlabel("flow time")
        style.panel_titles(axes[0], [*NORMS.values()])
        style.legend_above(figure, axes[0, 0], title="dotted: a class alone, without the norm")
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw, table=table)
