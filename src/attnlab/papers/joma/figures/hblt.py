"""JoMA's trees of hidden binary latents: how often two tokens occur together."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, Texts, over_cells
from attnlab.files.progress import Progress
from attnlab.papers.joma import theory
from attnlab.papers.joma.classes import LatentTree
from attnlab.plots import style

TEXTS = Texts.read(__file__)
EXACT = 1e-12
ERRORS = 4.5  # standard errors that a sampled share may be off by, the most of some dozens


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """branching: of the tree, level by level. on: P(a child of the root is on), for every label.
    sequences: how many are drawn."""

    branching: tuple[int, ...]
    rho: tuple[float, ...]
    on: tuple[float, ...]
    sequences: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """P(y_l = 1 | y_m = 1) over (rho, on, H), by the formula, by adding up all settings of all
    nodes, and by drawing sequences; H is how many levels up the common ancestor is.

    sampled_error: the standard error of the last, as of independent pairs.
    """
    return over_cells(partial(_one, recipe), progress, rho=recipe.rho, on=recipe.on)


def _one(recipe: Recipe, rho: float, on: float, progress: Progress) -> xr.Dataset:
    tree = LatentTree(recipe.branching, rho, ((on,) * recipe.branching[0],))
    H = np.arange(tree.depth)  # below the root, which is no latent
    heights = tree.heights()
    # the first leaf, and one leaf for each height
    other = np.array([int(np.flatnonzero(heights[0] == up)[0]) for up in H])
    both = tree.enumerate()[0, 0, other]
    leaves = tree.sample(recipe.sequences).leaves
    seen = leaves[leaves[:, 0]][:, other]
    share = seen.mean(axis=0)
    formula = theory.tree_co_occurrence(H, depth=tree.depth, rho=rho, rho_0=1 - 2 * on)
    return xr.Dataset(
        {
            "formula": ("H", formula),
            "enumerated": ("H", both / both[0]),
            "sampled": ("H", share),
            "sampled_error": ("H", np.sqrt(share * (1 - share) / len(seen))),
            "alone": float(both[0]),
        },
        {"H": H},
    )


def draw(found: xr.Dataset) -> Figure:
    """A panel for each P(on): lines by the formula, crosses enumerated, dots sampled."""
    dots = {"marker": "o", "markersize": 2.5, "linestyle": "none"}
    with style.page(2.7) as figure:
        axes = figure.subplots(1, found.sizes["on"], sharey=True, squeeze=False)[0]
        for ax, on in zip(axes, found["on"].values, strict=True):
            for of, styles in style.entries(found.sel(on=on), "rho"):
                H, colour, error = of["H"], styles["color"], 2 * of["sampled_error"]
                ax.plot(H, of["formula"], color=colour, label=rf"$\rho$ = {float(of['rho']):g}")
                ax.plot(H, of["enumerated"], color=colour, marker="x", linestyle="none")
                ax.errorbar(H + 0.08, of["sampled"], error, color=colour, **dots)
            ax.set_xticks(found["H"].values)
            ax.set_xlabel("levels up to the common ancestor, $H$")
        axes[0].set_ylabel(r"$P(y_l = 1\,|\,y_m = 1)$")
        style.panel_titles(axes, [f"root's children on with {on:g}" for on in found["on"].values])
        style.legend_above(figure, axes[0])
    return figure


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether formula, enumeration and sampling agree, and siblings co-occur most."""
    exact = float(abs(found["formula"] - found["enumerated"]).max())
    up = found["H"] > 0
    off = abs(found["sampled"] - found["formula"]).where(up) / found["sampled_error"].where(up)
    falls = bool((found["formula"].diff("H") <= 0).all())
    siblings = found["formula"].sel(H=1) - found["formula"].isel(H=-1)
    numbers = {
        "enumeration_gap": exact,
        "sampling_errors": float(off.max()),
        "siblings_over_farthest": float(siblings.max()),
    }
    agree = exact < EXACT and numbers["sampling_errors"] < ERRORS
    return TEXTS.judgement(
        Standing.HOLDS if agree and falls else Standing.FAILS,
        numbers,
        count=int(up.sum()) * found.sizes["rho"] * found.sizes["on"],
        values=found.sizes["rho"],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
