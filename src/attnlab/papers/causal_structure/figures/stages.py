"""The reduced model: attention to parents in stage 1, with two levels of theory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlab.experiments import Experiment, ExperimentRecipe, Judgement, Standing
from attnlab.files.progress import Progress
from attnlab.measures import parent_attention
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.theory import predict

from .. import runs
from ..task import ROOT, Forest, Graph

LEVELS = ("causal-kernel", "causal-gradient")


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """graphs, symbols, length, concentration: of the task. batch, steps: of stage 1 alone. seeds:
    starts and random graphs; theory is drawn for the first seed of the chain."""

    graphs: tuple[Graph, ...]
    symbols: int
    length: int
    concentration: float
    batch: int
    steps: int
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return what the parent does not get, and the entropy of roots, by graph, seed and step; the
    levels on the first graph; and weights and graph of the first seed of the last graph."""
    measured: list[xr.Dataset] = []
    said: list[NDArray[np.float64]] = []
    for name in recipe.graphs:
        task = Forest(recipe.symbols, recipe.length, recipe.concentration, name)
        run = runs.stage_one(task, steps=recipe.steps, seeds=recipe.seeds, batch=recipe.batch)
        result = simulate(run, progress=progress)
        measured.append(runs.measured(run, result))
        if not said:
            one = runs.stage_one(task, steps=recipe.steps, seeds=1, batch=recipe.batch)
            (above,) = runs.parents(one)
            for level in LEVELS:
                weights = predict(one, theory=level)["first_attention"].values[0]
                said.append(1 - parent_attention(weights, above).mean(-1))
    found = xr.concat(measured, dim=xr.DataArray(list(recipe.graphs), dims="graph"))
    edges = np.zeros((recipe.length, recipe.length))
    above = runs.parents(run)[0]
    children = np.flatnonzero(above != ROOT)
    edges[children, above[children]] = 1
    return xr.Dataset(
        {
            "missing": 1 - found["parent_attention"],
            "recovery": found["recovery"],
            "root_entropy": found["root_entropy"],
            "predicted": (("level", "step"), np.stack(said)),
            "weights": (("query", "key"), result["first_attention"].values[0, -1]),
            "graph_map": (("query", "key"), edges),
        },
        {"level": list(LEVELS)},
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge recovery, what is left, and the entropy of root rows at the end."""
    end = found.isel(step=-1)
    recovered = runs.estimate(end["recovery"].values)
    early = float(found["recovery"].isel(step=1).mean())
    left = runs.estimate(end["missing"].values)
    roots = end["root_entropy"].values
    uniform = runs.estimate(roots[np.isfinite(roots)])
    first = found["missing"].isel(graph=0, seed=0)
    numbers = {
        "recovery_after_a_step": early,
        "recovery": recovered.value,
        **left.numbers("left"),
        **uniform.numbers("root_entropy"),
        **{
            f"error_{name}": float(abs(found["predicted"].sel(level=name) - first).max())
            for name in found["level"].values
        },
        "error_nothing_moves": float(abs(first - first.isel(step=0)).max()),
    }
    found_all = recovered.value == 1
    headline = (
        f"After {int(end['step'])} steps {left} of attention is missing at the parent, recovery is "
        f"{recovered.value:.3g}, and root rows keep {uniform} of their entropy."
    )
    return Judgement(
        Standing.of(found_all and uniform.value > 0.9, found_all),
        headline,
        f"{headline} Recovery is {early:.3g} after one step. The exact gradient on other sequences "
        f"is off by {numbers['error_causal-gradient']:.3f} at most, nothing fitted; if nothing "
        f"moved it would be {numbers['error_nothing_moves']:.2f}.",
        "What the parent does not get falls as a power of the step for three graphs; entropy of "
        "root rows falls slowly; and a graph beside softmax(A1), with the same bright entries.",
        numbers,
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw what is missing against the step, entropy of roots, the graph and the weights."""
    with style.page(5.0) as figure:
        axes = figure.subplots(2, 2)
        step = found["step"][1:]
        colours = style.ordered(found.sizes["graph"])
        for name, colour in zip(found["graph"].values, colours, strict=True):
            for seed in range(found.sizes["seed"]):
                one = found.sel(graph=name).isel(seed=seed, step=slice(1, None))
                label = str(name) if not seed else None
                axes[0, 0].plot(step, one["missing"], color=colour, linewidth=0.8, label=label)
                axes[0, 1].plot(step, one["root_entropy"], color=colour, linewidth=0.8)
        for level, marker in zip(found["level"].values, ("x", "o"), strict=True):
            axes[0, 0].plot(
                step,
                found["predicted"].sel(level=level)[1:],
                marker,
                color=style.ACCENT,
                markersize=4,
                fillstyle="none",
                label=str(level),
            )
        axes[0, 0].set_ylim(1e-3, 1.2)  # the straight line of the kernel leaves it
        axes[0, 0].set(
            xscale="log", yscale="log", xlabel="step", ylabel="1 - attention to the parent"
        )
        axes[0, 0].legend(fontsize=6)
        axes[0, 1].set(
            xscale="log", xlabel="step", ylabel="entropy over its largest", ylim=(0, 1.05)
        )
        for ax, name in zip(axes[1], ("graph_map", "weights"), strict=True):
            ax.imshow(found[name], cmap="Blues", vmin=0, vmax=1)
            ax.set(xlabel="key position", ylabel="query position")
        titles = ["stage 1 (theory: first graph)", "root rows", "a graph", r"its softmax$(A_1)$"]
        style.panel_titles(axes.ravel(), titles)
    return figure


EXPERIMENT = Experiment(
    name="stages",
    kind="figure",
    title="The first layer finds the tree in a step, and settles on it as a power of time",
    recipe=Recipe,
    data=data,
    judge=judge,
    draw=draw,
    source="Causal structure, as we know it",
)
