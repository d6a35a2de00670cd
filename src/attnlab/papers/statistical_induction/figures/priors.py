"""Priors: layer 1 of both models on Dirichlet, doubly stochastic and unigram chains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing
from attnlab.experiments.drawing import draw_seeds
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs
from ..evidence import EVIDENCE

TEXTS = Texts.read(__file__)

COLOURS: dict[runs.Prior, str] = {
    "dirichlet": style.DISTINCT,
    "doubly": style.COMMON,
    "unigram": "0.45",
}
NAMES = {"dirichlet": "Dirichlet", "doubly": "doubly stochastic", "unigram": "unigram"}
FILED: tuple[runs.Prior, ...] = ("dirichlet", "doubly")  # of the transformer


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """symbols, length, seeds, steps: of the minimal model; the transformer's runs are on file."""

    symbols: int
    length: int
    seeds: int
    steps: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return lag-1 attention of the minimal model by prior, seed and step, and lag-1 attention and
    KL of the transformer on file."""
    at = (*(step for step in (*runs.EARLY, 150, 200, 400) if step < recipe.steps), recipe.steps)
    lag = []
    for prior, report in in_turn(list(COLOURS), progress):
        run = runs.minimal(recipe.symbols, prior, at=at, seeds=recipe.seeds, length=recipe.length)
        lag.append(simulate(run, progress=report)["lag_mass"].isel(lag=1))
    filed = [EVIDENCE.read(name) for name in FILED]
    found = xr.Dataset({"minimal": xr.concat(lag, xr.Variable("prior", list(COLOURS)))})
    for name in ("previous", "kl"):
        of = [each[name].rename(seed="run", step="transformer_step") for each in filed]
        found[name] = xr.concat(of, xr.Variable("shown", list(FILED)))
    return found


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether doubly stochastic chains are quicker, in layer 1 and at the end."""
    of = found[["previous", "kl"]].rename(run="seed", transformer_step="step")
    rises = {name: runs.first_step(of["previous"].sel(shown=name) > 0.1) for name in FILED}
    through = (of["kl"].isel(step=-1) < 0.1).mean("seed")
    end = found["minimal"].isel(step=-1).mean("seed")
    earlier = rises["doubly"].max() < rises["dirichlet"].min()
    share = float(through.sel(shown="doubly"))
    return TEXTS.judgement(
        Standing.of(earlier and share == 1, earlier),
        {
            **{f"rises_{name}": float(np.median(steps)) for name, steps in rises.items()},
            **{f"through_{name}": float(through.sel(shown=name)) for name in FILED},
            **{f"minimal_{prior}": float(end.sel(prior=prior)) for prior in COLOURS},
        },
        stuck=1 - share,
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw lag-1 attention of both models, and KL of the transformer, all seeds."""
    with style.page(2.6) as figure:
        axes = figure.subplots(1, 3)
        for prior, colour in COLOURS.items():
            look = {"color": colour, "linewidth": 0.9}
            of = found["minimal"].sel(prior=prior)
            draw_seeds(axes[0], found["step"], of, label=NAMES[prior], **look)
            for ax, name in zip(axes[1:], ("previous", "kl"), strict=True):
                if prior in FILED:
                    of = found[name].sel(shown=prior).transpose("transformer_step", "run")
                    ax.plot(found["transformer_step"], of, **look)
                ax.set_ylim(0)
        axes[0].set(xscale="symlog", ylim=(0, 1))
        TEXTS.label(axes)
        style.legend_above(figure, axes[0])
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
