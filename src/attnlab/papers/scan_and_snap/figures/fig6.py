"""Fig. 6: entropy of attention over distinct tokens against the ratio of the rates."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from attnlab import measures
from attnlab.experiments import Judgement, SimulationRecipe, Standing, Table, Texts, published
from attnlab.experiments.estimate import count_of
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.sweeping import run_apart

from .recall import by_size, size_titles

TEXTS = Texts.read(__file__)
AXES = ("num_last", "eta_z", "ratio")
FEWEST_SEEDS = 4  # for a covariance
PUBLISHED_SEEDS, ROUNDING = 10, 1e-3  # of the published means; the last digit that is given
# Marks of our cells, and open ones of the published cells.
OPEN: dict[str, Any] = {"color": "black", "markerfacecolor": "none", "linestyle": "none"}
OURS = {"capsize": 2, "linewidth": 1.2, "elinewidth": 0.8}
THEIRS = {**OPEN, "elinewidth": 0.5, "markeredgewidth": 0.7, "markersize": 5.5}
# The figures differ where chance gives the shift or the rest, of a panel or of all of them, less
# often than this: of equal figures of four panels, about one in a hundred is said to differ.
LEAST_CHANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Recipe(SimulationRecipe):
    """A sweep whose seeds are averaged over."""

    def with_seeds(self, seeds: int) -> Self:
        """Return the recipe with another number of seeds."""
        return self.changed(seeds=seeds)


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Entropy over (num_last, eta_z, ratio, seed), its mean and standard deviation over seeds.

    published_mean, published_std: the paper's values, NaN on cells that the paper does not have.
    deviation: ours minus theirs in standard errors, both sides' noise counted.
    """
    results = run_apart(recipe, progress=progress, keep=keep)
    at_end = [measures.distinct_entropy(result).isel(step=-1, drop=True) for result in results]
    entropy = by_size(results, [of.mean("sequence_class").astype(np.float64) for of in at_end])
    return compared(entropy.transpose(*AXES, "seed"))


def published_cells() -> xr.Dataset:
    """Return the paper's `entropy_mean` and `entropy_std`, of all 64 cells.

    Cells of one panel (num_last) share their seeds, so that they deviate together.
    """
    import pandas as pd

    found: xr.Dataset = pd.DataFrame(published(__file__, "fig6")).set_index(list(AXES)).to_xarray()
    return found


def compared(entropy: xr.DataArray) -> xr.Dataset:
    """Compare our runs (num_last, eta_z, ratio, seed) with the published cells."""
    seeds = entropy.sizes["seed"]
    cells = xr.Dataset(
        {
            "entropy": entropy,
            "entropy_mean": entropy.mean("seed"),
            # of a sample, which one seed is not
            "entropy_std": entropy.std("seed", ddof=1) if seeds > 1 else np.nan * entropy[..., 0],
        }
    )
    theirs = published_cells().reindex({axis: cells[axis] for axis in AXES})
    cells["published_mean"], cells["published_std"] = theirs["entropy_mean"], theirs["entropy_std"]
    # of one seed the spread is unknown; the published one is that of the same simulation
    ours = cells["entropy_std"] if seeds > 1 else cells["published_std"]
    variance = ours**2 / seeds + cells["published_std"] ** 2 / PUBLISHED_SEEDS
    cells["deviation"] = (cells["entropy_mean"] - cells["published_mean"]) / np.sqrt(variance)
    return cells.assign_attrs(seeds=seeds)


def by_panel(cells: xr.Dataset) -> dict[int, Agreement]:
    """Return how each panel agrees with the published one, by its number of queries."""
    each = {int(n): _agreement(cells.sel(num_last=[n])) for n in cells["num_last"].values}
    return {num_last: of for num_last, of in each.items() if of is not None}


def _agreement(cells: xr.Dataset) -> Agreement | None:
    """Test all of these cells together against the published ones; None for too few."""
    flat = cells.stack(cell=AXES)
    flat = flat.isel(cell=np.flatnonzero(np.isfinite(flat["published_mean"])))
    if flat.sizes["cell"] < 2 or flat.sizes["seed"] < FEWEST_SEEDS:
        return None
    return agreement(
        flat["entropy"].transpose("cell", "seed").values,
        flat["published_mean"].values,
        flat["published_std"].values,
        seeds=PUBLISHED_SEEDS,
        rounding=ROUNDING,
    )


