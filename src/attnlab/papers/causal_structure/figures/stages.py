"""The reduced model: attention to parents in stage 1, with two levels of theory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

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
    each = [
        runs.stage_one(task, steps=recipe.steps, seeds=recipe.seeds, batch=recipe.batch)
        for task in (replace(recipe.task, graph=name) for name in recipe.graphs)
    ]
    results = [simulate(run, progress=progress) for run in each]
    graph = xr.Variable("graph", list(recipe.graphs))
    found = xr.concat([runs.measured(result) for result in results], graph)
    first, above = (runs.parents(run.task, run.seeds)[0] for run in (each[0], each[-1]))
    one = replace(each[0], seeds=1)
    predicted = [
        parent_attention(predict(one, theory=level)["first_attention"].values, first)
        for level in LEVELS
    ]
    above = np.append(above, ROOT)
    return found.assign(
        missing=1 - found["parent_attention"],
        predicted=(("level", "step"), 1 - np.mean(predicted, -1)[:, 0]),
        weights=(("query", "key"), results[-1]["first_attention"].values[0, -1]),
        graph_map=(("query", "key"), above[:, None] == np.arange(above.size)),
    ).assign_coords(level=list(LEVELS))


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
        axes = figure.subplots(2, 2).ravel()
        left, roots = axes[:2]
        later = found.isel(step=slice(1, None))
        for of, colour in zip(found["graph"], style.ordered(found.sizes["graph"]), strict=True):
            look = {"color": colour, "linewidth": 0.8, "label": of.item()}
            for ax, name in ((left, "missing"), (roots, "root_entropy")):
                draw_seeds(ax, later["step"], later[name].sel(graph=of), **look)
        for level, marker in zip(found["level"].values, ("x", "o"), strict=True):
            look = {"color": style.ACCENT, "markersize": 4, "fillstyle": "none", "label": level}
            left.plot(later["step"], later["predicted"].sel(level=level), marker, **look)
        left.set(xscale="log", yscale="log", ylim=(1e-3, 1.2))  # the kernel's straight line leaves
        left.legend(fontsize=6)
        roots.set(xscale="log", ylim=(0, 1.05))
        for ax, name in zip(axes[2:], ("graph_map", "weights"), strict=True):
            ax.imshow(found[name], cmap="Blues", vmin=0, vmax=1)
            ax.locator_params(integer=True)
        TEXTS.label(axes)
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
