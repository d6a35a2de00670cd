"""Study: how does attention to spurious tokens fall with the size of the training set?

A common token that a small training set shows in one class more than in another looks distinct
(Section 9). Measured, after training on N sequences: the attention that classes give to common
tokens which have gained attention; and the excess, attention to all common tokens beyond what
training on ever new sequences leaves, split into tokens that the training set shows and those that
it never shows, of which nothing can be learnt. A prior z(0) = -delta on the common tokens stands
for prior knowledge of them. All of it in several settings, because how large the effect is depends
on them: the headline gives the range, the details are of the first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

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
class Setting:
    """Classes, the length of their sequences, and the learning rate of attention."""

    classes: str
    length: int
    eta_z: float


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """settings: by a short name; details are given of the first. sequences: sizes N of the training
    set. priors: delta, 0 first; z(0) = -delta on the common tokens. batch_size: of larger training
    sets; smaller ones are taken whole."""

    settings: dict[str, Setting]
    sequences: tuple[int, ...]
    priors: tuple[float, ...]
    batch_size: int
    eta_y: float
    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.priors[0] != 0:
            raise InputError(f"priors: expected 0 first, got {self.priors[0]:g}")

    def inputs(self) -> list[str]:
        """Digests of the classes of every setting."""
        return [classes_from(setting.classes).digest for setting in self.settings.values()]


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """attention, share, common and excess over (setting, prior, sequences, seed), excess also over
    part; sequences 0 stands for ever new ones, which have no excess. unseen: over (setting,
    sequences, seed).

    share: of the common tokens, those with z(end) > z(0): the spurious ones. attention: what the
    classes give to these, mean over classes. common: what they give to all common tokens. unseen:
    of the common tokens, those that the training set does not show. excess: attention to the
    common tokens that it shows ("seen") and does not ("unseen"), less what the same seed leaves to
    the same tokens after training on ever new sequences.
    """
    settings = list(recipe.settings.values())
    made = [_trained(recipe, setting, report) for setting, report in in_turn(settings, progress)]
    return xr.concat(made, xr.DataArray(list(recipe.settings), dims="setting", name="setting"))


def _trained(recipe: Recipe, setting: Setting, progress: Progress) -> xr.Dataset:
    classes = classes_from(setting.classes)
    tokens = classes.common_tokens()
    sizes = (*recipe.sequences, None)
    grown, attention = [], []
    for (delta, size), report in in_turn(list(product(recipe.priors, sizes)), progress):
        start = np.zeros((classes.queries.size, classes.vocab_size))
        start[:, tokens] = -delta
        batch = recipe.batch_size if size is None else min(size, recipe.batch_size)
        result = simulate(
            classes, Sampled(setting.length, batch, sequences=size), eta_y=recipe.eta_y,
            eta_z=setting.eta_z, steps=recipe.steps, seeds=recipe.seeds, init=start,
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


def prior_leaves(attention: xr.DataArray) -> Estimate:
    """Attention over (prior, ..., seed) at the strongest prior, over that without a prior."""
    return jackknife(
        lambda kept: float(kept.isel(prior=-1).mean() / kept.isel(prior=0).mean()), attention
    )


def draw(runs: xr.Dataset) -> Figure:
    """The excess and its part, the spurious tokens' attention and their share, against N, in the
    first setting; then excess and attention without a prior in all of them."""
    first = runs.isel(setting=0)
    excess = limited(first["excess"])
    with style.page(4.9) as figure:
        axes = figure.subplots(2, 3).ravel()
        for i, colour in enumerate(style.ordered(runs.sizes["prior"])):
            look = {"color": colour, "marker": style.MARKERS[i], "capsize": 2, "markersize": 4}
            of_prior = first.isel(prior=i)
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
        _draw_settings(axes[4:], runs)
        for ax in axes:
            ax.set_xscale("log")
            ax.set_xlabel("training sequences $N$")
        axes[0].set_yscale("log")
        axes[0].set_ylabel("excess attention\nto common tokens")
        axes[0].legend()
        axes[1].set_ylabel("part of the excess\nto tokens never seen")
        axes[2].set_ylabel("attention to spurious tokens")
        axes[3].set_ylabel("share of common tokens\nthat gain")
        axes[4].set_ylabel("excess to tokens seen")
        axes[5].set_ylabel("attention to spurious tokens")
        titles = ["excess", "never seen", "spurious", "how many", "all settings", "all settings"]
        style.panel_titles(axes, titles)
        axes[4].legend(fontsize=5.5)
        style.legend_above(
            figure, axes[1], ncols=runs.sizes["prior"],
            title=r"(a) to (d): prior $\delta$, $z(0) = -\delta$ on common tokens, "
            f"{runs['setting'].values[0]}; (e), (f): without a prior",
        )  # fmt: skip
    return figure


def _draw_settings(axes: Sequence[Any], runs: xr.Dataset) -> None:
    without = limited(runs).isel(prior=0)
    shown = (without["excess"].sel(part="seen"), without["attention"])
    for i, colour in enumerate(style.ordered(runs.sizes["setting"])):
        for ax, values in zip(axes, shown, strict=True):
            ax.errorbar(
                values["sequences"], values.isel(setting=i).mean("seed"),
                yerr=standard_error(values.isel(setting=i)), color=colour, capsize=1,
                marker=style.MARKERS[i % len(style.MARKERS)], markersize=3, linewidth=0.8,
                label=str(runs["setting"].values[i]),
            )  # fmt: skip


def judge(runs: xr.Dataset) -> Judgement:
    """How much of the excess is of tokens never seen, how does the rest fall with N, and what does
    a prior save?"""
    ranges = [_Range.of(runs.sel(setting=name)) for name in runs["setting"].values]
    every, runs = runs, runs.isel(setting=0)
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
        prior_leaves(of)
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
    for each in ranges:
        numbers |= each.numbers()
    unseen_range = _span([each.unseen.value for each in ranges], ".0%")
    left_range = _span([each.excess_left.value for each in ranges], ".2g")
    grown_range = _span([each.spurious_left.value for each in ranges], ".2g")
    prior_range = _span([each.with_prior.value for each in ranges], ".2g")
    falling, helped_in = (
        [getattr(each, what) for each in ranges].count(True) for what in ("falls", "helps")
    )
    headline = (
        f"Over {len(ranges)} settings: at N = {smallest} {unseen_range} of the excess attention to "
        f"common tokens goes to tokens that training never showed. To those it showed, the excess "
        f"at N = {largest} is {left_range} times that at N = {smallest}, attention to common "
        f"tokens that gained {grown_range} times; a prior z(0) = -{strongest:g} leaves "
        f"{prior_range} of the latter."
    )
    rising = [each for each in ranges if not each.falls]
    exceptions = "".join(f" {each.in_words(smallest, largest)}" for each in rising)
    summary = (
        f"{headline} Both fall with N in {falling} of {len(ranges)} settings, and the prior lowers "
        f"attention to tokens that gained in {helped_in}.{exceptions} Details of the first setting "
        f"({every['setting'].values[0]}): by N, in brackets, the part that goes to tokens never "
        f"seen is {shares}. A token that is not seen is not taken for a distinct one: it keeps its "
        f"start. The excess to tokens that were seen falls from {left[smallest]} to "
        f"{left[largest]} and is {'no' if bends else 'about a'} power of N: its exponent is "
        f"{first} between the two smallest sizes and {last} between the two largest ({slope} over "
        f"all). With {smallest} "
        f"sequences the classes give {few} of their attention to common tokens that have gained, "
        f"with {largest} {many}. The prior leaves {helped} of that, over all N, and "
        f"{helped_most_data} at N = {largest}. With it {gained} times as many common tokens gain "
        f"as without it: it does not teach which are common, but they start at "
        f"exp(-{strongest:g}) = {np.exp(-strongest):.2f} of their attention, and a logit moves as "
        f"the square of that. ({slope.count} seeds, each with its own training set.)"
    )
    alt = (
        f"Against the size of the training set, {smallest} to {largest} sequences, for priors "
        f"0 to {strongest:g}: the excess attention to common tokens, all and seen, the latter from "
        f"{left[smallest].value:.3f} to {left[largest].value:.4f} without a prior; the part of it "
        f"that goes to tokens never seen, from {parts[smallest].value:.2f} to "
        f"{parts[largest].value:.2f}; attention to spurious tokens, from {few.value:.3f} to "
        f"{many.value:.3f} without a prior, and lower with one at small sizes; the share of common "
        f"tokens that gain; then excess and attention without a prior in {len(ranges)} settings."
    )
    if falling == helped_in == len(ranges):
        outcome = Standing.HOLDS
    else:
        outcome = Standing.PARTLY if falling else Standing.FAILS
    return Judgement(outcome, headline, summary, alt, numbers)


@dataclass(frozen=True, kw_only=True)
class _Range:
    """Results of one setting, of which the headline gives the range."""

    name: str
    unseen: Estimate  # part of the excess that goes to tokens never seen, at the smallest N
    excess_left: Estimate  # excess to tokens seen: at the largest N over the smallest
    spurious_left: Estimate  # attention to tokens that gained: likewise
    with_prior: Estimate  # attention to tokens that gained: with the prior over without, all N
    spurious: tuple[Estimate, Estimate, Estimate]  # at the smallest N, the largest, ever new data

    @classmethod
    def of(cls, runs: xr.Dataset) -> _Range:
        """The results of `runs`, of one setting."""
        without = limited(runs).isel(prior=0)

        def left(values: xr.DataArray) -> Estimate:
            return jackknife(
                lambda kept: float(kept.isel(sequences=-1).mean() / kept.isel(sequences=0).mean()),
                values,
            )

        attention = runs["attention"].isel(prior=0)
        return cls(
            name=str(runs["setting"].item()),
            unseen=unseen_part(without["excess"].isel(sequences=0)),
            excess_left=left(without["excess"].sel(part="seen")),
            spurious_left=left(without["attention"]),
            with_prior=prior_leaves(limited(runs["attention"])),
            spurious=(
                mean(without["attention"].isel(sequences=0)),
                mean(without["attention"].isel(sequences=-1)),
                mean(attention.sel(sequences=0)),
            ),
        )

    @property
    def falls(self) -> bool:
        """Tell whether both excess and attention are clearly lower at the largest N."""
        both = (self.excess_left, self.spurious_left)
        return all(each.value + 2 * each.error < 1 for each in both)

    @property
    def helps(self) -> bool:
        """Tell whether attention is clearly lower with the prior."""
        return self.with_prior.value + 2 * self.with_prior.error < 1

    def numbers(self) -> dict[str, float]:
        """The numbers by name."""
        key = re.sub(r"[^a-z0-9]+", "_", self.name.lower())
        return {
            **self.unseen.numbers(f"unseen_part_{key}"),
            **self.excess_left.numbers(f"excess_left_{key}"),
            **self.spurious_left.numbers(f"spurious_left_{key}"),
            **self.with_prior.numbers(f"with_prior_{key}"),
        }

    def in_words(self, smallest: int, largest: int) -> str:
        """A setting in which attention to tokens that gained does not fall."""
        few, many, ever_new = self.spurious
        return (
            f"With {self.name} attention to tokens that gained goes from {few} (N = {smallest}) to "
            f"{many} (N = {largest}); ever new sequences leave {ever_new}, so that these tokens "
            f"gain whatever the size of the training set."
        )


def _span(values: Sequence[float], form: str) -> str:
    return f"{min(values):{form}} to {max(values):{form}}"


EXPERIMENT = Experiment(
    name="spurious", kind="study", title="Spurious tokens and the size of the training set",
    recipe=Recipe, data=data, judge=judge, draw=draw,
)  # fmt: skip