def table(cells: xr.Dataset) -> Table:
    """Return a row for each cell; a page shows those that are published, with their values."""
    frame = cells[["entropy_mean", "entropy_std"]].to_dataframe(dim_order=AXES).reset_index()
    frame = frame[[*AXES, "entropy_mean", "entropy_std"]].assign(seeds=cells.attrs["seeds"])
    theirs = cells["published_mean"].notnull()
    axes = {name: cells[name].values[theirs.any([a for a in AXES if a != name])] for name in AXES}
    queries, rates, ratios = axes.values()
    shown = [
        [f"{n:.4g}", f"{eta_z:.4g}"]
        + [_cell(cells.sel(num_last=n, eta_z=eta_z, ratio=ratio)) for ratio in ratios]
        for n, eta_z in product(queries, rates)
    ]
    heading = ["queries", "eta_Z", *(f"ratio {ratio:.4g}" for ratio in ratios)]
    return Table(frame.to_dict("records"), TEXTS.caption, [heading, *shown] if shown else ())


def _cell(cell: xr.Dataset) -> str:
    """Return our value and the published one, where there is one, with their deviation."""

    def one(name: str) -> str:
        mean, std = (float(cell[f"{name}_{what}"]) for what in ("mean", "std"))
        return f"{mean:.3f}" + (f" ± {std:.3f}" if np.isfinite(std) else "")

    if not np.isfinite(cell["published_mean"]):
        return one("entropy")
    deviation = float(cell["deviation"])
    apart = f"\n{deviation:+.1f} s.e." if np.isfinite(deviation) else ""
    return f"{one('entropy')}\npublished {one('published')}{apart}"


def draw(cells: xr.Dataset) -> Figure:
    """Draw a panel for each num_last, a line for each eta_Z; open marks: published values."""
    panels = cells["num_last"].values
    ratio = cells["ratio"].values
    position = np.arange(ratio.size)
    with style.page(2.75) as figure:
        axes = figure.subplots(1, panels.size, sharey=True, squeeze=False)[0]
        colours = style.ordered(cells.sizes["eta_z"])
        for ax, num_last in zip(axes, panels, strict=True):
            for i, colour in enumerate(colours):
                line = cells.sel(num_last=num_last).isel(eta_z=i)
                shift = 0.09 * (i - (len(colours) - 1) / 2)
                label = rf"$\eta_Z$ = {float(line['eta_z']):g}"
                looks: dict[str, Any] = {
                    "entropy": {**OURS, "color": colour, "label": label},
                    "published": THEIRS,
                }
                for x, (name, styles) in zip((0.0, 0.05), looks.items(), strict=True):
                    mean, std = line[f"{name}_mean"], line[f"{name}_std"]
                    at = position + shift + x
                    ax.errorbar(at, mean, yerr=std, marker=style.MARKERS[i], **styles)
            ax.set_xticks(position, [f"{value:g}" for value in ratio])
            ax.set_xlabel(r"ratio $\eta_Y/\eta_Z$")
        style.panel_titles(axes, size_titles(cells))
        axes[0].set_ylabel("entropy over distinct\ntokens (nats)")
        handles, labels = axes[0].get_legend_handles_labels()
        mark = Line2D([], [], marker="o", **OPEN)
        handles, labels = [*handles, mark], [*labels, "published"]
        figure.legend(handles, labels, loc="outside upper center", ncols=len(handles))
    return figure


def judge(cells: xr.Dataset) -> Judgement:
    """Judge whether the published panels agree, and the two trends hold over the whole grid."""
    mean = cells["entropy_mean"]
    falls = mean.diff("eta_z") < 0
    rises = mean.sel(ratio=slice(2, None)).diff("ratio") > 0
    numbers = {
        "cells_falling_with_eta_z": float(falls.mean()),
        "cells_rising_with_ratio_from_2": float(rises.mean()) if rises.size else float("nan"),
    }
    trends = TEXTS.part("trends", falls=count_of(falls), rises=count_of(rises))
    panels, joint = by_panel(cells), _agreement(cells)
    agrees = all(
        min(of.shift_chance, of.rest_chance) > LEAST_CHANCE
        for of in (joint, *panels.values())
        if of is not None
    )
    for num_last, of in panels.items():
        numbers |= {f"shift_{num_last}": of.shift, f"rest_{num_last}": of.rest}
    if panels and joint is not None:
        numbers["largest_shift"] = max(abs(of.shift) for of in panels.values())
        numbers["largest_rest"] = max(of.rest for of in panels.values())
        numbers |= {"joint_p_shift": joint.shift_chance, "joint_p_rest": joint.rest_chance}
        headline, match = _match(cells, panels, joint, agrees)
    else:
        headline, match = trends, TEXTS.part("no_match", fewest=FEWEST_SEEDS)
    in_trend = bool(falls.all()) and numbers["cells_rising_with_ratio_from_2"] > 0.9
    return TEXTS.judgement(
        Standing.of(agrees and in_trend, in_part=agrees),
        numbers,
        agreement=headline,
        match=match,
        trends=trends,
        panels=cells.sizes["num_last"],
        lowest_eta_z=float(cells["eta_z"].min()),
        highest_eta_z=float(cells["eta_z"].max()),
        low=float(mean.min()),
        high=float(mean.max()),
    )


