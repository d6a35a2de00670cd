"""Position weights: the first signal for layer 1 by lag, its lag kernel, and training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, published
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.simulation import simulate

from .. import runs, theory

TEXTS = Texts.read(__file__)

LAGS = 7
SYMBOLS = (2, 3)


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """length, chains: of the signal. step, seeds: at which training is read, and how often."""

    length: int
    chains: int
    step: int
    seeds: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return the first signal over w, exact and to leading order, by prior, symbols and lag.

    Beside it v of training on Dirichlet chains by symbols, seed and lag, and released weights.
    """
    T = recipe.length
    exact, leading = np.zeros((2, 2, len(SYMBOLS), LAGS))
    for i, prior in enumerate(("dirichlet", "doubly")):
        for j, k in enumerate(SYMBOLS):
            P = theory.PRIORS[prior](np.random.default_rng(0), recipe.chains, k)
            exact[i, j] = theory.first_signal(P, T)[:LAGS]
            leading[i, j] = theory.leading_signal(P, T)[:LAGS]
    v = []
    for k in SYMBOLS:
        run = runs.minimal(k, at=(0, recipe.step), seeds=recipe.seeds, length=T)
        v.append(simulate(run, progress=False)["parameters.first"].values[:, -1, :LAGS])
    released = [row["weight"] for row in published(__file__, "position_weights")]
    dims = ("prior", "symbols", "lag")
    return xr.Dataset(
        {
            "exact": (dims, exact),
            "leading": (dims, leading),
            "trained": (("symbols", "seed", "lag"), np.array(v)),
            "published": ("lag", released),
        },
        {"prior": ["dirichlet", "doubly"], "symbols": list(SYMBOLS), "lag": np.arange(LAGS)},
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether lag 1 wins everywhere and whether signs alternate."""
    trained = found["trained"].mean("seed")
    wins = all(
        (of.argmax("lag") == 1).all() for of in (found["exact"], trained, found["published"])
    )
    sign = xr.DataArray([1, -1, 1, -1, 1], {"lag": np.arange(1, 6)}, "lag")
    alternate = {k: bool((trained.sel(symbols=k) * sign > 0).all()) for k in SYMBOLS}
    of = found["exact"].sel(prior="dirichlet")
    return TEXTS.judgement(
        Standing.of(wins and all(alternate.values()), wins),
        {
            **{f"lag_{d}_{k}": float(of.sel(symbols=k, lag=d)) for k in SYMBOLS for d in (0, 1, 2)},
            "apart": float(abs(found["exact"] - found["leading"]).max()),
        },
        wins="wins" if wins else "does not win",
        alternate=" and ".join(
            f"{'do' if yes else 'do not'} for {k}" for k, yes in alternate.items()
        ),
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw the signals of both priors by lag, over that of lag 1, beside v of training."""
    with style.page(2.5) as figure:
        axes = figure.subplots(1, len(SYMBOLS), sharey=True)
        lag = found["lag"].values
        for ax, k in zip(axes, SYMBOLS, strict=True):
            ax.axhline(0, color=style.OUTLINE, linewidth=0.6)
            of = found.sel(symbols=k)
            for prior, colour, shift, label in (
                ("dirichlet", style.DISTINCT, -0.2, "Dirichlet signal"),
                ("doubly", style.COMMON, 0.2, "doubly stochastic signal"),
            ):
                signal = of["exact"].sel(prior=prior)
                ax.bar(lag + shift, signal / signal[1], 0.4, color=colour, label=label)
            v = of["trained"].mean("seed")
            look = {"markersize": 4, "color": "black", "label": "trained (Dirichlet)"}
            ax.plot(lag - 0.2, v / v[1], "D", **look)
            ax.set_xticks(lag)
        released = found["published"] / found["published"][1]
        look |= {"color": style.ACCENT, "label": "released, an earlier model"}
        axes[0].plot(lag, released, "o", fillstyle="none", **look)  # of 2 symbols
        TEXTS.label(axes)
        style.legend_above(figure, axes[0])
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
