"""The full model from zero: weights of both layers, and the loss with both lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Experiment, ExperimentRecipe, Judgement, Standing
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs
from ..task import Forest, Graph


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """graph, symbols, length, concentration: of the task. batch, steps: of training by SGD at
    learning rate 1 with cosine decay. seeds: of batches, and of random graphs."""

    graph: Graph
    symbols: int
    length: int
    concentration: float
    batch: int
    steps: int
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return loss, both lines, attention to parents and recovery by seed and step, and the weights
    of the first seed at the end."""
    task = Forest(recipe.symbols, recipe.length, recipe.concentration, recipe.graph)
    run = runs.full(task, steps=recipe.steps, seeds=recipe.seeds, batch=recipe.batch)
    result = simulate(run, progress=progress)
    found = runs.measured(run, result)[["parent_attention", "recovery", "excess"]]
    end = result.isel(seed=0, step=-1)
    S, wide = recipe.symbols, recipe.symbols + recipe.length
    output = end["parameters.output"].values
    return found.assign(
        loss=result["probe_loss"],
        counts=result["counts_loss"],
        released=result["released_loss"],
        A1=(("of_query", "of_key"), end["parameters.first"].values[0]),
        A2=(("asked", "read"), end["parameters.second"].values[0, :S, wide : wide + S]),
        W=(("read_by_2", "output"), output[2 * wide : 2 * wide + S]),
    ).assign_attrs(symbols=S)


def judge(found: xr.Dataset) -> Judgement:
    """Judge recovery, the excess over the count predictor, and the mass at the parent."""
    end = found.isel(step=-1)
    excess, start = runs.estimate(end["excess"].values), float(found["excess"].isel(step=0).mean())
    attention, recovery = (
        runs.estimate(end[name].values) for name in ("parent_attention", "recovery")
    )
    gap = runs.estimate((end["released"] - end["counts"]).values)
    whole = (found["recovery"] == 1).all("seed").values
    numbers = {
        **excess.numbers("excess"),
        "excess_start": start,
        **attention.numbers("parent_attention"),
        "recovery": recovery.value,
        "recovered_at": float(found["step"][whole.argmax()]) if whole.any() else float(end["step"]),
        **gap.numbers("released_gap"),
    }
    near = excess.value < start / 10
    headline = (
        f"The loss ends {excess} above the count predictor ({start:.3f} at the start); recovery is "
        f"{recovery.value:.3g}, with {attention} of attention at the parent."
    )
    return Judgement(
        Standing.of(near and excess.below(1e-3), near and recovery.value == 1),
        headline,
        f"{headline} The line that released code draws lies {gap} above that of the right counts.",
        "The first layer's matrix, bright entries just below the diagonal of positions, and of "
        "tokens too; two diagonal blocks; loss falling towards two lines; recovery before mass.",
        numbers,
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw A_1, the blocks of A_2 and W, the loss with both lines, recovery and attention."""
    with style.page(5.4) as figure:
        halves: Any = figure.subfigures(2, 1)
        wide, curves = halves[0].subplots(1, 3), halves[1].subplots(1, 2)
        for ax, name in zip(wide, ("A1", "A2", "W"), strict=True):
            low, high = np.percentile(found[name], (15, 100))  # as published
            ax.imshow(found[name], cmap="Blues", vmin=low, vmax=high)
            ax.set(xticks=[], yticks=[])
        S = found.attrs["symbols"] - 0.5
        for line in (wide[0].axhline, wide[0].axvline):
            line(S, color=style.ACCENT, linewidth=0.8)
        wide[0].set(xlabel="key: tokens | positions", ylabel="query: tokens | positions")
        wide[1].set(xlabel="token read by layer 1", ylabel="test token")
        wide[2].set(xlabel="output", ylabel="token read by layer 2")
        step = found["step"]
        for seed in range(found.sizes["seed"]):
            one = found.isel(seed=seed)
            curves[0].plot(step, one["loss"] - one["counts"], color=style.DISTINCT, linewidth=0.8)
            curves[1].plot(step, one["recovery"], color=style.OUTLINE, linewidth=0.8)
            curves[1].plot(step, one["parent_attention"], color=style.DISTINCT, linewidth=0.8)
        gap = float((found["released"] - found["counts"]).mean())
        curves[0].axhline(0, color=style.OUTLINE, linewidth=0.8)
        curves[0].axhline(gap, color=style.ACCENT, linestyle=":", label="released count line")
        curves[0].legend()
        curves[0].set(xlabel="step", ylabel="loss - count predictor's")
        curves[1].set(xlabel="step", ylim=(0, 1.05))
        curves[1].annotate("recovery", (0.98, 0.9), xycoords="axes fraction", ha="right")
        curves[1].annotate(
            "attention to the parent",
            (0.98, 0.2),
            xycoords="axes fraction",
            ha="right",
            color=style.DISTINCT,
        )
        titles = ["$A_1$", "$A_2$, tokens", "$W$, tokens", "loss", "recovery before mass"]
        style.panel_titles([*wide, *curves], titles)
    return figure


EXPERIMENT = Experiment(
    name="layers",
    kind="figure",
    title="Both layers of the full model, from zero",
    recipe=Recipe,
    data=data,
    judge=judge,
    draw=draw,
    source="Causal structure, released code",
)
