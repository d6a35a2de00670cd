"""Study: does attention on text slow down at a constant learning rate?

Section 8 says that it "freezes" and becomes sparse. Here it has *slowed to a quarter* where it
changes by less than a quarter of its fastest change (docs/measures.md, "Snap, slowed, settled").
What slows attention down may be its own dynamics, or that the text is learnt by heart: gradients
vanish then, and with them all motion. Each training is therefore also judged where its validation
loss is lowest (early stopping). That does not tell the two causes apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Experiment, Judgement, Standing, StudyRecipe, Table
from attnlab.experiments.estimate import Estimate, jackknife, numbers_of
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.papers.scan_and_snap.figures import text_runs
from attnlab.papers.scan_and_snap.figures.text_runs import SLOWED, TextRecipe
from attnlab.plots import style

LAST = 3  # moments that are the end


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe, TextRecipe):
    """moments: steps at which the speed is measured, over the `gap` steps that follow each."""

    moments: tuple[int, ...]
    gap: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.moments) <= LAST or list(self.moments) != sorted(set(self.moments)):
            raise InputError(f"moments: expected more than {LAST} rising steps")
        if not self.gap or min(np.diff(self.moments)) <= self.gap:
            raise InputError("gap: expected at least 1, and less than between two moments")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Over (layers, rate, seed, moment), of the first layer: `change`, the share of a query's
    attention that goes elsewhere within `gap` steps; `entropy` (nats) and `top`, attention to the
    strongest token; of the model `train_loss`, since the record before, and `validation_loss`."""
    moments = list(recipe.moments)
    later = [moment + recipe.gap for moment in moments]
    measured = sorted({*moments, *later})
    training = {
        **recipe.training,
        "seeds": recipe.seeds,
        "steps": measured[-1],
        "at": (0, *measured),
    }

    def measure(result: xr.Dataset) -> xr.Dataset:
        first = result.isel(layer=0, drop=True)
        maps = first["attention"]
        after = maps.sel(step=later).assign_coords(step=moments)
        moved = abs(after - maps.sel(step=moments)).sum("key", skipna=False) / 2
        part = {
            "change": moved.mean(["head", "probe", "query"], skipna=False),
            "entropy": first["entropy"].mean("head"),
            "top": first["top_mass"].isel(k=0, drop=True).mean("head"),
            "train_loss": first["train_loss"],
            "validation_loss": first["validation_loss"],
        }
        return xr.Dataset(part).sel(step=moments).rename(step="moment")

    changed = replace(recipe, training=training)
    runs = text_runs.by_depth(changed, measure, progress=progress, keep=keep)
    return runs.transpose("layers", "rate", "seed", "moment").assign_attrs(gap=recipe.gap)


def left(change: xr.DataArray, *, best: xr.DataArray | None = None) -> Estimate:
    """Return the share of the fastest change that is left at the end, or at each run's `best`.

    The fastest change is that of the mean over seeds; its own error counts in that of the ratio.
    """

    def ratio(kept: xr.DataArray) -> float:
        if best is None:
            own = kept.isel(moment=slice(-LAST, None)).mean("moment", skipna=False)
        else:
            own = kept.sel(moment=best.sel(seed=kept["seed"]))
        return float(own.mean("seed", skipna=False) / kept.mean("seed").max("moment"))

    return jackknife(ratio, change)


def best_moment(losses: xr.DataArray) -> xr.DataArray:
    """Where each run's validation loss is lowest."""
    return losses["moment"][losses.argmin("moment")]


def _cells(runs: xr.Dataset) -> list[dict[str, Any]]:
    """Return depth and learning rate of each setting."""
    return [
        {"layers": int(depth), "rate": float(rate)}
        for depth, rate in product(runs["layers"].values, runs["rate"].values)
    ]


def _setting(cell: dict[str, Any]) -> str:
    return f"{text_runs.depth_name(cell['layers'])}, rate {cell['rate']:g}"


def verdict(estimate: Estimate) -> str:
    """Say "slowed" (to a quarter) or "moving", where the 95 % interval allows one of them."""
    low, high = estimate.interval()
    if np.isnan(low):
        return "lost"
    return "slowed" if high < SLOWED else "moving" if low > SLOWED else "cannot tell"


def table(runs: xr.Dataset) -> Table:
    """One row per depth and rate."""
    rows = []
    cells = [
        [
            "layers",
            "rate",
            "entropy",
            "top 1",
            "change, fastest",
            "at the end",
            "of the fastest",
            "at the lowest validation loss",
            "its step",
        ]
    ]
    for place in _cells(runs):
        one = runs.sel(place)
        best = best_moment(one["validation_loss"])
        end, early = left(one["change"]), left(one["change"], best=best)
        last = one.isel(moment=slice(-LAST, None)).mean("moment")
        peak = float(one["change"].mean("seed").max("moment"))
        start = one["entropy"].isel(moment=0)
        row = {
            **place,
            "entropy_start": float(start.mean()),
            "entropy_end": float(last["entropy"].mean()),
            "top_end": float(last["top"].mean()),
            "fastest": peak,
            **numbers_of({"left": end, "left_at_best": early}),
            "best": float(best.mean()),
        }
        rows.append(row)
        cells.append(
            [
                str(place["layers"]),
                f"{place['rate']:g}",
                f"{row['entropy_start']:.2f} → {row['entropy_end']:.2f}",
                f"{row['top_end']:.2f}",
                f"{100 * peak:.1f} %",
                f"{100 * float(last['change'].mean()):.1f} %",
                *(f"{_range(of)}\n{verdict(of)}" for of in (end, early)),
                f"{float(best.median()):,.0f}",
            ]
        )
    caption = (
        f"First layer. Change: the share of a query's attention that goes elsewhere within "
        f"{runs.attrs['gap']} steps. Of the fastest: what is left of it, 95 % interval over "
        f"{runs.sizes['seed']} seeds; slowed is below {SLOWED}."
    )
    return Table(rows, caption, cells)


