"""Study: how does attention to spurious tokens fall with the size of the training set?

A common token that a small training set shows in one class more than in another looks distinct
(Section 9). Measured, after training on N sequences: the attention that classes give to common
tokens which have gained attention; and the excess, attention to all common tokens beyond what
training on ever new sequences leaves, split into tokens that the training set shows and those that
it never shows, of which nothing can be learnt. A prior z(0) = -delta on the common tokens stands
for prior knowledge of them. All of it in several settings, because how large the effect is depends
on them: the headline gives the range, the details are of the first.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Judgement, Standing, StudyRecipe, Texts, over_cells
from attnlab.experiments.drawing import draw_estimates, draw_mean
from attnlab.experiments.estimate import Estimate, jackknife, mean, number_name, power
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.tasks.classes import classes_from

TEXTS = Texts.read(__file__)


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
    return over_cells(partial(_trained, recipe), progress, setting=recipe.settings)


def _trained(recipe: Recipe, name: str, progress: Progress) -> xr.Dataset:
    setting = recipe.settings[name]
    classes = classes_from(setting.classes)
    tokens = classes.common_tokens()

    def end(delta: float, size: int, report: Progress) -> xr.Dataset:
        """z - z(0) and attention of the common tokens, (seed, sequence_class, token)."""
        start = np.zeros((classes.queries.size, classes.vocab_size))
        start[:, tokens] = -delta
        result = simulate(
            classes,
            length=setting.length,
            training_set=size or None,
            batch_size=min(size or recipe.batch_size, recipe.batch_size),
            eta_y=recipe.eta_y,
            eta_z=setting.eta_z,
            steps=recipe.steps,
            seeds=recipe.seeds,
            init=start,
            momentum=0.0,
            what=("attention", "logits"),
            at=(recipe.steps,),
            progress=report,
        ).isel(step=-1, token=tokens)
        dims = ("seed", "sequence_class", "token")
        z = result["attention_logits"].values[:, classes.query_index]
        return xr.Dataset({"z": (dims, z + delta), "attention": (dims, result["attention"].values)})

    axes = {"prior": recipe.priors, "sequences": (*recipe.sequences, 0)}
    runs = over_cells(end, progress, **axes).assign_coords(seed=np.arange(recipe.seeds))
    z, c = runs["z"], runs["attention"]
    # Without a prior z starts from 0, where no move is too small for a float: what has not moved
    # was never drawn. A seed has the same training set at every prior.
    unseen = (z.isel(prior=0, drop=True) == 0).all("sequence_class")
    beyond = (c - c.isel(sequences=-1, drop=True)).mean("sequence_class")
    parts = {"seen": beyond.where(~unseen, 0.0), "unseen": beyond.where(unseen, 0.0)}
    return xr.Dataset(
        {
            "attention": (c * (z > 0)).sum("token").mean("sequence_class"),
            "share": (z > 0).mean(("sequence_class", "token")),
            "common": c.sum("token").mean("sequence_class"),
            "excess": xr.Dataset(parts).sum("token").to_dataarray("part").transpose(..., "part"),
            "unseen": unseen.mean("token"),
        }
    )


def limited(runs: Any) -> Any:
    """Return what is of training sets, without ever new sequences."""
    return runs.sel(sequences=runs["sequences"] > 0)


def fall(excess: xr.DataArray) -> Estimate:
    """The exponent of N in an excess (sequences, seed)."""
    return jackknife(lambda kept: power(kept["sequences"].values, kept.mean("seed").values), excess)


def unseen_part(excess: xr.DataArray) -> Estimate:
    """The part of an excess (seed, part) that goes to tokens which training never showed."""
    return jackknife(
        lambda kept: float(kept.sel(part="unseen").mean() / kept.sum("part").mean()), excess
    )


def last_over_first(values: xr.DataArray, dim: str) -> Estimate:
    """The mean at the last place along `dim` over that at the first."""
    return jackknife(
        lambda kept: float(kept.isel({dim: -1}).mean() / kept.isel({dim: 0}).mean()), values
    )


def draw(runs: xr.Dataset) -> Figure:
    """The excess and its part, the spurious tokens' attention and their share, against N, in the
    first setting; then excess and attention without a prior in all of them."""
    first = limited(runs.isel(setting=0))
    without = limited(runs.isel(prior=0))
    with style.page(4.9) as figure:
        axes = figure.subplots(2, 3).ravel()
        for i, (one, styles) in enumerate(style.entries(first, "prior")):
            excess, N, styles = one["excess"], one["sequences"], {**styles, "markersize": 4}
            shown = {"all": excess.sum("part"), "seen in training": excess.sel(part="seen")}
            for dashes, (part, values) in zip(style.DASHES, shown.items(), strict=False):
                label = None if i else part
                draw_mean(axes[0], N, values, linestyle=dashes, label=label, **styles)
            found = [unseen_part(of_size) for of_size in excess]
            draw_estimates(axes[1], N, found, label=f"{float(one['prior']):g}", **styles)
            for ax, name in ((axes[2], "attention"), (axes[3], "share")):
                draw_mean(ax, N, one[name], **styles)
        for one, styles in style.entries(without, "setting"):
            styles |= {
                "capsize": 1,
                "markersize": 3,
                "linewidth": 0.8,
                "label": one["setting"].item(),
            }
            draw_mean(axes[4], one["sequences"], one["excess"].sel(part="seen"), **styles)
            draw_mean(axes[5], one["sequences"], one["attention"], **styles)
        for ax in axes:
            ax.set_xscale("log")
        axes[0].set_yscale("log")
        axes[0].legend()
        TEXTS.label(axes)
        axes[4].legend(fontsize=5.5)
        title = TEXTS.legend.format(first=runs["setting"].values[0])
        style.legend_above(figure, axes[1], ncols=runs.sizes["prior"], title=title)
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """Judge how much of the excess is of tokens never seen, how the rest falls with N, and what a
    prior saves."""
    ranges = {str(name): of_setting(runs.sel(setting=name)) for name in runs["setting"].values}
    details = runs.isel(setting=0)
    excess = limited(details["excess"]).sel(prior=0)
    sizes = excess["sequences"].values.tolist()
    smallest, *_, largest = sizes
    strongest = float(runs["prior"][-1])
    parts = {size: unseen_part(excess.sel(sequences=size)) for size in sizes}
    seen = excess.sel(part="seen")
    first, last = fall(seen.isel(sequences=slice(2))), fall(seen.isel(sequences=slice(-2, None)))
    left = {size: mean(seen.sel(sequences=size)) for size in (smallest, largest)}
    few, many = (mean(details["attention"].sel(prior=0, sequences=size)) for size in left)
    with_prior = limited(details[["attention", "share"]])
    most_data = with_prior["attention"].sel(sequences=largest)
    found = (
        {f"unseen_part_{size}": part for size, part in parts.items()}
        | {f"seen_excess_{size}": estimate for size, estimate in left.items()}
        | {"slope_seen": fall(seen), "slope_seen_first": first, "slope_seen_last": last}
        | {"spurious_smallest": few, "spurious_largest": many}
        | {"attention_with_prior": last_over_first(with_prior["attention"], "prior")}
        | {f"attention_with_prior_{largest}": last_over_first(most_data, "prior")}
        | {"share_with_prior": last_over_first(with_prior["share"], "prior")}
        | {
            f"{what}_{number_name(name)}": estimate
            for name, of in ranges.items()
            for what, estimate in of.items()
        }
    )
    bends = abs(first.value - last.value) > 2 * np.hypot(first.error, last.error)

    def span(what: str, form: str = ".2g") -> str:
        values = [of[what].value for of in ranges.values()]
        return f"{min(values):{form}} to {max(values):{form}}"

    # where excess and attention are not both clearly lower at the largest N
    fell = ("excess_left", "spurious_left")
    rising = [name for name, of in ranges.items() if not all(of[left].below(1) for left in fell)]
    falling = len(ranges) - len(rising)
    helped_in = sum(of["with_prior"].below(1) for of in ranges.values())
    return TEXTS.judgement(
        Standing.of(falling == helped_in == len(ranges), in_part=falling),
        found,
        settings=len(ranges),
        smallest=smallest,
        largest=largest,
        strongest=strongest,
        unseen_part=span("unseen_part", ".0%"),
        excess_left=span("excess_left"),
        spurious_left=span("spurious_left"),
        with_prior=span("with_prior"),
        falling=falling,
        helped_in=helped_in,
        exceptions="".join(" " + _rising(runs.sel(setting=name), *left) for name in rising),
        first=runs["setting"].values[0],
        shares=", ".join(f"{part.value:.1%} ({size})" for size, part in parts.items()),
        parts=(parts[smallest], parts[largest]),
        left=tuple(left.values()),
        a_power="no" if bends else "about a",
        most_data=found[f"attention_with_prior_{largest}"],
        kept_by_prior=np.exp(-strongest),
    )


def of_setting(runs: xr.Dataset) -> dict[str, Estimate]:
    """Return the results of one setting, of which the headline gives the range.

    unseen_part: of the excess, at the smallest N. excess_left, of tokens seen, and spurious_left,
    attention to tokens that gained: at the largest N over the smallest. with_prior: attention to
    tokens that gained, with the prior over without, all N.
    """
    without = limited(runs).isel(prior=0)
    return {
        "unseen_part": unseen_part(without["excess"].isel(sequences=0)),
        "excess_left": last_over_first(without["excess"].sel(part="seen"), "sequences"),
        "spurious_left": last_over_first(without["attention"], "sequences"),
        "with_prior": last_over_first(limited(runs["attention"]), "prior"),
    }


def _rising(runs: xr.Dataset, *sizes: int) -> str:
    """Describe a setting in which attention to tokens that gained does not fall."""
    found = [mean(runs["attention"].sel(prior=0, sequences=size)) for size in (*sizes, 0)]
    return TEXTS.part("rising", setting=runs["setting"].item(), found=found, sizes=sizes)


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
