"""Fig. 10: entropy of attention on the validation text after training, against the rate."""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Judgement, Standing, Table, Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from . import text_runs

TEXTS = Texts.read(__file__)
MEASURED = ("entropy", "loss", "best_loss")
COLUMNS = (*(f"{of}_{end}" for of in MEASURED for end in ("mean", "std")), "best_step", "finite")
PAPERS_DEPTH = 1  # the claim is about a 1-layer transformer; other depths are shown, not judged
NOISE = 0.05  # a change that equal means show more often than this is within noise


def data(
    recipe: text_runs.TextRecipe, *, progress: Progress = False, keep: Path | None = None
) -> xr.Dataset:
    """First-layer entropy (nats) and validation loss over (layers, rate), at the end.

    Mean and standard deviation over the seeds that stayed finite; `finite` counts them. best_loss:
    the lowest validation loss of each training, and best_step where it is, on average: a large rate
    overfits sooner, so that losses after as many steps do not tell which rate learns best. start:
    the entropy before training, over layers.
    """

    def measure(result: xr.Dataset) -> xr.Dataset:
        entropy = result["entropy"].isel(layer=0, drop=True).mean("head")
        cells = {"start": entropy.isel(step=0, drop=True).mean(["rate", "seed"])}
        loss = result["validation_loss"]
        ends = {
            "entropy": entropy.isel(step=-1, drop=True),
            "loss": loss.isel(step=-1, drop=True),
            "best_loss": loss.min("step"),
        }
        for name, values in ends.items():
            own = values.astype(np.float64)
            cells |= {f"{name}_mean": own.mean("seed"), f"{name}_std": own.std("seed", ddof=1)}
        cells["best_step"] = loss.fillna(np.inf).idxmin("step").mean("seed")
        cells["finite"] = (result["diverged_step"] < 0).sum("seed")
        return xr.Dataset(cells)

    found = text_runs.by_depth(recipe, measure, progress=progress, keep=keep)
    run = recipe.run(recipe.corpus)
    return found.assign_attrs(seeds=run.grid.seeds.size, steps=run.motion.steps)


def table(cells: xr.Dataset) -> Table:
    """One row per depth and rate."""
    frame = cells[list(COLUMNS)].to_dataframe(dim_order=["layers", "rate"]).reset_index()
    return Table(frame[["layers", "rate", *COLUMNS]].to_dict("records"), TEXTS.caption)


def draw(cells: xr.Dataset) -> Figure:
    """Draw entropy against the learning rate, and what that does to the loss."""
    with style.page(2.9) as figure:
        axes = figure.subplots(1, 2)
        colours = style.ordered(cells.sizes["layers"])
        for ax, name in zip(axes, ("entropy", "best_loss"), strict=True):
            for i, colour in enumerate(colours):
                line = cells.isel(layers=i)
                depth = text_runs.depth_name(int(line["layers"]))
                mean, std = line[f"{name}_mean"], line[f"{name}_std"]
                styles: Any = {"color": colour, "marker": style.MARKERS[i], "label": depth}
                ax.errorbar(line["rate"], mean, yerr=[np.fmin(std, mean), std], capsize=2, **styles)
                if name == "entropy":
                    ax.axhline(float(line["start"]), color=colour, linestyle=":", linewidth=0.8)
            style.log_ticks(ax, cells["rate"].values)
        TEXTS.label(axes)
        style.legend_above(figure, axes[0], title=TEXTS.legend.format(**cells.attrs))
    return figure


def judge(cells: xr.Dataset) -> Judgement:
    """Judge whether the entropy of the 1-layer transformer falls with the rate, beyond noise."""
    loss, rates, depths = cells["best_loss_mean"], cells["rate"].values, cells["layers"].values
    numbers: dict[str, float] = {}
    each: list[str] = []
    counts: dict[int, dict[str, Any]] = {}
    for depth in depths:
        own = cells.sel(layers=depth)
        steps = [_change(own, i, i + 1) for i in range(rates.size - 1)]
        entropy = own["entropy_mean"]
        found = {
            "falls": steps.count(-1),
            "rises": steps.count(1),
            "entropy_smallest_rate": float(entropy[0]),
            "entropy_largest_rate": float(entropy[-1]),
            "sparsest_rate": float(rates[int(entropy.argmin("rate"))]),
        }
        numbers |= {f"{name}_{depth}": float(value) for name, value in found.items()}
        counts[depth] = {
            **found,
            "depth": text_runs.depth_name(depth),
            "steps": len(steps),
            "best": float(rates[int(loss.sel(layers=depth).argmin("rate"))]),
        }
        each.append(TEXTS.part("depth", **counts[depth]))
    span = f"from rate {rates[0]:g} to {rates[-1]:g}"
    if PAPERS_DEPTH in depths:
        whole = _change(cells.sel(layers=PAPERS_DEPTH), 0, -1)
        standing = _standing(whole, counts[PAPERS_DEPTH]["rises"])
        in_words = ("does not change beyond noise", "rises", "falls")[whole]
        trend = TEXTS.part("trend", **counts[PAPERS_DEPTH], span=span, whole=in_words)
    else:
        standing, trend = Standing.OPEN, TEXTS.part("no_trend", span=span)
    lost = int(cells.attrs["seeds"] * cells["finite"].size - cells["finite"].sum())
    return TEXTS.judgement(
        standing,
        numbers,
        trend=trend,
        each="; ".join(each),
        seeds=cells.attrs["seeds"],
        iterations=cells.attrs["steps"],
        corpus=cells.attrs["corpus"],
        lost=f"; {lost} runs left the finite numbers and are not in them" if lost else "",
        noise=100 * NOISE,
        span=span,
    )


def _change(cells: xr.Dataset, before: int, after: int) -> int:
    """-1 where the entropy falls between two rates, 1 where it rises, 0 within noise."""
    from scipy.stats import ttest_ind_from_stats

    ends = cells.isel(rate=[before, after])
    (mean, other), (std, other_std) = ends["entropy_mean"].values, ends["entropy_std"].values
    seeds = ends["finite"].values
    chance = ttest_ind_from_stats(
        other, other_std, int(seeds[1]), mean, std, int(seeds[0]), equal_var=False
    ).pvalue
    return int(np.sign(other - mean)) if chance < NOISE else 0  # NaN, of one seed, is noise


def _standing(whole: int, rises: int) -> Standing:
    if whole < 0:
        return Standing.PARTLY if rises else Standing.HOLDS
    return Standing.FAILS if whole > 0 or rises else Standing.OPEN


EXPERIMENT = TEXTS.experiment(
    recipe=text_runs.TextRecipe, data=data, judge=judge, draw=draw, table=table
)
