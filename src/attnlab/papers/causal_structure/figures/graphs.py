"""Attention to the parent on random graphs: published, and ours with either model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean, published
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.measures import parent_attention
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs
from ..evidence import EVIDENCE
from ..task import ROOT, Forest

TEXTS = Texts.read(__file__)


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """graphs: random graphs, one for each seed. task: what is learned. batch: of either model.
    reduced_steps: of stage 1. full_steps: of the full model."""

    graphs: int
    task: Forest
    batch: int
    reduced_steps: int
    full_steps: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return attention to the parent by model, graph and position; NaN at roots.

    The full model at the published size is on file (`evidence.py`).
    """
    of: dict[str, Any] = {"seeds": recipe.graphs, "batch": recipe.batch}
    models = {
        "reduced": runs.stage_one(recipe.task, steps=recipe.reduced_steps, **of),
        "full": runs.full(recipe.task, steps=recipe.full_steps, constant=True, **of),
    }
    T = recipe.task.length
    values = np.full((2, recipe.graphs, T - 1), np.nan)
    recovery = []
    for row, run in zip(values, models.values(), strict=True):
        result = simulate(run, progress=progress)
        maps = result["first_attention"].isel(step=-1).values.reshape(-1, T, T)
        graphs = runs.parents(run.task, run.seeds)
        for mine, weights, above in zip(row, maps, graphs, strict=True):
            mine[above != ROOT] = parent_attention(weights, above)
        recovery.append(runs.measured(result)["recovery"].isel(step=-1).values)
    rows = published(__file__, "graphs")
    filed = EVIDENCE.read("graphs")["parent_attention"].isel(step=-1)
    return xr.Dataset(
        {
            "attention": (("model", "graph", "position"), values),
            "recovery": (("model", "graph"), recovery),
            "published": ("published_graph", [1 - row["missing"] for row in rows]),
            "filed": ("filed_graph", filed.values),
        },
        {"model": list(models)},
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge recovery by model; the mean attention of each graph stands beside the published."""
    attention = found["attention"].mean("position")
    means = {
        f"{name}_{what}": mean(of.sel(model=name).values)
        for name in found["model"].values
        for what, of in (("attention", attention), ("recovery", found["recovery"]))
    }
    reduced, full = (means[f"{name}_recovery"].value == 1 for name in ("reduced", "full"))
    return TEXTS.judgement(
        Standing.of(full and reduced, reduced),
        means,
        models="; ".join(
            f"{name}: attention {means[f'{name}_attention']}, recovery {means[f'{name}_recovery']}"
            for name in found["model"].values
        ),
        filed=mean(found["filed"].values),
        paper_mean=found["published"].mean().item(),
        paper_sd=found["published"].std(ddof=1).item(),
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw attention to the parent by position, and means of graphs in order."""
    looks = {
        "reduced": ("o", style.DISTINCT, -0.15, "reduced, ours"),
        "full": ("^", style.COMMON, 0.15, "full, ours"),
        "filed": ("^", style.OUTLINE, None, "full, ours at the published size"),
        "published": ("s", style.OUTLINE, None, "full, published"),
    }
    with style.page(2.7) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        place = np.arange(found.sizes["position"])
        for name, (mark, colour, shift, label) in looks.items():
            look = {"color": colour, "marker": mark, "linestyle": ""}
            if shift is None:
                of, look["fillstyle"] = found[name], "none"
            else:
                edges = found["attention"].sel(model=name)
                of = edges.mean("position")
                left.plot(place + shift, edges.T, markersize=2.5, alpha=0.6, **look)
            left.plot([], [], label=label, **look)
            right.plot(np.linspace(0, 1, of.size), np.sort(of), **look)
        left.set_ylim(0, 1.05)
        TEXTS.label([left, right])
        style.legend_above(figure, left)
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
