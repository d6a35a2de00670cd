"""Study: from which length on do finite sequences follow the limit T to infinity?

Measured: the logits z at the end of training on sequences of length T, minus those of T to
infinity at the same rates, as a vector relative to the latter. It is compared with the relative
bias of |q|^2, the squared norm of a sequence's token frequencies: (1 - |p|^2) / (|p|^2 (T - 1)).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from attnlab import theory
from attnlab.data import classes_from
from attnlab.dynamics import Limit, Sampled, Save, simulate
from attnlab.figures import style
from attnlab.figures.finding import Finding
from attnlab.studies.answer import Answer
from attnlab.studies.estimate import Estimate, jackknife, power
from attnlab.studies.recipe import StudyRecipe
from attnlab.studies.turns import in_turn
from attnlab.sweep import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "When finite sequences follow the limit"
NEAR = 0.1  # z is called near its limit at this deviation


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """classes: several, by a short name, to tell what is general. fitted: the law is fitted to the
    lengths from the first to the second; beyond, the seeds' noise is as large as the deviation."""

    classes: dict[str, str]
    lengths: tuple[int, ...]
    fitted: tuple[int, int]
    batch_size: int
    eta_y: float
    eta_z: float
    steps: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """excess over (classes, length, seed, entry): (z(T) - z(infinity)) / |z(infinity)|.

    An entry is a (query, token) pair, NaN where classes have fewer. bias: of |q|^2, relative, over
    (classes, length). distinct, distinct_limit, probability: z(T), z(infinity) and P(l|n) of the
    distinct tokens of class 0, along `rank`, rarest first.
    """
    families = [
        _family(recipe, text, report)
        for text, report in in_turn(list(recipe.classes.values()), progress)
    ]
    names = xr.DataArray(list(recipe.classes), dims="classes", name="classes")
    shortest, longest = recipe.fitted
    together = xr.concat(families, names, join="outer")
    return together.assign_attrs(fitted_from=shortest, fitted_to=longest)


def _family(recipe: Recipe, text: str, progress: Progress) -> xr.Dataset:
    classes = classes_from(text)
    own = classes.distinct_tokens(0)
    own = own[np.argsort(classes.probs[0, own], kind="stable")]
    query = int(classes.query_index[0])

    def end(length: int | None, report: Progress) -> xr.DataArray:
        engine = Limit() if length is None else Sampled(length, recipe.batch_size)
        result = simulate(
            classes, engine, eta_y=recipe.eta_y, eta_z=recipe.eta_z, steps=recipe.steps,
            seeds=1 if length is None else recipe.seeds,
            momentum=0.0, save=Save(what="logits", at=(recipe.steps,)), progress=report,
        )  # fmt: skip
        return result["attention_logits"].isel(step=-1).astype(np.float64)

    limit, *finite = [end(*turn) for turn in in_turn((None, *recipe.lengths), progress)]
    limit = limit.isel(seed=0)
    size = float(np.sqrt((limit**2).sum()))
    z = xr.concat(finite, xr.DataArray(list(recipe.lengths), dims="length", name="length"))
    excess = ((z - limit) / size).isel(token=classes.in_play)
    entries = excess.values.reshape(*excess.shape[:2], -1)
    p = classes.probs[0]
    norm = theory.expected_squared_norm(p, length=np.array(recipe.lengths))
    return xr.Dataset(
        {
            "excess": (("length", "seed", "entry"), entries),
            "bias": ("length", norm / (p**2).sum() - 1.0),
            "distinct": (("length", "seed", "rank"), z.isel(query=query, token=own).values),
            "distinct_limit": ("rank", limit.isel(query=query, token=own).values),
            "probability": ("rank", p[own]),
        },
        {
            "length": list(recipe.lengths),
            "seed": np.arange(recipe.seeds),
            "entry": np.arange(entries.shape[-1]),
            "rank": np.arange(own.size),
        },
    )


def deviation(excess: xr.DataArray) -> xr.DataArray:
    """The norm of the mean excess, with what the spread of the seeds adds to it taken away.

    NaN where nothing is left: there the deviation is less than the noise.
    """
    squared = (excess.mean("seed") ** 2).sum("entry")
    noise = (excess.var("seed", ddof=1) / excess.sizes["seed"]).sum("entry")
    left = squared - noise
    return left.where(left > 0) ** 0.5


def slope(runs: xr.Dataset) -> Estimate:
    """The exponent of T - 1 in the deviation, mean over classes."""
    late = _fitted(runs)

    def exponent(excess: xr.DataArray) -> float:
        by_length = deviation(excess).transpose("classes", "length").values
        return float(np.mean([power(late["length"].values - 1.0, row) for row in by_length]))

    return jackknife(exponent, late["excess"])


def _fitted(runs: xr.Dataset) -> xr.Dataset:
    return runs.sel(length=slice(runs.attrs["fitted_from"], runs.attrs["fitted_to"]))


