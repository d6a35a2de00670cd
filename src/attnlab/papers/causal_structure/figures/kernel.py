"""The first gradient beside its kernel, by kinship, and a prior for which the parent loses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style

from .. import theory

TEXTS = Texts.read(__file__)

SHOWN = ("self", "parent", "grandparent")


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """symbols, length, concentration, beta0, eps: of the gradient, on a chain. sequences: averaged
    over. chains: of each mean of the kernel. kin_symbols, kin_concentration: of the kinships.
    shares: of the identity in the sticky prior."""

    symbols: int
    length: int
    concentration: float
    beta0: float
    eps: float
    sequences: int
    chains: int
    kin_symbols: int
    kin_concentration: float
    shares: tuple[float, ...]


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return the gradient and its leading term, g and the mutual information of each chain by
    kinship, and means of g for the sticky prior."""
    S, T = recipe.symbols, recipe.length
    chain = np.arange(T - 1) - 1
    drawn = theory.sample_sequences(chain, S, recipe.concentration, recipe.sequences)
    gradient = theory.first_gradient(drawn, np.zeros((T, T)), beta0=recipe.beta0, eps=recipe.eps)
    pi = theory.sample_chains(S, recipe.concentration, recipe.chains, seed=1)
    kin = theory.sample_chains(recipe.kin_symbols, recipe.kin_concentration, recipe.chains, seed=2)
    g = {name: theory.kinship_kernel(kin, name) for name in theory.KINSHIPS}
    own = [theory.chi_squared(theory.joint_law(kin, *of)) for of in theory.KINSHIPS.values()]
    repeating = [
        theory.sample_chains(S, 1.0, recipe.chains, stickiness=r, seed=3) for r in recipe.shares
    ]
    sticky = [[theory.kinship_kernel(of, name).mean() for of in repeating] for name in SHOWN]
    square = ("query", "key")
    return xr.Dataset(
        {
            "gradient": (square, gradient),
            "leading": (square, theory.leading_gradient(pi, chain, beta0=recipe.beta0)),
            "g": (("kinship", "chain"), np.stack(list(g.values()))),
            "information": (("kinship", "chain"), np.stack(own)),
            "sticky": (("shown", "share"), sticky),
        },
        {"kinship": list(g), "shown": list(SHOWN), "share": list(recipe.shares)},
        {"symbols": S},
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge the parent's place in each row, the correlation, and g against the information."""
    T = found.sizes["query"]
    low = np.tril_indices(T - 1)
    measured, leading = (found[name].values[low] for name in ("gradient", "leading"))
    rows = found["gradient"].values[1 : T - 1]
    hits = float(np.mean([row[: i + 2].argmax() == i for i, row in enumerate(rows)]))
    parent, grandparent = (
        float(found["g"].sel(kinship=name).mean()) for name in ("parent", "grandparent")
    )
    own = float(found["information"].sel(kinship="grandparent").mean())
    gap = found["sticky"].sel(shown="self") - found["sticky"].sel(shown="parent")
    return TEXTS.judgement(
        Standing.of(hits == 1 and abs(grandparent) > own / 2, hits == 1),
        {
            "rows": hits,
            "correlation": float(np.corrcoef(measured, leading)[0, 1]),
            "slope": float(measured @ leading / (leading @ leading)),
            "parent": parent,
            "grandparent": grandparent,
            "grandparent_information": own,
            "boundary": float(np.interp(0, gap.values, found["share"].values)),
        },
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw both maps, g and information by kinship, and the sticky prior."""
    with style.page(5.2) as figure:
        axes = figure.subplots(2, 2)
        limit = float(abs(found["leading"]).max())
        for ax, name in zip(axes[0], ("gradient", "leading"), strict=True):
            seen = np.tri(found.sizes["query"], dtype=bool)
            shown = np.where(seen, found[name].values, np.nan)
            picture = ax.imshow(shown, cmap="PuOr_r", vmin=-limit, vmax=limit)
            ax.set(xlabel="key position", ylabel="query position")
        figure.colorbar(picture, ax=list(axes[0]), shrink=0.8)
        kin, place = axes[1, 0], np.arange(found.sizes["kinship"])
        for shift, name, colour in (
            (-0.2, "g", style.DISTINCT),
            (0.2, "information", style.COMMON),
        ):
            of = found[name]
            label = {"g": "mean of g", "information": r"$\chi^2$ information"}[name]
            kin.bar(place + shift, of.mean("chain"), 0.36, color=colour, label=label)
        kin.plot(place - 0.2, found["g"].median("chain"), "_", color="black", label="median of g")
        names = [
            str(name).replace("great-grand", "great-\ngrand") for name in found["kinship"].values
        ]
        kin.set_xticks(place, names, rotation=25)
        kin.legend()
        colours = (style.ACCENT, style.DISTINCT, style.OUTLINE)
        for name, colour, dash in zip(found["shown"].values, colours, style.DASHES, strict=False):
            of = found["sticky"].sel(shown=name)
            axes[1, 1].plot(found["share"], of, color=colour, linestyle=dash, label=str(name))
        axes[1, 1].set(xlabel="share of the identity in $\\pi$", ylabel="E g")
        axes[1, 1].legend()
        titles = ["first gradient, measured", "its leading term", "by kinship", "a sticky prior"]
        style.panel_titles(axes.ravel(), titles)
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