def _match(
    cells: xr.Dataset, panels: dict[int, Agreement], joint: Agreement, agrees: bool
) -> tuple[str, str]:
    """Return how the figure agrees with the published one: the headline, and more about it."""
    deviation = cells["deviation"].values[np.isfinite(cells["deviation"].values)]
    each = panels.values()
    values = {
        "higher": int((deviation > 0).sum()),
        "cells": deviation.size,
        "panels": ", ".join(map(str, panels)),
        "shifts": ", ".join(f"{of.shift:+.1f}" for of in each),
        "shift": joint.shift,
        "joint_p_shift": joint.shift_chance,
        "joint_p_rest": joint.rest_chance,
        "bound": LEAST_CHANCE,
        "agree": "agree" if agrees else "differ",
        "chances": ", ".join(f"{100 * of.shift_chance:.2g}" for of in each),
        "rests": ", ".join(f"{of.rest:.1f}" for of in each),
        "seeds": cells.attrs["seeds"],
        "their_seeds": PUBLISHED_SEEDS,
    }
    headline = TEXTS.part("agreement", **values)
    return headline, TEXTS.part("match", **values, agreement=headline)


# -- panels of two samples ------------------------------------------------------------------------
#
# Cells that share seeds deviate together, so that an r.m.s. over them says little: most of it is
# one number, drawn once. So a panel is judged by two numbers, its common shift and the rest, each
# in units of what chance gives with the covariance of the cells.


@dataclass(frozen=True)
class Agreement:
    """Agreement of one panel with another sample of it.

    shift: the mean over cells of the difference in standard errors, in its own standard errors.
    rest: the mean square of what is left, over what is expected of it: near 1 for equal panels.
    shift_chance, rest_chance: how often equal panels have a larger one.
    """

    shift: float
    shift_chance: float
    rest: float
    rest_chance: float


def agreement(
    values: NDArray[np.float64],
    mean: NDArray[np.float64],
    std: NDArray[np.float64],
    *,
    seeds: int,
    rounding: float = 0.0,
) -> Agreement:
    """Compare our `values` (cell, seed) with a published `mean` and `std` (cell) over `seeds`.

    Both samples are taken to come from one distribution, in which cells correlate over seeds; the
    correlations are estimated from our seeds. rounding: of the published means.
    """
    from scipy import stats

    cells, ours = values.shape
    if ours < FEWEST_SEEDS:
        raise InputError(f"seeds: a covariance needs at least {FEWEST_SEEDS}, got {ours}")
    freedom = ours - 1
    own_std = values.std(axis=1, ddof=1)
    pooled = freedom + seeds - 1
    variance = (freedom * own_std**2 + (seeds - 1) * std**2) / pooled
    error = np.sqrt(variance * (1 / ours + 1 / seeds) + rounding**2 / 12)
    u = (values.mean(axis=1) - mean) / error
    # R over seeds; var(mean of u) = sum(R) / n^2, and E sum (u - mean u)^2 = tr(C R C), C centring
    w = (values - values.mean(axis=1, keepdims=True)) / own_std[:, None]
    of_shift = float(w.mean(axis=0) @ w.mean(axis=0)) / freedom
    left = w - w.mean(axis=0)
    gram = left.T @ left / freedom  # (seed, seed), with the traces of C R C and of its square
    trace = float(np.trace(gram))
    # unbiased for tr((C R C)^2) of normal samples, which the plain square overestimates
    square = float(np.sum(gram**2)) - trace**2 / freedom
    square *= freedom**2 / ((freedom + 2) * (freedom - 1))
    # as many independent cells as would vary as much (Satterthwaite)
    effective = float(np.clip(trace**2 / max(square, 1e-300), 1, cells - 1))
    shift = float(u.mean()) / np.sqrt(of_shift)
    # u^2 is expected to be more than 1, because its error is estimated too
    rest = float(np.sum((u - u.mean()) ** 2)) / (trace * pooled / (pooled - 2))
    return Agreement(
        shift=shift,
        shift_chance=float(2 * stats.t.sf(abs(shift), freedom)),
        rest=rest,
        rest_chance=float(stats.f.sf(rest * pooled / (pooled - 2), effective, pooled)),
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw, table=table)