def _range(estimate: Estimate) -> str:
    low, high = estimate.interval()
    return f"{estimate.value:.2f} ({max(low, 0):.2f} to {high:.2f})"


def draw(runs: xr.Dataset) -> Figure:
    """Speed, entropy and losses against the step, a row for each depth."""
    depths, rates = runs["layers"].values, runs["rate"].values
    with style.page(1.55 * depths.size + 0.9) as figure:
        axes = figure.subplots(depths.size, 3, sharex=True, squeeze=False)
        for row, depth in zip(axes, depths, strict=True):
            for rate, colour in zip(rates, style.ordered(rates.size), strict=True):
                one = runs.sel(layers=depth, rate=rate)
                steps = one["moment"]
                for ax, name in zip(row, ("change", "entropy", "validation_loss"), strict=True):
                    middle = one[name].mean("seed")
                    ax.plot(steps, middle, color=colour, label=f"rate {rate:g}", linewidth=1.1)
                    ax.fill_between(
                        steps,
                        one[name].min("seed"),
                        one[name].max("seed"),
                        color=colour,
                        alpha=0.15,
                        linewidth=0,
                    )
                row[2].plot(
                    steps,
                    one["train_loss"].mean("seed"),
                    color=colour,
                    linestyle=style.DASHES[1],
                    linewidth=0.9,
                )
            row[0].set_ylabel(text_runs.depth_name(int(depth)))
            row[0].set_yscale("log")
        for ax in axes[-1]:
            ax.set_xlabel("step")
        for ax in axes.flat:
            ax.set_xscale("log")
        style.panel_titles(
            axes[0],
            [f"change in {runs.attrs['gap']} steps", "entropy (nats)", "loss (dashed: training)"],
        )
        style.legend_above(
            figure,
            axes[0][0],
            title=f"first layer; means over {runs.sizes['seed']} seeds, bands: their range",
        )
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """Where does attention slow to a quarter, and where does entropy fall?"""
    numbers: dict[str, float] = {}
    told, ends, earlies, sparse = [], [], [], []
    for place in _cells(runs):
        one = runs.sel(place)
        end = left(one["change"])
        early = left(one["change"], best=best_moment(one["validation_loss"]))
        key = f"{place['layers']}_{place['rate']:g}"
        fall = one["entropy"].isel(moment=slice(-LAST, None)).mean("moment")
        lower = jackknife(
            lambda of: float(of.mean()), (fall - one["entropy"].isel(moment=0)).drop_vars("moment")
        )
        numbers |= numbers_of(
            {f"left_{key}": end, f"left_at_best_{key}": early, f"entropy_change_{key}": lower}
        )
        ends.append(verdict(end))
        earlies.append(verdict(early))
        sparse.append(lower.interval()[1] < 0)
        told.append(
            f"{_setting(place)}: {_range(end)} of the fastest change is left at the end "
            f"({verdict(end)}), {_range(early)} where the validation loss is lowest "
            f"({verdict(early)})"
        )
    headline = (
        f"At a constant rate attention of the first layer has slowed to a quarter of its fastest "
        f"change after {int(runs['moment'][-1]):,} steps in {ends.count('slowed')} of {len(ends)} "
        f"settings; where the validation loss is lowest, in {earlies.count('slowed')}."
    )
    unsure = ends.count("cannot tell")
    settings = "; ".join(told)
    summary = (
        f"{headline} With {settings}. "
        + (f"In {unsure} of {len(ends)} settings the seeds do not tell. " if unsure else "")
        + f"Entropy falls in {sum(sparse)} of {len(sparse)}. Slowed: the 95 % interval over "
        f"{runs.sizes['seed']} seeds is below {SLOWED} of the fastest change, which is our measure."
    )
    alt = (
        f"Change of attention, its entropy, and losses against the step, for rates "
        f"{', '.join(f'{rate:g}' for rate in runs['rate'].values)}. With {settings}."
    )
    return Judgement(_standing(ends, earlies, sparse), headline, summary, alt, numbers)


def _standing(ends: list[str], early: list[str], sparse: list[bool]) -> Standing:
    """Section 8 says that attention becomes sparse and "freezes", without an exception."""
    every = [*ends, *early]
    if all(one == "slowed" for one in every) and all(sparse):
        return Standing.HOLDS
    if all(one == "moving" for one in every) and not any(sparse):
        return Standing.FAILS
    return Standing.PARTLY if "moving" in every or "slowed" in every else Standing.OPEN


EXPERIMENT = Experiment(
    name="freeze",
    kind="study",
    title="Does attention on text slow down at a constant rate?",
    recipe=Recipe,
    data=data,
    judge=judge,
    draw=draw,
    table=table,
)
