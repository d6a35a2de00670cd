"""Fig. 6: entropy of attention over distinct tokens against the ratio of the rates."""

from __future__ import annotations

import csv
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from attnlab.figures import style
from attnlab.figures.finding import Finding, Outcome
from attnlab.figures.recipe import SimulationRecipe
from attnlab.figures.sizes import by_size, size_titles
from attnlab.results import measures
from attnlab.sweep import Progress, run_parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Sparsity of attention against the learning rates"
Recipe = SimulationRecipe
AXES = ("num_last", "eta_z", "ratio")
COLUMNS = (*AXES, "entropy_mean", "entropy_std", "seeds")
PUBLISHED_SEEDS = 10
# In standard errors, over the published cells. Cells of one panel share their seeds and deviate
# together (their correlation is 0.7), so that the r.m.s. varies more than that of 32 independent
# numbers. Of 20,000 pairs of disjoint samples of ten seeds, from 200 seeds of this very simulation,
# half have an r.m.s. above 0.92, 10 % above 1.5, 1 % above 2.1; 1 % have a cell above 4.
MOST_RMS, MOST_DEVIATION = 2.1, 4.0


def data(
    recipe: SimulationRecipe, *, progress: Progress = False, keep: Path | None = None
) -> xr.Dataset:
    """Entropy over (num_last, eta_z, ratio), mean and standard deviation over seeds.

    published_mean, published_std: the paper's values, NaN where we do not have them. deviation:
    ours minus theirs in standard errors, both sides' noise counted.
    """
    parts = run_parts(recipe, progress=progress, keep=keep)
    entropies = []
    for part in parts:
        entropy = measures.distinct_entropy(part.result).isel(step=-1, drop=True)
        entropy = entropy.mean("sequence_class").astype(np.float64)
        entropies.append(entropy)
    entropy = by_size(parts, entropies).transpose(*AXES, "seed")
    seeds = entropy.sizes["seed"]
    cells = xr.Dataset(
        {
            "entropy_mean": entropy.mean("seed"),
            # of a sample, which one seed is not
            "entropy_std": entropy.std("seed", ddof=1) if seeds > 1 else np.nan * entropy[..., 0],
        }
    ).drop_vars("seed", errors="ignore")
    cells["published_mean"], cells["published_std"] = published(cells)
    # of one seed the spread is unknown; the published one is that of the same simulation
    ours = cells["entropy_std"] if seeds > 1 else cells["published_std"]
    variance = ours**2 / seeds + cells["published_std"] ** 2 / PUBLISHED_SEEDS
    cells["deviation"] = (cells["entropy_mean"] - cells["published_mean"]) / np.sqrt(variance)
    return cells.assign_attrs(seeds=seeds)


