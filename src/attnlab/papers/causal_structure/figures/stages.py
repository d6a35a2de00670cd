"""The reduced model: attention to parents in stage 1, with two levels of theory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, mean
from attnlab.experiments.drawing import draw_seeds
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.measures import parent_attention
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.theory import predict

from .. import runs
from ..task import ROOT, Forest, Graph

TEXTS = Texts.read(__file__)

LEVELS = ("causal-kernel", "causal-gradient")


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """graphs, task: what is learned. batch, steps: of stage 1 alone. seeds: starts and random
    graphs; theory is drawn for the first seed of the first graph."""

    graphs: tuple[Graph, ...]
    task: Forest
    batch: int
    steps: int
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return what the parent does not get, and the entropy of roots, by graph, seed and step; the
    levels on the first graph; and weights and graph of the first seed of the last graph."""
    measured: list[xr.Dataset] = []
    predicted: list[NDArray[np.float64]] = []
    for name in recipe.graphs:
        task = replace(recipe.task, graph=name)
        run = runs.stage_one(task, steps=recipe.steps, seeds=recipe.seeds, batch=recipe.batch)
        result = simulate(run, progress=progress)
        measured.append(runs.measured(result))
        if not predicted:
            one = replace(run, seeds=1)
            (above,) = runs.parents(one)
            for level in LEVELS:
                weights = predict(one, theory=level)["first_attention"].values[0]
                predicted.append(1 - parent_attention(weights, above).mean(-1))
    found = xr.concat(measured, dim=xr.DataArray(list(recipe.graphs), dims="graph"))
    edges = np.zeros((task.length, task.length))
    above = runs.parents(run)[0]
    children = np.flatnonzero(above != ROOT)
    edges[children, above[children]] = 1
    return xr.Dataset(
        {
            "missing": 1 - found["parent_attention"],
            "recovery": found["recovery"],
            "root_entropy": found["root_entropy"],
            "predicted": (("level", "step"), np.stack(predicted)),
            "weights": (("query", "key"), result["first_attention"].values[0, -1]),
            "graph_map": (("query", "key"), edges),
        },
        {"level": list(LEVELS)},
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge recovery, what is left, and the entropy of root rows at the end."""
    end = found.isel(step=-1)
    roots = end["root_entropy"].values
    uniform, recovery = mean(roots[np.isfinite(roots)]), float(end["recovery"].mean())
    first = found["missing"].isel(graph=0, seed=0)
    errors = {
        f"error_{name}": float(abs(found["predicted"].sel(level=name) - first).max())
        for name in found["level"].values
    }
    return TEXTS.judgement(
        Standing.of(recovery == 1 and uniform.value > 0.9, recovery == 1),
        {
            "recovery_after_a_step": float(found["recovery"].isel(step=1).mean()),
            "recovery": recovery,
            "left": mean(end["missing"].values),
            "root_entropy": uniform,
            **errors,
            "error_nothing_moves": float(abs(first - first.isel(step=0)).max()),
        },
        steps=int(end["step"]),
        exact=errors["error_causal-gradient"],
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw what is missing against the step, entropy of roots, the graph and the weights."""
    with style.page(5.0) as figure:
        axes = figure.subplots(2, 2)
        step = found["step"][1:]
        colours = style.ordered(found.sizes["graph"])
        for name, colour in zip(found["graph"].values, colours, strict=True):
            one = found.sel(graph=name).isel(step=slice(1, None))
            look = {"color": colour, "linewidth": 0.8, "label": str(name)}
            draw_seeds(axes[0, 0], step, one["missing"], **look)
            draw_seeds(axes[0, 1], step, one["root_entropy"], **look)
        for level, marker in zip(found["level"].values, ("x", "o"), strict=True):
            look = {"color": style.ACCENT, "markersize": 4, "fillstyle": "none"}
            predicted = found["predicted"].sel(level=level)[1:]
            axes[0, 0].plot(step, predicted, marker, label=str(level), **look)
        axes[0, 0].set_ylim(1e-3, 1.2)  # the straight line of the kernel leaves it
        axes[0, 0].set(xscale="log", yscale="log", xlabel="step")
        axes[0, 0].legend(fontsize=6)
        axes[0, 1].set(xscale="log", xlabel="step", ylim=(0, 1.05))
        style.y_labels(axes[0], ["1 - attention to the parent", "entropy over its largest"])
        for ax, name in zip(axes[1], ("graph_map", "weights"), strict=True):
            ax.imshow(found[name], cmap="Blues", vmin=0, vmax=1)
            ax.set(xlabel="key position", ylabel="query position")
        titles = ["stage 1 (theory: first graph)", "root rows", "a graph", r"its softmax$(A_1)$"]
        style.panel_titles(axes.ravel(), titles)
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
