"""Study: how does attention to spurious tokens fall with the size of the training set?

A common token that a small training set shows in one class more than in another looks distinct
(Section 9). Measured, after training on N sequences: the attention that classes give to common
tokens which have gained attention. With ever new sequences, what is left of it is due to finite
length and batches. A prior z(0) = -delta on the common tokens stands for prior knowledge of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from attnlab.data import classes_from
from attnlab.dynamics import Sampled, Save, simulate
from attnlab.figures import style
from attnlab.figures.finding import Finding
from attnlab.studies.answer import Answer
from attnlab.studies.estimate import Estimate, jackknife, mean, power, standard_error
from attnlab.studies.recipe import StudyRecipe
from attnlab.studies.turns import in_turn
from attnlab.sweep import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Spurious tokens and the size of the training set"


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """sequences: sizes N of the training set. priors: delta, 0 first; z(0) = -delta on the common
    tokens. batch_size: of larger training sets; smaller ones are taken whole."""

    classes: str
    sequences: tuple[int, ...]
    priors: tuple[float, ...]
    length: int
    batch_size: int
    eta_y: float
    eta_z: float
    steps: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """attention and share over (prior, sequences, seed); sequences 0 stands for ever new ones.

    share: of the common tokens, those with z(end) > z(0): the spurious ones. attention: what the
    classes give to these, mean over classes. common: what they give to all common tokens. logits:
    z(end) - z(0) of the common tokens, along `token`.
    """
    classes = classes_from(recipe.classes)
    tokens = classes.common_tokens()
    cells = list(product(recipe.priors, (*recipe.sequences, None)))
    attention, share, common, logits = [], [], [], []
    for (delta, size), report in in_turn(cells, progress):
        start = np.zeros((classes.queries.size, classes.vocab_size))
        start[:, tokens] = -delta
        batch = recipe.batch_size if size is None else min(size, recipe.batch_size)
        result = simulate(
            classes, Sampled(recipe.length, batch, sequences=size), eta_y=recipe.eta_y,
            eta_z=recipe.eta_z, steps=recipe.steps, seeds=recipe.seeds, init=start,
            momentum=0.0, save=Save(what=("attention", "logits"), at=(recipe.steps,)),
            progress=report,
        ).isel(step=-1, token=tokens)  # fmt: skip
        grown = result["attention_logits"].values + delta  # (seed, query, token)
        c = result["attention"].values  # (seed, class, token)
        gained = grown[:, classes.query_index] > 0
        attention.append((c * gained).sum(-1).mean(-1))
        share.append(gained.mean(axis=(1, 2)))
        common.append(c.sum(-1).mean(-1))
        logits.append(grown[:, 0])
    shape = (len(recipe.priors), len(recipe.sequences) + 1, recipe.seeds)
    dims = ("prior", "sequences", "seed")
    return xr.Dataset(
        {
            "attention": (dims, np.reshape(attention, shape)),
            "share": (dims, np.reshape(share, shape)),
            "common": (dims, np.reshape(common, shape)),
            "logits": ((*dims, "token"), np.reshape(logits, (*shape, tokens.size))),
        },
        {
            "prior": list(recipe.priors),
            "sequences": [*recipe.sequences, 0],
            "seed": np.arange(recipe.seeds),
            "probability": ("token", classes.probs[0, tokens]),
        },
    )


def excess(runs: xr.Dataset) -> xr.DataArray:
    """Attention to common tokens beyond what training on ever new sequences leaves."""
    limited = runs["common"].sel(sequences=runs["sequences"] > 0)
    return limited - runs["common"].sel(sequences=0, drop=True).mean("seed")


def fall(runs: xr.Dataset, prior: float) -> Estimate:
    """The exponent of N in the excess."""
    of_prior = excess(runs).sel(prior=prior)
    return jackknife(
        lambda kept: power(kept["sequences"].values, kept.mean("seed").values), of_prior
    )


def draw(runs: xr.Dataset) -> Figure:
    """The excess, the spurious tokens' attention and their share, against N, for each prior."""
    from matplotlib.figure import Figure

    limited = runs.sel(sequences=runs["sequences"] > 0)
    panels = {
        "excess": excess(runs),
        "attention": limited["attention"],
        "share": limited["share"],
    }
    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 2.8), layout="constrained")
        axes = figure.subplots(1, 3)
        colours = style.ordered(runs.sizes["prior"])
        for ax, values in zip(axes, panels.values(), strict=True):
            for i, colour in enumerate(colours):
                of_prior = values.isel(prior=i)
                half = standard_error(of_prior)
                ax.errorbar(
                    of_prior["sequences"], of_prior.mean("seed"), yerr=half, capsize=2,
                    color=colour, marker=style.MARKERS[i], linestyle=style.DASHES[i],
                    label=f"{float(of_prior['prior']):g}",
                )  # fmt: skip
            ax.set_xscale("log")
            ax.set_xlabel("sequences in the training set, $N$")
        axes[0].set_yscale("log")
        axes[0].set_ylabel("excess attention to common tokens")
        axes[1].set_ylabel("attention to spurious tokens")
        axes[2].set_ylabel("share of common tokens\nthat gain")
        style.panel_titles(axes, ["excess", "spurious attention", "how many"])
        figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside upper center",
            ncols=runs.sizes["prior"], title=r"prior $\delta$, $z(0) = -\delta$ on common tokens",
            title_fontsize=7.5,
        )  # fmt: skip
    return figure