def draw(runs: xr.Dataset) -> Figure:
    """The deviation against T and over the bias, and which tokens gain at which length."""
    from matplotlib.figure import Figure

    length = runs["length"].values
    far = deviation(runs["excess"])
    error = [
        [
            jackknife(lambda kept: float(deviation(kept)), runs["excess"].isel(classes=i, length=j))
            for j in range(length.size)
        ]
        for i in range(runs.sizes["classes"])
    ]
    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 3.0), layout="constrained")
        axes = figure.subplots(1, 3)
        for i, colour in enumerate(style.ordered(runs.sizes["classes"])):
            family = runs.isel(classes=i)
            half = [estimate.error for estimate in error[i]]
            look = {"color": colour, "marker": style.MARKERS[i], "linewidth": 1.0}
            name = str(family["classes"].values)
            axes[0].errorbar(length, far[i], yerr=half, capsize=2, label=name, **look)
            axes[0].plot(length, family["bias"], color=colour, linestyle=":", linewidth=1.0)
            axes[1].plot(length, far[i] / family["bias"], label=name, **look)
        axes[0].axhline(NEAR, color=style.OUTLINE, linewidth=0.6)
        for ax in axes[:2]:
            ax.set_xscale("log", base=2)
            ax.set_xticks(length, [f"{value:g}" for value in length], rotation=60)
            ax.set_xlabel("sequence length $T$")
            ax.set_yscale("log")
        axes[0].set_ylabel(r"$|z(T) - z(\infty)| \,/\, |z(\infty)|$")
        axes[1].set_ylabel("deviation / bias of $|q|^2$")
        first = runs.isel(classes=0).dropna("rank")
        for i, colour in enumerate(style.ordered(length.size)):
            z = first["distinct"].isel(length=i).mean("seed")
            axes[2].plot(first["probability"], z, color=colour, label=f"T = {length[i]}")
        axes[2].plot(
            first["probability"], first["distinct_limit"], color="black", linestyle="--",
            label=r"$T = \infty$",
        )  # fmt: skip
        axes[2].axhline(0, color=style.OUTLINE, linewidth=0.6)
        axes[2].set_xlabel("$P(l|n)$ of a distinct token")
        axes[2].set_ylabel("logit $z_l$ at the end")
        axes[2].legend(fontsize=6.5)
        style.panel_titles(axes, ["distance from the limit", "over the bias", "who gains"])
        figure.legend(
            *axes[1].get_legend_handles_labels(), loc="outside upper center",
            ncols=runs.sizes["classes"],
            title="dotted: the relative bias of $|q|^2$; (c): the first classes; bars: s.e.",
            title_fontsize=7.5,
        )  # fmt: skip
    return figure


def judge(runs: xr.Dataset) -> Finding:
    """Does the deviation fall as the bias does, and does the bias give its size?"""
    fall = slope(runs)
    last = _fitted(runs)

    def ratios(excess: xr.DataArray) -> xr.DataArray:
        return (deviation(excess) / last["bias"]).mean("length")

    low = jackknife(lambda excess: float(ratios(excess).min()), last["excess"])
    high = jackknife(lambda excess: float(ratios(excess).max()), last["excess"])
    rare = runs["distinct"].isel(rank=0).mean("seed").isel(classes=0)
    loses = [int(t) for t in runs["length"].values[(rare < 0).values]]
    numbers = {
        **fall.numbers("slope"),
        **low.numbers("smallest_ratio"),
        **high.numbers("largest_ratio"),
        "longest_where_the_rarest_loses": float(max(loses, default=0)),
    }
    explained = abs(fall.value + 1) < max(0.1, 2 * fall.error)
    headline = (
        f"From T = {runs.attrs['fitted_from']} on the distance from the limit falls as T - 1 to "
        f"the power {fall}; it is {low} to {high} times the relative bias of |q|^2."
    )
    summary = (
        f"{headline} So the bias of |q|^2 {'has' if explained else 'does not have'} the right "
        f"rate, but not the size, which depends on the classes: z is within {NEAR:.0%} of its "
        f"limit once T - 1 is {low.value / NEAR:.0f} to {high.value / NEAR:.0f} times "
        f"1/|p|^2 - 1, the effective number of tokens less one. Short sequences do not only add "
        f"noise: what the rare distinct tokens should gain they lose, because a token that occurs "
        f"now and then has E q_l^2 = p_l^2 + p_l (1 - p_l)/(T - 1). In the first classes the "
        f"rarest one loses up to T = {max(loses, default=0)} ({fall.count} seeds)."
    )
    alt = (
        f"Relative deviation of the logits from their limit against sequence length from "
        f"{int(runs['length'][0])} to {int(runs['length'][-1])}, for {runs.sizes['classes']} sets "
        f"of classes, falling in parallel with slope {fall.value:.2f}; the same over the bias, "
        f"flat between {low.value:.2g} and {high.value:.2g}; and the logits of distinct tokens "
        f"against their probability, negative for rare ones at short lengths."
    )
    return Finding(Answer.AGREES if explained else Answer.PARTLY, headline, summary, alt, numbers)
