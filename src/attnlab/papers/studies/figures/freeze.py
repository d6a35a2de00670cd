"""Study: does attention on text slow down at a constant learning rate?

Section 8 says that it "freezes" and becomes sparse. Here it has *slowed to a quarter* where it
changes by less than a quarter of its fastest change (docs/measures.md, "Snap, slowed, settled").
What slows attention down may be its own dynamics, or that the text is learnt by heart: gradients
vanish then, and with them all motion. Each training is therefore also judged where its validation
loss is lowest (early stopping). That does not separate the two causes.
"""

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Judgement, Standing, StudyRecipe, Table, Texts
from attnlab.experiments.drawing import draw_range
from attnlab.experiments.estimate import Estimate, jackknife, numbers_of
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.papers.scan_and_snap.figures import text_runs
from attnlab.papers.scan_and_snap.figures.text_runs import SLOWED, TextRecipe
from attnlab.plots import style

TEXTS = Texts.read(__file__)
LAST = 3  # measured steps that count as the end


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe, TextRecipe):
    """measured_steps: at which the speed is measured, over the `gap` steps that follow each."""

    measured_steps: tuple[int, ...]
    gap: int

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = self.measured_steps
        if len(steps) <= LAST or list(steps) != sorted(set(steps)):
            raise InputError(f"measured_steps: expected more than {LAST} rising steps")
        if not self.gap or min(np.diff(steps)) <= self.gap:
            raise InputError("gap: expected at least 1, and less than between two measured steps")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return over (layers, rate, seed, measured_step), of the first layer: `change`, the share of a
    query's attention that goes elsewhere within `gap` steps; `entropy` (nats) and `top`,
    attention to the strongest token; of the model `train_loss`, since the previous record, and
    `validation_loss`.
    """
    steps = list(recipe.measured_steps)
    later = [step + recipe.gap for step in steps]
    measured = sorted({*steps, *later})
    own = {"seeds": recipe.seeds, "steps": measured[-1], "at": (0, *measured)}

    def measure(result: xr.Dataset) -> xr.Dataset:
        first = result.isel(layer=0, drop=True)
        maps = first["attention"]
        after = maps.sel(step=later).assign_coords(step=steps)
        moved = abs(after - maps.sel(step=steps)).sum("key", skipna=False) / 2
        part = {
            "change": moved.mean(["head", "probe", "query"], skipna=False),
            "entropy": first["entropy"].mean("head"),
            "top": first["top_mass"].isel(k=0, drop=True).mean("head"),
            **{name: first[name] for name in ("train_loss", "validation_loss")},
        }
        return xr.Dataset(part).sel(step=steps).rename(step="measured_step")

    changed = replace(recipe, training={**recipe.training, **own})
    runs = text_runs.by_depth(changed, measure, progress=progress, keep=keep)
    return runs.transpose("layers", "rate", "seed", "measured_step").assign_attrs(gap=recipe.gap)


def left(change: xr.DataArray, *, best: xr.DataArray | None = None) -> Estimate:
    """Return the share of the fastest change that remains at the end, or at each run's `best`.

    The fastest change is that of the mean over seeds; its own error counts in that of the ratio.
    """

    def ratio(kept: xr.DataArray) -> float:
        if best is None:
            own = kept.isel(measured_step=slice(-LAST, None)).mean("measured_step", skipna=False)
        else:
            own = kept.sel(measured_step=best.sel(seed=kept["seed"]))
        return float(own.mean("seed", skipna=False) / kept.mean("seed").max("measured_step"))

    return jackknife(ratio, change)


def best_step(losses: xr.DataArray) -> xr.DataArray:
    """Return the step at which each run's validation loss is lowest."""
    return losses["measured_step"][losses.argmin("measured_step")]


def verdict(estimate: Estimate) -> str:
    """Say "slowed" (to a quarter) or "moving", where the 95 % interval allows one of them."""
    low, high = estimate.interval()
    if np.isnan(low):
        return "lost"
    return "slowed" if high < SLOWED else "moving" if low > SLOWED else "cannot tell"


