"""Study: how does attention to spurious tokens fall with the size of the training set?

A common token that a small training set shows in one class more than in another looks distinct
(Section 9). Measured, after training on N sequences: the attention that classes give to common
tokens which have gained attention; and the excess, attention to all common tokens beyond what
training on ever new sequences leaves, split into tokens that the training set shows and those that
it never shows, of which nothing can be learnt. A prior z(0) = -delta on the common tokens stands
for prior knowledge of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.data import classes_from
from attnlab.dynamics import Sampled, Save, simulate
from attnlab.experiments.base import Experiment, Judgement, Standing
from attnlab.experiments.estimate import Estimate, jackknife, mean, power, standard_error
from attnlab.experiments.recipe import StudyRecipe
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style

Runs = TypeVar("Runs", xr.Dataset, xr.DataArray)


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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.priors[0] != 0:
            raise InputError(f"priors: expected 0 first, got {self.priors[0]:g}")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """attention, share, common and excess over (prior, sequences, seed), excess also over part;
    sequences 0 stands for ever new ones, which have no excess. unseen: over (sequences, seed).

    share: of the common tokens, those with z(end) > z(0): the spurious ones. attention: what the
    classes give to these, mean over classes. common: what they give to all common tokens. unseen:
    of the common tokens, those that the training set does not show. excess: attention to the
    common tokens that it shows ("seen") and does not ("unseen"), less what the same seed leaves to
    the same tokens after training on ever new sequences.
    """
    classes = classes_from(recipe.classes)
    tokens = classes.common_tokens()
    sizes = (*recipe.sequences, None)
    grown, attention = [], []
    for (delta, size), report in in_turn(list(product(recipe.priors, sizes)), progress):
        start = np.zeros((classes.queries.size, classes.vocab_size))
        start[:, tokens] = -delta
        batch = recipe.batch_size if size is None else min(size, recipe.batch_size)
        result = simulate(
            classes, Sampled(recipe.length, batch, sequences=size), eta_y=recipe.eta_y,
            eta_z=recipe.eta_z, steps=recipe.steps, seeds=recipe.seeds, init=start,
            momentum=0.0, save=Save(what=("attention", "logits"), at=(recipe.steps,)),
            progress=report,
        ).isel(step=-1, token=tokens)  # fmt: skip
        moved = result["attention_logits"].values + delta  # (seed, query, token)
        grown.append(moved[:, classes.query_index])
        attention.append(result["attention"].values)  # (seed, class, token)
    shape = (len(recipe.priors), len(sizes), recipe.seeds, len(classes), tokens.size)
    dims = ("prior", "sequences", "seed", "sequence_class", "token")
    z = xr.DataArray(np.reshape(grown, shape), dims=dims)
    c = xr.DataArray(np.reshape(attention, shape), dims=dims)
    # Without a prior z starts from 0, where no move is too small for a float: what has not moved
    # was never drawn. A seed has the same training set at every prior.
    unseen = (z.isel(prior=0, drop=True) == 0).all("sequence_class")
    beyond = (c - c.isel(sequences=-1)).mean("sequence_class")
    parts = xr.concat(
        [beyond.where(~unseen, 0.0), beyond.where(unseen, 0.0)],
        xr.DataArray(["seen", "unseen"], dims="part", name="part"),
    )
    return xr.Dataset(
        {
            "attention": (c * (z > 0)).sum("token").mean("sequence_class"),
            "share": (z > 0).mean(("sequence_class", "token")),
            "common": c.sum("token").mean("sequence_class"),
            "excess": parts.sum("token").transpose(..., "part"),
            "unseen": unseen.mean("token"),
        },
        {
            "prior": list(recipe.priors),
            "sequences": [*recipe.sequences, 0],
            "seed": np.arange(recipe.seeds),
        },
    )


def limited(runs: Runs) -> Runs:
    """Those of training sets, without those of ever new sequences."""
    return runs.sel(sequences=runs["sequences"] > 0)


def fall(excess: xr.DataArray) -> Estimate:
    """The exponent of N in an excess (sequences, seed)."""
    return jackknife(lambda kept: power(kept["sequences"].values, kept.mean("seed").values), excess)


def unseen_part(excess: xr.DataArray) -> Estimate:
    """The part of an excess (seed, part) that goes to tokens which training never showed."""
    return jackknife(
        lambda kept: float(kept.sel(part="unseen").mean() / kept.sum("part").mean()), excess
    )


def draw(runs: xr.Dataset) -> Figure:
    """The excess and its part, the spurious tokens' attention and their share, against N."""
    excess = limited(runs["excess"])
    with style.page(4.6) as figure:
        axes = figure.subplots(2, 2).ravel()
        for i, colour in enumerate(style.ordered(runs.sizes["prior"])):
            look = {"color": colour, "marker": style.MARKERS[i], "capsize": 2}
            of_prior = runs.isel(prior=i)
            delta = f"{float(of_prior['prior']):g}"
            beyond = excess.isel(prior=i)
            shown = {"all": beyond.sum("part"), "seen in training": beyond.sel(part="seen")}
            for dashes, (label, values) in zip(style.DASHES, shown.items(), strict=False):
                axes[0].errorbar(
                    values["sequences"], values.mean("seed"), yerr=standard_error(values),
                    linestyle=dashes, label=None if i else label, **look,
                )  # fmt: skip
            found = [unseen_part(of_size) for of_size in beyond]
            axes[1].errorbar(
                excess["sequences"], [part.value for part in found],
                yerr=[part.error for part in found], label=delta, **look,
            )  # fmt: skip
            for ax, name in ((axes[2], "attention"), (axes[3], "share")):
                values = limited(of_prior[name])
                ax.errorbar(
                    values["sequences"], values.mean("seed"), yerr=standard_error(values), **look
                )
        for ax in axes:
            ax.set_xscale("log")
            ax.set_xlabel("sequences in the training set, $N$")
        axes[0].set_yscale("log")
        axes[0].set_ylabel("excess attention\nto common tokens")
        axes[0].legend()
        axes[1].set_ylabel("part of the excess\nto tokens never seen")
        axes[2].set_ylabel("attention to spurious tokens")
        axes[3].set_ylabel("share of common tokens\nthat gain")
        style.panel_titles(axes, ["excess", "never seen", "spurious attention", "how many"])
        style.legend_above(
            figure, axes[1], ncols=runs.sizes["prior"],
            title=r"prior $\delta$, $z(0) = -\delta$ on common tokens",
        )  # fmt: skip
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """How much of the excess is of tokens never seen, how does the rest fall with N, and what does
    a prior save?"""
    excess = limited(runs["excess"]).sel(prior=0)
    sizes = excess["sequences"].values.tolist()
    smallest, largest = sizes[0], sizes[-1]
    strongest = float(runs["prior"][-1])
    parts = {size: unseen_part(excess.sel(sequences=size)) for size in sizes}
    seen = excess.sel(part="seen")
    slope = fall(seen)
    first, last = fall(seen.isel(sequences=slice(2))), fall(seen.isel(sequences=slice(-2, None)))
    left = {size: mean(seen.sel(sequences=size)) for size in (smallest, largest)}
    few, many = (
        mean(runs["attention"].sel(prior=0, sequences=size)) for size in (smallest, largest)
    )
    with_prior = limited(runs[["attention", "share"]])
    helped, gained, helped_most_data = (
        jackknife(
            lambda kept: float(kept.sel(prior=strongest).mean() / kept.sel(prior=0).mean()), of
        )
        for of in (
            with_prior["attention"],
            with_prior["share"],
            with_prior["attention"].sel(sequences=largest),
        )
    )
    numbers: dict[str, float] = {}
    for size, part in parts.items():
        numbers |= part.numbers(f"unseen_part_{size}")
    for size, estimate in left.items():
        numbers |= estimate.numbers(f"seen_excess_{size}")
    numbers |= {
        **slope.numbers("slope_seen"),
        **first.numbers("slope_seen_first"),
        **last.numbers("slope_seen_last"),
        **few.numbers("spurious_smallest"),
        **many.numbers("spurious_largest"),
        **helped.numbers("attention_with_prior"),
        **helped_most_data.numbers(f"attention_with_prior_{largest}"),
        **gained.numbers("share_with_prior"),
    }
    bends = abs(first.value - last.value) > 2 * np.hypot(first.error, last.error)
    shares = ", ".join(f"{part.value:.1%} ({size})" for size, part in parts.items())
    headline = (
        f"At N = {smallest} {parts[smallest].value:.0%} of the excess attention to common tokens "
        f"goes to tokens that training never showed. To those it showed, the excess falls from "
        f"{left[smallest]} to {left[largest]} (N = {largest}); a prior z(0) = -{strongest:g} "
        f"leaves {helped} of the attention to spurious ones."
    )
    summary = (
        f"{headline} By N, in brackets, the part that goes to tokens never seen is {shares}. A "
        f"token that is not seen is not taken for a distinct one: it keeps its start. The excess "
        f"to tokens that were seen is {'no' if bends else 'about a'} power of N: its exponent is "
        f"{first} between the two smallest sizes and {last} between the two largest ({slope} over "
        f"all). With {smallest} "
        f"sequences the classes give {few} of their attention to common tokens that have gained, "
        f"with {largest} {many}. With the prior {gained} times as many common tokens gain as "
        f"without it: it does not teach which are common, but they start at exp(-{strongest:g}) = "
        f"{np.exp(-strongest):.2f} of their attention, and a logit moves as the square of that. "
        f"At N = {largest} it leaves {helped_most_data} of the attention to spurious ones. "
        f"({slope.count} seeds, each with its own training set.)"
    )
    alt = (
        f"Against the size of the training set, {smallest} to {largest} sequences, for priors "
        f"0 to {strongest:g}: the excess attention to common tokens, all and seen, the latter from "
        f"{left[smallest].value:.3f} to {left[largest].value:.4f} without a prior; the part of it "
        f"that goes to tokens never seen, from {parts[smallest].value:.2f} to "
        f"{parts[largest].value:.2f}; attention to spurious tokens, from {few.value:.3f} to "
        f"{many.value:.3f} without a prior, and lower with one at small sizes; the share of common "
        f"tokens that gain."
    )
    falls = slope.value + 2 * slope.error < 0 and many.value + 2 * many.error < few.value
    helps = helped.value + 2 * helped.error < 1
    outcome = Standing.HOLDS if falls and helps else Standing.PARTLY if falls else Standing.FAILS
    return Judgement(outcome, headline, summary, alt, numbers)


EXPERIMENT = Experiment(
    name="spurious", kind="study", title="Spurious tokens and the size of the training set",
    recipe=Recipe, data=data, judge=judge, draw=draw,
)  # fmt: skip
