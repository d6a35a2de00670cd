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
from attnlab.measures import parent_recovery
from attnlab.plots import style

from .. import theory
from ..claims.gradient import boundary, information_of, sticky

TEXTS = Texts.read(__file__)


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
    kinships = list(theory.KINSHIPS)
    square = ("query", "key")
    return xr.Dataset(
        {
            "gradient": (square, gradient),
            "leading": (square, theory.leading_gradient(pi, chain, beta0=recipe.beta0)),
            "g": (("kinship", "chain"), [theory.kinship_kernel(kin, name) for name in kinships]),
            "information": (("kinship", "chain"), [information_of(kin, name) for name in kinships]),
            "sticky": sticky(np.array(recipe.shares), recipe.chains, symbols=S, seed=3),
        },
        {"kinship": kinships},
    )


def judge(found: xr.Dataset) -> Judgement:
    """Judge the parent's place in each row, the correlation, and g against the information."""
    positions = found.sizes["query"] - 1  # without the test token
    low = np.tril_indices(positions)
    measured, leading = (found[name].values[low] for name in ("gradient", "leading"))
    rows = float(parent_recovery(found["gradient"].values, np.arange(positions) - 1))
    g, own = (found[name].mean("chain") for name in ("g", "information"))
    parent, grandparent = (float(g.sel(kinship=name)) for name in ("parent", "grandparent"))
    information = float(own.sel(kinship="grandparent"))
    return TEXTS.judgement(
        Standing.of(rows == 1 and abs(grandparent) > information / 2, rows == 1),
        {
            "rows": rows,
            "correlation": float(np.corrcoef(measured, leading)[0, 1]),
            "slope": float(measured @ leading / (leading @ leading)),
            "parent": parent,
            "grandparent": grandparent,
            "grandparent_information": information,
            "boundary": boundary(found["sticky"]),
        },
    )


def draw(found: xr.Dataset) -> Figure:
    """Draw both maps, g and information by kinship, and the sticky prior."""
    with style.page(5.2) as figure:
        axes = figure.subplots(2, 2).ravel()
        limit = float(abs(found["leading"]).max())
        seen = np.tri(found.sizes["query"], dtype=bool)
        for ax, name in zip(axes, ("gradient", "leading"), strict=False):
            shown = np.where(seen, found[name], np.nan)
            picture = ax.imshow(shown, cmap="PuOr_r", vmin=-limit, vmax=limit)
            ax.locator_params(integer=True)
        figure.colorbar(picture, ax=list(axes[:2]), shrink=0.8)
        place = np.arange(found.sizes["kinship"])
        for shift, name, colour, label in (
            (-0.2, "g", style.DISTINCT, "mean of g"),
            (0.2, "information", style.COMMON, r"$\chi^2$ information"),
        ):
            axes[2].bar(place + shift, found[name].mean("chain"), 0.36, color=colour, label=label)
        median = found["g"].median("chain")
        axes[2].plot(place - 0.2, median, "_", color="black", label="median of g")
        names = [name.replace("great-grand", "great-\ngrand") for name in found["kinship"].values]
        axes[2].set_xticks(place, names, rotation=25, ha="right")
        axes[2].legend()
        colours = (style.ACCENT, style.DISTINCT, style.OUTLINE)
        for of, colour, dash in zip(found["sticky"], colours, style.DASHES, strict=False):
            axes[3].plot(found["share"], of, color=colour, linestyle=dash, label=of["shown"].item())
        axes[3].legend()
        TEXTS.label(axes)
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