def _cells(runs: xr.Dataset) -> list[tuple[xr.Dataset, dict[str, Any], dict[str, Estimate]]]:
    """Return each setting: its runs, its depth and learning rate, and what was found there."""
    cells = []
    for layers, rate in product(runs["layers"].values.tolist(), runs["rate"].values.tolist()):
        one = runs.sel(layers=layers, rate=rate)
        end = one["entropy"].isel(measured_step=slice(-LAST, None)).mean("measured_step")
        lower = (end - one["entropy"].isel(measured_step=0)).drop_vars("measured_step")
        found = {
            "left": left(one["change"]),
            "left_at_best": left(one["change"], best=best_step(one["validation_loss"])),
            "entropy_change": jackknife(lambda of: float(of.mean()), lower),
        }
        cells.append((one, {"layers": layers, "rate": rate}, found))
    return cells


def table(runs: xr.Dataset) -> Table:
    """One row per depth and rate."""
    rows, cells = [], []
    for one, place, found in _cells(runs):
        shares = {name: found[name] for name in ("left", "left_at_best")}
        best = best_step(one["validation_loss"])
        last = one.isel(measured_step=slice(-LAST, None)).mean("measured_step")
        row = {
            **place,
            "entropy_start": float(one["entropy"].isel(measured_step=0).mean()),
            "entropy_end": float(last["entropy"].mean()),
            "top_end": float(last["top"].mean()),
            "fastest": float(one["change"].mean("seed").max("measured_step")),
            **numbers_of(shares),
            "best": float(best.mean()),
        }
        rows.append(row)
        cells.append(
            [
                str(place["layers"]),
                f"{place['rate']:g}",
                f"{row['entropy_start']:.2f} → {row['entropy_end']:.2f}",
                f"{row['top_end']:.2f}",
                f"{100 * row['fastest']:.1f} %",
                f"{100 * float(last['change'].mean()):.1f} %",
                *(f"{_range(of)}\n{verdict(of)}" for of in shares.values()),
                f"{float(best.median()):,.0f}",
            ]
        )
    return TEXTS.table(rows, cells, gap=runs.attrs["gap"], seeds=runs.sizes["seed"], slowed=SLOWED)


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
                steps, styles = one["measured_step"], {"color": colour, "label": f"rate {rate:g}"}
                for ax, name in zip(row, ("change", "entropy", "validation_loss"), strict=True):
                    draw_range(ax, steps, one[name], linewidth=1.1, **styles)
                train, dashed = one["train_loss"].mean("seed"), {"linestyle": style.DASHES[1]}
                row[2].plot(steps, train, color=colour, linewidth=0.9, **dashed)
            row[0].set(ylabel=text_runs.depth_name(int(depth)), yscale="log")
        for ax in axes[-1]:
            ax.set(xscale="log", xlabel="step")
        TEXTS.label(axes[0], runs=runs)
        style.legend_above(figure, axes[0][0], title=TEXTS.legend.format(runs=runs))
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """Judge where attention slows to a quarter, and where entropy falls."""
    numbers: dict[str, Estimate] = {}
    told, ends, earlies, sparse = [], [], [], []
    for _, place, found in _cells(runs):
        end, early, lower = found.values()
        numbers |= {f"{name}_{place['layers']}_{place['rate']:g}": of for name, of in found.items()}
        ends.append(verdict(end))
        earlies.append(verdict(early))
        sparse.append(lower.interval()[1] < 0)
        shown = {"end": (_range(end), ends[-1]), "early": (_range(early), earlies[-1])}
        depth = text_runs.depth_name(place["layers"])
        told.append(TEXTS.part("setting", depth=depth, rate=place["rate"], **shown))
    unsure = ends.count("cannot tell")
    return TEXTS.judgement(
        _standing(ends, earlies, sparse),
        numbers,
        settings="; ".join(told),
        count=len(ends),
        slowed=ends.count("slowed"),
        slowed_early=earlies.count("slowed"),
        unsure=TEXTS.part("unsure", unsure=unsure, count=len(ends)) + " " if unsure else "",
        sparse=sum(sparse),
        last=int(runs["measured_step"][-1]),
        limit=SLOWED,
        seeds=runs.sizes["seed"],
        rates=", ".join(f"{rate:g}" for rate in runs["rate"].values),
    )


def _standing(ends: list[str], early: list[str], sparse: list[bool]) -> Standing:
    """Section 8 says that attention becomes sparse and "freezes", without an exception."""
    every = [*ends, *early]
    if all(one == "slowed" for one in every) and all(sparse):
        return Standing.HOLDS
    if all(one == "moving" for one in every) and not any(sparse):
        return Standing.FAILS
    return Standing.PARTLY if "moving" in every or "slowed" in every else Standing.OPEN


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw, table=table)