def judge(runs: xr.Dataset) -> Finding:
    """How does the excess fall with N, and what does a prior save?"""
    slope = fall(runs, 0.0)
    smallest, largest = (int(runs["sequences"][i]) for i in (0, -2))
    strongest = float(runs["prior"][-1])
    few = mean(runs["attention"].sel(prior=0, sequences=smallest))
    many = mean(runs["attention"].sel(prior=0, sequences=largest))
    helped = jackknife(
        lambda kept: float(kept.sel(prior=strongest).mean() / kept.sel(prior=0).mean()),
        runs["attention"].sel(sequences=runs["sequences"] > 0),
    )
    gained = jackknife(
        lambda kept: float(kept.sel(prior=strongest).mean() / kept.sel(prior=0).mean()),
        runs["share"].sel(sequences=runs["sequences"] > 0),
    )
    numbers = {
        **slope.numbers("slope"),
        **few.numbers("spurious_smallest"),
        **many.numbers("spurious_largest"),
        **helped.numbers("attention_with_prior"),
        **gained.numbers("share_with_prior"),
    }
    headline = (
        f"Excess attention to common tokens falls as N to the power {slope}; a prior z(0) = "
        f"-{strongest:g} leaves {helped} of the attention to spurious ones."
    )
    summary = (
        f"{headline} With {smallest} sequences the classes give {few} of their attention to common "
        f"tokens that have gained, with {largest} {many}. With the prior {gained} times as many "
        f"common tokens gain as without it: it does not teach which are common, but they start at "
        f"exp(-{strongest:g}) = {np.exp(-strongest):.2f} of their attention, and a logit moves as "
        f"the square of that. ({slope.count} seeds, each with its own "
        f"training set.)"
    )
    alt = (
        f"Against the size of the training set, {smallest} to {largest} sequences, for priors "
        f"0 to {strongest:g}: the excess attention to common tokens, falling with slope "
        f"{slope.value:.2f}; attention to spurious tokens, from {few.value:.3f} to "
        f"{many.value:.3f} without a prior and lower with one; the share of common tokens that "
        f"gain."
    )
    falls = slope.value + 2 * slope.error < 0
    helps = helped.value + 2 * helped.error < 1
    outcome = Answer.AGREES if falls and helps else Answer.PARTLY if falls else Answer.CONTRADICTS
    return Finding(outcome, headline, summary, alt, numbers)
