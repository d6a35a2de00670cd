"""Fig. 6: entropy of attention over distinct tokens against the ratio of the rates."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Self

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnlab import measures
from attnlab.experiments import Judgement, SimulationRecipe, Standing, Table
from attnlab.experiments.estimate import count_of
from attnlab.experiments.panels import FEWEST_SEEDS, Agreement, agreement
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.sweeping import run_apart

from . import figure, published
from .recall import by_size, size_titles

AXES = tuple(published.FIG6_AXES)
CAPTION = (
    "Entropy over distinct tokens, mean ± standard deviation over seeds: ours, the published "
    "value, and the deviation in standard errors (both sides' noise counted). Cells with the same "
    "number of queries see the same random numbers, so they deviate together."
)
# The figures differ where chance gives the shift or the rest, of a panel or of all of them, less
# often than this: of equal figures of four panels, about one in a hundred is said to differ.
LEAST_CHANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Recipe(SimulationRecipe):
    """A sweep whose seeds are averaged over."""

    def with_seeds(self, seeds: int) -> Self:
        """The same with another number of seeds."""
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


def compared(entropy: xr.DataArray) -> xr.Dataset:
    """Our runs (num_last, eta_z, ratio, seed) beside the published cells."""
    seeds = entropy.sizes["seed"]
    cells = xr.Dataset(
        {
            "entropy": entropy,
            "entropy_mean": entropy.mean("seed"),
            # of a sample, which one seed is not
            "entropy_std": entropy.std("seed", ddof=1) if seeds > 1 else np.nan * entropy[..., 0],
        }
    )
    theirs = published.fig6().reindex({axis: cells[axis] for axis in AXES})
    cells["published_mean"], cells["published_std"] = theirs["entropy_mean"], theirs["entropy_std"]
    # of one seed the spread is unknown; the published one is that of the same simulation
    ours = cells["entropy_std"] if seeds > 1 else cells["published_std"]
    variance = ours**2 / seeds + cells["published_std"] ** 2 / published.FIG6_SEEDS
    cells["deviation"] = (cells["entropy_mean"] - cells["published_mean"]) / np.sqrt(variance)
    return cells.assign_attrs(seeds=seeds)


def by_panel(cells: xr.Dataset) -> dict[int, Agreement]:
    """How each panel agrees with the published one, by its number of queries."""
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
        seeds=published.FIG6_SEEDS,
        rounding=published.FIG6_ROUNDING,
    )


def table(cells: xr.Dataset) -> Table:
    """A row for each cell; a page shows those that are published beside what is published."""
    frame = cells[["entropy_mean", "entropy_std"]].to_dataframe(dim_order=AXES).reset_index()
    frame = frame[[*AXES, "entropy_mean", "entropy_std"]].assign(seeds=cells.attrs["seeds"])
    theirs = cells["published_mean"].notnull()
    axes = {name: cells[name].values[theirs.any([a for a in AXES if a != name])] for name in AXES}
    queries, rates, ratios = axes.values()
    shown = [
        [f"{n:.4g}", f"{eta_z:.4g}"]
        + [_beside(cells.sel(num_last=n, eta_z=eta_z, ratio=ratio)) for ratio in ratios]
        for n, eta_z in product(queries, rates)
    ]
    heading = ["queries", "eta_Z", *(f"ratio {ratio:.4g}" for ratio in ratios)]
    return Table(frame.to_dict("records"), CAPTION, [heading, *shown] if shown else ())


def _beside(cell: xr.Dataset) -> str:
    def one(name: str) -> str:
        mean, std = (float(cell[f"{name}_{what}"]) for what in ("mean", "std"))
        return f"{mean:.3f}" + (f" ± {std:.3f}" if np.isfinite(std) else "")

    if not np.isfinite(cell["published_mean"]):
        return one("entropy")
    deviation = float(cell["deviation"])
    apart = f"\n{deviation:+.1f} s.e." if np.isfinite(deviation) else ""
    return f"{one('entropy')}\npublished {one('published')}{apart}"


def draw(cells: xr.Dataset) -> Figure:
    """A panel for each num_last, a line for each eta_Z; open marks are the published values."""
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
                ax.errorbar(
                    position + shift,
                    line["entropy_mean"],
                    yerr=line["entropy_std"],
                    color=colour,
                    marker=style.MARKERS[i],
                    capsize=2,
                    linewidth=1.2,
                    elinewidth=0.8,
                    label=rf"$\eta_Z$ = {float(line['eta_z']):g}",
                )
                ax.errorbar(
                    position + shift + 0.05,
                    line["published_mean"],
                    yerr=line["published_std"],
                    color="black",
                    marker=style.MARKERS[i],
                    markerfacecolor="none",
                    linestyle="none",
                    elinewidth=0.5,
                    markeredgewidth=0.7,
                    markersize=5.5,
                )
            ax.set_xticks(position, [f"{value:g}" for value in ratio])
            ax.set_xlabel(r"ratio $\eta_Y/\eta_Z$")
        style.panel_titles(axes, size_titles(cells))
        axes[0].set_ylabel("entropy over distinct\ntokens (nats)")
        handles, labels = axes[0].get_legend_handles_labels()
        mark = Line2D([], [], color="black", marker="o", markerfacecolor="none", linestyle="none")
        handles, labels = [*handles, mark], [*labels, "published"]
        figure.legend(handles, labels, loc="outside upper center", ncols=len(handles))
    return figure


def judge(cells: xr.Dataset) -> Judgement:
    """Do the published panels agree, and do the two trends hold over the whole grid?"""
    mean = cells["entropy_mean"]
    falls = mean.diff("eta_z") < 0
    rises = mean.sel(ratio=slice(2, None)).diff("ratio") > 0
    numbers = {
        "cells_falling_with_eta_z": float(falls.mean()),
        "cells_rising_with_ratio_from_2": float(rises.mean()) if rises.size else float("nan"),
    }
    trends = (
        f"Entropy falls with eta_Z in {count_of(falls)} comparisons, and rises with the ratio "
        f"beyond 2 in {count_of(rises)}."
    )
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
        headline = _headline(cells, panels, joint, agrees)
        match = _in_words(cells, panels, headline)
    else:
        match = f"Not compared with the paper: that needs its cells and {FEWEST_SEEDS} seeds. "
        headline = trends
    low, high = float(mean.min()), float(mean.max())
    alt = (
        f"Entropy of attention over distinct tokens against the ratio of the rates, in "
        f"{cells.sizes['num_last']} panels by number of queries, with one line per eta_Z from "
        f"{float(cells['eta_z'].min()):g} to {float(cells['eta_z'].max()):g}. Values lie between "
        f"{low:.2f} and {high:.2f} nats. {match}{trends}"
    )
    in_trend = bool(falls.all()) and numbers["cells_rising_with_ratio_from_2"] > 0.9
    outcome = Standing.of(agrees and in_trend, in_part=agrees)
    return Judgement(outcome, headline, match + trends, alt, numbers)


def _in_words(cells: xr.Dataset, panels: dict[int, Agreement], headline: str) -> str:
    return (
        f"{headline} Taken one by one, equal panels lie further apart in "
        f"{', '.join(f'{100 * of.shift_chance:.2g}' for of in panels.values())} % of cases. What "
        f"is left of the cells' deviations is "
        f"{', '.join(f'{of.rest:.1f}' for of in panels.values())} times what chance gives. Cells "
        f"share their seeds and deviate together, so a panel, and the figure as a whole, is judged "
        f"by its common shift and by the rest, with the correlations of our "
        f"{cells.attrs['seeds']} seeds over its cells. The paper prints a picture; the published "
        f"values are those of its runs, mean and standard deviation over {published.FIG6_SEEDS} "
        f"seeds to three decimals (measures/{published.FIG6_FILE}). "
    )


def _headline(
    cells: xr.Dataset, panels: dict[int, Agreement], joint: Agreement, agrees: bool
) -> str:
    deviation = cells["deviation"].values[np.isfinite(cells["deviation"].values)]
    return (
        f"Entropy is higher here in {int((deviation > 0).sum())} of {deviation.size} published "
        f"cells; the panels of {', '.join(map(str, panels))} queries lie "
        f"{', '.join(f'{of.shift:+.1f}' for of in panels.values())} standard errors from the "
        f"published ones as a whole, all cells together {joint.shift:+.1f}: joint p = "
        f"{joint.shift_chance:.2g} for such a shift, {joint.rest_chance:.2g} for the rest. At our "
        f"bound of {LEAST_CHANCE:g} the figures {'do not differ' if agrees else 'differ'}."
    )


EXPERIMENT = figure(
    "fig6",
    "Sparsity of attention against the learning rates",
    Recipe,
    data,
    judge,
    draw,
    table=table,
)
