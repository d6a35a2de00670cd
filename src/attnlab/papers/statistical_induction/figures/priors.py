"""Priors: layer 1 of both models on Dirichlet, doubly stochastic and unigram chains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Experiment, ExperimentRecipe, Judgement, Standing
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs
from ..survey import survey

COLOURS: dict[runs.Prior, str] = {
    "dirichlet": style.DISTINCT,
    "doubly": style.COMMON,
    "unigram": "0.45",
}
NAMES = {"dirichlet": "Dirichlet", "doubly": "doubly stochastic", "unigram": "unigram"}


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """symbols, length, seeds, steps: of the minimal model; the transformer is the survey's."""

    symbols: int
    length: int
    seeds: int
    steps: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return lag-1 attention of the minimal model by prior, seed and step, and lag-1 attention and
    KL of the surveyed transformer."""
    at = (*(step for step in (*runs.EARLY, 150, 200, 400) if step < recipe.steps), recipe.steps)
    lag = []
    for prior, report in in_turn(list(COLOURS), progress):
        run = runs.minimal(recipe.symbols, prior, at=at, seeds=recipe.seeds, length=recipe.length)
        lag.append(simulate(run, progress=report)["lag_mass"].isel(lag=1))
    surveyed = [survey()[name] for name in ("dirichlet", "doubly")]
    found = xr.Dataset({"minimal": xr.concat(lag, xr.Variable("prior", list(COLOURS)))})
    for name in ("previous", "kl"):
        of = [each[name].rename(seed="run", step="transformer_step") for each in surveyed]
        found[name] = xr.concat(of, xr.Variable("shown", ["dirichlet", "doubly"]))
    return found


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether doubly stochastic chains are quicker, in layer 1 and at the end."""
    rises = {
        name: runs.first_step(
            found["previous"].sel(shown=name).rename(run="seed", transformer_step="step") > 0.1
        )
        for name in ("dirichlet", "doubly")
    }
    through = (found["kl"].isel(transformer_step=-1) < 0.1).mean("run")
    end = found["minimal"].isel(step=-1).mean("seed")
    numbers = {
        "rises_dirichlet": float(np.median(rises["dirichlet"])),
        "rises_doubly": float(np.median(rises["doubly"])),
        "through_dirichlet": float(through.sel(shown="dirichlet")),
        "through_doubly": float(through.sel(shown="doubly")),
        **{f"minimal_{prior}": float(end.sel(prior=prior)) for prior in COLOURS},
    }
    earlier = rises["doubly"].max() < rises["dirichlet"].min()
    headline = (
        f"Layer 1 of the transformer starts at step {numbers['rises_doubly']:.0f} with doubly "
        f"stochastic chains and at {numbers['rises_dirichlet']:.0f} with Dirichlet ones (medians), "
        f"but {1 - numbers['through_doubly']:.0%} of the former get stuck."
    )
    return Judgement(
        Standing.of(earlier and numbers["through_doubly"] == 1, earlier),
        headline,
        f"{headline} Unigram chains alone leave layer 1 of the minimal model where it was.",
        "Lag-1 attention of the minimal model and of the transformer against steps by prior, and "
        "the transformer's KL: two doubly stochastic seeds stay high.",
        numbers,
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw lag-1 attention of both models, and KL of the transformer, all seeds."""
    with style.page(2.6) as figure:
        axes = figure.subplots(1, 3)
        for prior, colour in COLOURS.items():
            of = found["minimal"].sel(prior=prior).transpose("step", "seed")
            lines = axes[0].plot(found["step"], of, color=colour, linewidth=0.9)
            lines[0].set_label(NAMES[prior])
        for ax, name in zip(axes[1:], ("previous", "kl"), strict=True):
            for prior in ("dirichlet", "doubly"):
                of = found[name].sel(shown=prior).transpose("transformer_step", "run")
                ax.plot(found["transformer_step"], of, color=COLOURS[prior], linewidth=0.9)
            ax.set(xlabel="step", ylim=(0, None))
        axes[0].set(xlabel="step", xscale="symlog", ylim=(0, 1))
        style.y_labels(axes, ["attention to lag 1", "attention to lag 1", "KL(true row || model)"])
        style.panel_titles(axes, ["minimal, layer 1", "transformer, layer 1", "transformer"])
        style.legend_above(figure, axes[0])
    return figure


EXPERIMENT = Experiment(
    name="priors",
    kind="figure",
    title="Does the unigram signal delay? Chains of other priors",
    recipe=Recipe,
    data=data,
    judge=judge,
    draw=draw,
    source="Statistical induction, as we know it",
)
