"""Figs. 11 and 12: recall of distinct tokens of Syn-Medium against a threshold on attention.

Fig. 11 varies the ratio eta_Y / eta_Z, Fig. 12 eta_Z. The simulations are those of Fig. 6, with
which titles and sizes are shared.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import measures
from attnlab.experiments import ExperimentRecipe, Judgement, SimulationRecipe, Standing, Texts
from attnlab.experiments.estimate import count_of
from attnlab.files.errors import InputError, refuse_if
from attnlab.files.progress import Progress
from attnlab.formulas.checks import FloatArray
from attnlab.measures.attention import in_play
from attnlab.plots import style
from attnlab.sweeping import run_apart

RATIO_TEXTS, ETA_Z_TEXTS = (Texts.read(__file__, name) for name in ("fig11", "fig12"))
# The fall of a curve is measured between these recalls.
UPPER, LOWER = 0.75, 0.25
RATES = {"ratio": r"$\eta_Y/\eta_Z$", "eta_z": r"$\eta_Z$"}


def by_size(results: list[xr.Dataset], arrays: list[xr.DataArray]) -> xr.DataArray:
    """Join an array per result along `num_last`, the number of queries, which K accompanies."""
    coords = {
        "num_last": [int(result["num_last"]) for result in results],
        "classes": ("num_last", [result.sizes["sequence_class"] for result in results]),
    }
    return xr.concat(arrays, "num_last").assign_coords(coords)


def size_titles(data: xr.Dataset) -> list[str]:
    """Return a title for each size along `num_last`."""
    sizes = zip(data["num_last"].values, data["classes"].values, strict=True)
    return [f"{n:g} {'query' if n == 1 else 'queries'}, K = {k}" for n, k in sizes]


@dataclass(frozen=True)
class Thresholds:
    """`count` thresholds in even ratios from `lowest` to `highest`, in units of 1/M, where M
    counts the contextual tokens: without training each of them has exactly 1/M."""

    lowest: float
    highest: float
    count: int

    def values(self) -> FloatArray:
        """Return the thresholds, in units of 1/M."""
        return np.geomspace(self.lowest, self.highest, self.count)

    def __post_init__(self) -> None:
        refuse_if(not 0 < self.lowest < self.highest, "lowest", "0 < lowest < highest", self.lowest)
        refuse_if(self.count < 2, "count", "at least 2", self.count)


@dataclass(frozen=True, kw_only=True)
class RecallRecipe(ExperimentRecipe):
    """runs: the recipe whose simulations are measured. select: which of their rates."""

    runs: SimulationRecipe
    select: dict[str, float]
    thresholds: Thresholds

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in self.select.items():
            if value not in self.runs.grid.get(name, ()):
                raise InputError(f"select.{name}: {value:g} is not in the grid of the runs")

    def inputs(self) -> list[str]:
        """Return the digests of the classes of the runs."""
        return self.runs.inputs()

    def with_seeds(self, seeds: int) -> Self:
        """Return the recipe with other seeds of the runs."""
        return replace(self, runs=self.runs.changed(seeds=seeds))

    def in_words(self) -> dict[str, str]:
        """Return the settings, and below them those of the runs."""
        own = {key: text for key, text in super().in_words().items() if key != "runs"}
        return own | {f"runs: {key}": text for key, text in self.runs.in_words().items()}


def curves(
    recipe: RecallRecipe, *, varied: str, progress: Progress = False, keep: Path | None = None
) -> xr.Dataset:
    """recall over (num_last, `varied`, threshold), mean and standard deviation over seeds.

    `threshold` is in units of 1/M. fall: by which factor the threshold grows while recall falls
    from 0.75 to 0.25; the larger it is, the slower the descent, hence the sparser the attention.
    """
    levels, recalls = recipe.thresholds.values(), []
    results = run_apart(recipe.runs, progress=progress, keep=keep)
    for result in results:
        result = result.isel(step=-1).sel(recipe.select)
        tokens = int(in_play(result).sum())
        recall = measures.recall(result, levels / tokens).transpose(varied, "seed", "threshold")
        recall = recall.assign_coords(threshold=levels)
        recalls.append(recall.drop_vars(["step", *recipe.select]))
    recall = by_size(results, recalls)
    mean = recall.mean("seed")
    return xr.Dataset(
        {
            "recall_mean": mean,
            "recall_std": recall.std("seed", ddof=1) if recall.sizes["seed"] > 1 else np.nan * mean,
            "fall": measures.recall_fall(mean, upper=UPPER, lower=LOWER),
        },
        attrs={"seeds": recall.sizes["seed"], **recipe.select},
    )


def draw_curves(recalls: xr.Dataset, *, varied: str) -> Figure:
    """Draw a panel for each num_last, a curve for each value of `varied`; bands are one s.d."""
    (fixed,) = set(RATES) - {varied}
    panels = recalls["num_last"].values
    with style.page(2.75) as figure:
        axes = figure.subplots(1, panels.size, sharey=True, squeeze=False)[0]
        colours = style.ordered(recalls.sizes[varied])
        for ax, num_last in zip(axes, panels, strict=True):
            for i, (colour, dash) in enumerate(zip(colours, style.DASHES, strict=False)):
                curve = recalls.sel(num_last=num_last).isel({varied: i})
                x, mean = curve["threshold"].values, curve["recall_mean"].values
                half = np.nan_to_num(curve["recall_std"].values)
                ax.fill_between(x, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
                label = f"{RATES[varied]} = {float(curve[varied]):g}"
                ax.plot(x, mean, color=colour, linestyle=dash, label=label)
            ax.axvline(1, color=style.OUTLINE, linestyle=":", linewidth=0.8)
            ax.set_xscale("log", base=2)
            ax.set_xticks([0.5, 1, 2, 4], ["½", "1", "2", "4"])
            ax.set(xlim=(x[0], x[-1]), ylim=(-0.02, 1.02), xlabel="threshold × M")
        style.panel_titles(axes, size_titles(recalls))
        axes[0].set_ylabel("recall of distinct tokens")
        style.legend_above(
            figure,
            axes[0],
            title=f"{RATES[fixed]} = {recalls.attrs[fixed]:g}; dotted: 1/M, M contextual tokens; "
            "bands: one s.d. over seeds",
        )
    return figure


def judge_ratio(recalls: xr.Dataset) -> Judgement:
    """Judge whether recall falls more slowly at a smaller ratio."""
    slower = recalls["fall"].diff("ratio") < 0  # each ratio against the next larger one
    beyond = recalls["fall"].sel(ratio=slice(2, None)).diff("ratio") < 0
    first, last, values = _ends(recalls, "ratio")
    numbers = {
        "slower_with_smaller_ratio": float(slower.mean()),
        "slower_with_smaller_ratio_from_2": float(beyond.mean()),
        "fall_smallest_ratio": float(first.mean()),
        "fall_largest_ratio": float(last.mean()),
    }
    standing = Standing.of(slower.all(), in_part=(first > last).all())
    counts = {"slower": count_of(slower), "beyond": count_of(beyond)}
    return RATIO_TEXTS.judgement(standing, numbers, **values, **counts)


def judge_eta_z(recalls: xr.Dataset) -> Judgement:
    """Judge whether recall falls more slowly at a larger eta_Z."""
    slower = recalls["fall"].diff("eta_z") > 0  # each eta_Z against the next larger one
    first, last, values = _ends(recalls, "eta_z")
    numbers = {
        "slower_with_larger_eta_z": float(slower.mean()),
        "fall_smallest_eta_z": float(first.mean()),
        "fall_largest_eta_z": float(last.mean()),
    }
    standing = Standing.of(slower.all(), in_part=(last > first).all())
    return ETA_Z_TEXTS.judgement(standing, numbers, **values, slower=count_of(slower))


def _ends(recalls: xr.Dataset, varied: str) -> tuple[xr.DataArray, xr.DataArray, dict[str, Any]]:
    """Return the fall of recall at the lowest and the highest value of the setting `varied`, and
    the fields of the sentences about both."""
    first, last = (recalls["fall"].isel({varied: i}) for i in (0, -1))
    falls = "; ".join(
        f"{float(a):.2f} and {float(b):.2f} with {int(n)} {'query' if n == 1 else 'queries'}"
        for n, a, b in zip(recalls["num_last"].values, first.values, last.values, strict=True)
    )
    low, high = recalls[varied].values[[0, -1]]
    panels = recalls.sizes["num_last"]
    return first, last, {"falls": falls, "low": low, "high": high, "panels": panels}


FIG11, FIG12 = (
    texts.experiment(
        recipe=RecallRecipe,
        data=partial(curves, varied=varied),
        judge=judge,
        draw=partial(draw_curves, varied=varied),
    )
    for texts, varied, judge in (
        (RATIO_TEXTS, "ratio", judge_ratio),
        (ETA_Z_TEXTS, "eta_z", judge_eta_z),
    )
)