def published(cells: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """The paper's means and standard deviations on the grid of `cells`, NaN where unknown."""
    mean = xr.full_like(cells["entropy_mean"], np.nan)
    std = mean.copy()
    text = resources.files("attnlab.figures").joinpath("fig6_published.csv").read_text()
    for row in csv.DictReader(text.splitlines()):
        cell = {name: float(row[name]) for name in AXES}
        if all(value in mean[name] for name, value in cell.items()):
            mean.loc[cell] = float(row["entropy_mean"])
            std.loc[cell] = float(row["entropy_std"])
    return mean, std


def table(cells: xr.Dataset) -> list[dict[str, float]]:
    """One row per cell with the columns of table.csv."""
    rows = []
    for index in np.ndindex(*(cells.sizes[name] for name in AXES)):
        cell = cells.isel(dict(zip(AXES, index, strict=True)))
        rows.append({name: float(cell[name]) for name in COLUMNS[:-1]})
        rows[-1] |= {"num_last": int(cell["num_last"]), "seeds": cells.attrs["seeds"]}
    return rows


def draw(cells: xr.Dataset) -> Figure:
    """A panel for each num_last, a line for each eta_Z; open marks are the published values."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    panels = cells["num_last"].values
    ratio = cells["ratio"].values
    position = np.arange(ratio.size)
    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 2.75), layout="constrained")
        axes = figure.subplots(1, panels.size, sharey=True, squeeze=False)[0]
        colours = style.ordered(cells.sizes["eta_z"])
        for ax, num_last in zip(axes, panels, strict=True):
            for i, colour in enumerate(colours):
                line = cells.sel(num_last=num_last).isel(eta_z=i)
                shift = 0.09 * (i - (len(colours) - 1) / 2)
                ax.errorbar(
                    position + shift, line["entropy_mean"], yerr=line["entropy_std"],
                    color=colour, marker=style.MARKERS[i], capsize=2, linewidth=1.2,
                    elinewidth=0.8, label=rf"$\eta_Z$ = {float(line['eta_z']):g}",
                )  # fmt: skip
                ax.errorbar(
                    position + shift + 0.05, line["published_mean"], yerr=line["published_std"],
                    color="black", marker=style.MARKERS[i], markerfacecolor="none",
                    linestyle="none", elinewidth=0.5, markeredgewidth=0.7, markersize=5.5,
                )  # fmt: skip
            ax.set_xticks(position, [f"{value:g}" for value in ratio])
            ax.set_xlabel(r"ratio $\eta_Y/\eta_Z$")
        style.panel_titles(axes, size_titles(cells))
        axes[0].set_ylabel("entropy over distinct\ntokens (nats)")
        handles, labels = axes[0].get_legend_handles_labels()
        handles.append(
            Line2D([], [], color="black", marker="o", markerfacecolor="none", linestyle="none")
        )
        figure.legend(
            handles, [*labels, "published"], loc="outside upper center", ncols=len(handles)
        )
    return figure


def judge(cells: xr.Dataset) -> Finding:
    """Do the published cells agree, and do the two trends hold over the whole grid?"""
    mean = cells["entropy_mean"]
    falls = mean.diff("eta_z") < 0
    rises = mean.sel(ratio=slice(2, None)).diff("ratio") > 0
    numbers = {
        "cells_falling_with_eta_z": float(falls.mean()),
        "cells_rising_with_ratio_from_2": float(rises.mean()) if rises.size else float("nan"),
    }
    deviation = cells["deviation"].values[np.isfinite(cells["deviation"].values)]
    trends = (
        f"Entropy falls with eta_Z in {int(falls.sum())} of {falls.size} comparisons, and rises "
        f"with the ratio beyond 2 in {int(rises.sum())} of {rises.size}."
    )
    if deviation.size:
        numbers["rms_deviation"] = float(np.sqrt(np.mean(deviation**2)))
        numbers["largest_deviation"] = float(np.abs(deviation).max())
        matched = numbers["rms_deviation"] < MOST_RMS
        matched &= numbers["largest_deviation"] < MOST_DEVIATION
        match = (
            f"The {deviation.size} published cells are {'matched' if matched else 'not matched'}: "
            f"the deviation has an r.m.s. of {numbers['rms_deviation']:.2f} standard errors and is "
            f"{numbers['largest_deviation']:.1f} at most ({cells.attrs['seeds']} seeds here, "
            f"{PUBLISHED_SEEDS} there; the noise of both is counted). Cells share their "
            f"seeds and deviate together: of pairs of runs of one and the same simulation, 10 % "
            f"differ by more than 1.5 r.m.s., and 1 % by more than {MOST_RMS:g}. "
        )
        headline = (
            f"The {deviation.size} published cells are {'matched' if matched else 'not matched'}: "
            f"the deviation is {numbers['rms_deviation']:.2f} standard errors r.m.s. and "
            f"{numbers['largest_deviation']:.1f} at most."
        )
    else:
        matched, match = True, "No published cell is on this grid. "
        headline = trends
    low, high = float(mean.min()), float(mean.max())
    alt = (
        f"Entropy of attention over distinct tokens against the ratio of the rates, in "
        f"{cells.sizes['num_last']} panels by number of queries, with one line per eta_Z from "
        f"{float(cells['eta_z'].min()):g} to {float(cells['eta_z'].max()):g}. Values lie between "
        f"{low:.2f} and {high:.2f} nats. {match}{trends}"
    )
    in_trend = bool(falls.all()) and numbers["cells_rising_with_ratio_from_2"] > 0.9
    if not matched:
        outcome = Outcome.DIFFERS
    else:
        outcome = Outcome.REPRODUCED if in_trend else Outcome.PARTLY
    return Finding(outcome, headline, match + trends, alt, numbers)
