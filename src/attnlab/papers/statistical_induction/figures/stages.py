"""Stages: distances to the rules of counting, shaded by the nearest one, and which layer moves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Estimate, ExperimentRecipe, Judgement, Standing, mean
from attnlab.experiments.drawing import draw_seeds
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs
from ..claims.minimal import in_order
from ..claims.transformer import LIT, RISEN
from ..distances import STAGES, distances, nearest

TEXTS = Texts.read(__file__)

MODELS = ("minimal", "transformer")
COLOURS = dict(zip(STAGES, ("0.55", style.COMMON, style.DISTINCT), strict=True))


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """symbols, length, seeds: of both models. minimal_steps, steps: of each. every: records."""

    symbols: int
    length: int
    seeds: int
    minimal_steps: int
    steps: int
    every: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return `distances` by model, seed and step; NaN at the records of the other model."""
    k, T, seeds = recipe.symbols, recipe.length, recipe.seeds
    at = tuple(step for step in runs.EARLY if step < recipe.minimal_steps)
    both = [
        runs.minimal(k, at=(*at, recipe.minimal_steps), seeds=seeds, length=T),
        runs.transformer(runs.chains(k, T), steps=recipe.steps, every=recipe.every, seeds=seeds),
    ]
    found = [distances(simulate(run, progress=report)) for run, report in in_turn(both, progress)]
    return xr.concat(found, xr.Variable("model", list(MODELS)), join="outer")


def _of(found: xr.Dataset, model: str) -> xr.Dataset:
    return found.sel(model=model).dropna("step", subset=["kl"])


def judge(found: xr.Dataset) -> Judgement:
    """Judge the order of stages and of layers."""
    numbers: dict[str, float | Estimate] = {}
    right = []
    for model in MODELS:
        of = _of(found, model)
        at = nearest(of)
        first = runs.first_step(at == STAGES.index("bigram"))
        right.append((in_order(at) == len(STAGES)).all())
        numbers[f"{model}_bigram"] = mean(first)
        numbers[f"{model}_kl"] = float(of["kl"].isel(step=-1).mean())
    of = _of(found, "transformer")
    ahead = runs.first_step(of["previous"] > RISEN) - runs.first_step(of["score"] > LIT)
    numbers["layer_2_ahead"] = float(ahead.mean())
    return TEXTS.judgement(Standing.of(all(right) and (ahead > 0).all(), any(right)), numbers)


def draw(found: xr.Dataset) -> Figure:
    """Draw distances of the first seed for both models, and the layers of all seeds."""
    with style.page(2.6) as figure:
        axes = figure.subplots(1, 3)
        for ax, model in zip(axes, MODELS, strict=False):
            of = _of(found, model).isel(seed=0)
            steps = of["step"].values
            edges = np.concatenate([steps[:1], (steps[1:] + steps[:-1]) / 2, steps[-1:]])
            for i, at in enumerate(nearest(of).values):
                ax.axvspan(*edges[i : i + 2], color=COLOURS[STAGES[at]], alpha=0.15, linewidth=0)
            for name, colour in COLOURS.items():
                ax.plot(steps, of[name], color=colour, label=name)
            ax.plot(steps, of["kl"], ":", color="black", label="true row")
            ax.set(xlim=(steps[0], steps[-1]), ylim=(0, 0.5))
        of = _of(found, "transformer")
        for label, values, colour, dash in (
            ("layer 2: score $-$ 1", of["score"] - 1, style.ACCENT, "-"),
            ("layer 1: lag 1", of["previous"], style.GREEN, "--"),
        ):
            look = {"color": colour, "ls": dash, "linewidth": 0.9}
            draw_seeds(axes[2], of["step"], values, label=label, **look)
        axes[2].legend(loc="upper left")
        axes[2].set(xlim=(steps[0], steps[-1]), ylim=(None, 2.2))
        TEXTS.label(axes)
        style.legend_above(figure, axes[0])
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
