"""Study: which distinct tokens do SGD, momentum, Adam and AdamW pick, at matched loss and by rate?

Measured: the sharpening s, the slope of z_l(t) - z_l(0) against ln P(l|n) over the distinct tokens
of a class, when the loss of the batch (mean cross entropy) comes down to a given value, between the
two records around it. s > 0 favours the frequent ones, as Theorem 3 says of SGD; s < 0 favours the
rare. Whether attention to them then is a power of P(l|n), with exponent 1 + s, is measured as well:
the part of the variance of ln P + z that a line in ln P explains.

The law that is put to the test (`theory.sign_fates`): where epsilon is small against the gradient,
Adam moves all entries of Y alike, so that g_l is the same for all tokens of a class, and by Lemma 1
the first move of z_l has the sign of |p|^2 - P(l|n). It needs a query for each class, and a decoder
whose entry at the class's own next token goes up: sum over other classes of f_l < (M - 1) f_l.
Epsilon over the decoder's first gradient, g0 = 1/(K sqrt L) for classes of L tokens, should decide
between this regime and that of SGD.
"""

from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlab import formulas
from attnlab.experiments import Judgement, Standing, StudyRecipe, Texts, over_cells
from attnlab.experiments.drawing import draw_mean
from attnlab.experiments.estimate import Estimate, jackknife, mean, number_name, share
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress, in_turn
from attnlab.papers.scan_and_snap import theory
from attnlab.plots import style
from attnlab.simulation import Optimizer, simulate
from attnlab.tasks.classes import SequenceClasses, classes_from, random

TEXTS = Texts.read(__file__)
RECORDS = 150  # along a training, in even ratios; in between, z is interpolated in the loss
VOCABULARY, OVERLAP = 50, 0.5  # of the random pairs of classes on which the law is tried


@dataclass(frozen=True)
class Choice:
    """An optimiser and its rates, eta_y = eta_z, the largest first."""

    optimizer: Optimizer
    etas: tuple[float, ...]


@dataclass(frozen=True)
class EpsilonLaw:
    """Adam for T to infinity: num_last of Syn-Medium sets K. epsilons: in units of g0; the rates
    are etas (1 + epsilon / g0), so that steps are alike.

    concentrations: of random pairs of classes, one for each seed, of which the first move is
    compared with the law's, after `moves` steps at a tenth of the first of etas."""

    num_last: tuple[int, ...]
    epsilons: tuple[float, ...]
    etas: tuple[float, ...]
    steps: int
    concentrations: tuple[float, ...]
    moves: int


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """choices: by the name shown; trained on Syn-Small, all with as many rates. losses: at which
    they are compared; matched: the one that is quoted."""

    choices: dict[str, Choice]
    losses: tuple[float, ...]
    matched: float
    length: int
    batch_size: int
    steps: int
    law: EpsilonLaw

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.matched not in self.losses:
            raise InputError(f"matched: expected one of the losses, got {self.matched:g}")
        if len({len(choice.etas) for choice in self.choices.values()}) != 1:
            raise InputError("choices: expected as many etas for each of them")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """sharpening and straight over (choice, rate, loss, seed), with the coordinates eta and kind
    (the optimiser's name); moved: z_l of class 0 at the matched loss, over (choice, rate, seed,
    rank).

    by_epsilon: the sharpening of Adam over (classes, epsilon, speed, seed), at the matched loss and
    with epsilon in units of g0. law: over (queries, concentration, seed, sequence_class, token), 1
    where the first move under Adam has the sign that the law says, 0 where not, NaN where there is
    no token; rises: where its second condition holds.
    """
    pieces = (_choices, _by_epsilon, _law)
    made = [piece(recipe, report) for piece, report in in_turn(pieces, progress)]
    return xr.merge(made).assign_attrs(matched=recipe.matched)


def _choices(recipe: Recipe, progress: Progress) -> xr.Dataset:
    classes = classes_from("syn-small")
    own = classes.distinct_tokens(0)

    def one(name: str, report: Progress) -> xr.Dataset:
        choice = recipe.choices[name]
        eta = xr.DataArray(list(choice.etas), dims="rate")
        result = simulate(
            classes,
            length=recipe.length,
            batch_size=recipe.batch_size,
            eta_y=eta,
            eta_z=eta,
            steps=recipe.steps,
            optimizer=choice.optimizer,
            seeds=recipe.seeds,
            what=("logits", "loss"),
            geometric=RECORDS,
            progress=report,
        )
        at = {loss: at_loss(result, loss) for loss in recipe.losses}
        sharpening, straight = zip(*(lines(classes, z) for z in at.values()), strict=True)
        return xr.Dataset(
            {
                "sharpening": (("rate", "loss", "seed"), np.stack(sharpening, axis=1)),
                "straight": (("rate", "loss", "seed"), np.stack(straight, axis=1)),
                "moved": (("rate", "seed", "rank"), at[recipe.matched][:, :, 0, own]),
            },
            {"loss": list(recipe.losses), "seed": np.arange(recipe.seeds)},
        )

    choices = recipe.choices.values()
    together = over_cells(one, progress, choice=recipe.choices)
    return together.assign(probability=("rank", classes.probs[0, own])).assign_coords(
        kind=("choice", [choice.optimizer.name for choice in choices]),
        eta=(("choice", "rate"), [choice.etas for choice in choices]),
    )


def _by_epsilon(recipe: Recipe, progress: Progress) -> xr.Dataset:
    law = recipe.law
    sets = {len(of): of for of in map(_syn_medium, law.num_last)}  # by the number of classes

    def one(size: int, epsilon: float, report: Progress) -> xr.Dataset:
        classes = sets[size]
        adam = Optimizer("adam", epsilon=epsilon * first_gradient(classes))
        eta = xr.DataArray(np.array(law.etas) * (1 + epsilon), dims="speed")
        result = simulate(
            classes,
            gradient="population",
            eta_y=eta,
            eta_z=eta,
            steps=law.steps,
            optimizer=adam,
            init="uniform",
            seeds=recipe.seeds,
            what=("logits", "loss"),
            geometric=RECORDS,
            progress=report,
        )
        slope, _ = lines(classes, at_loss(result, recipe.matched))
        return xr.Dataset({"by_epsilon": (("speed", "seed"), slope)}, {"speed": list(law.etas)})

    return over_cells(one, progress, classes=sets, epsilon=law.epsilons)


def _syn_medium(queries: int) -> SequenceClasses:
    return classes_from(f"syn-medium:num_last={queries}")


def _law(recipe: Recipe, progress: Progress) -> xr.Dataset:
    law = recipe.law
    dims = ("seed", "sequence_class", "token")

    def one(queries: int, concentration: float, report: Progress) -> xr.Dataset:
        draw = partial(
            random, VOCABULARY, 2, overlap=OVERLAP, concentration=concentration, queries=queries
        )
        drawn = [draw(seed=seed) for seed in range(recipe.seeds)]
        result = simulate(
            drawn,
            gradient="population",
            eta_y=law.etas[0] / 10,
            eta_z=law.etas[0] / 10,
            steps=law.moves,
            optimizer="adam",
            what="logits",
            at=(law.moves,),
            dtype="float64",
            progress=report,
        )
        z = result["attention_logits"].isel(seed=0, step=-1).values  # (draw, query, token)
        right = [_right(*of_draw) for of_draw in zip(drawn, z, strict=True)]
        rises = [own_output_rises(classes) for classes in drawn]
        return xr.Dataset({"law": (dims, np.array(right)), "rises": (dims, np.array(rises))})

    return over_cells(one, progress, queries=(2, 1), concentration=law.concentrations)


def _right(classes: SequenceClasses, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where the sign of z is the law's, 0 where not, NaN where no token is: (class, token)."""
    fates = theory.sign_fates(classes.probs)
    return np.where(fates == 0, np.nan, np.sign(z[classes.query_index]) == fates)


def own_output_rises(classes: SequenceClasses) -> NDArray[np.bool_]:
    """Return where the first gradient of Y raises a token's entry at the class's next token, which
    the law takes for granted: (M - 1) f_nl > sum of f_n'l over the others; (class, token)."""
    f = formulas.unit_attention(classes.probs)
    return np.asarray((classes.vocab_size - 1) * f > f.sum(0) - f)


def first_gradient(classes: SequenceClasses) -> float:
    """g0, the r.m.s. of the decoder's first gradient over the tokens of a class: f_nl / K."""
    tokens = classes.num_nonzeros / len(classes)
    return float(1.0 / (len(classes) * np.sqrt(tokens)))


def at_loss(result: xr.Dataset, target: float) -> NDArray[np.float64]:
    """z - z(0) of each run when its loss first comes down to `target`, interpolated in ln loss
    between the records around that: (rate, seed, query, token)."""
    z, loss = result["attention_logits"].astype(np.float64), result["loss"]
    passed = loss <= target
    if passed.isel(step=0).any() or not passed.any("step").all():
        raise InputError(
            f"losses: expected what every run comes down to after its start, got {target:g}; "
            f"raise steps, or the loss"
        )
    after = passed.argmax("step")
    above, below = loss.isel(step=after - 1), loss.isel(step=after)
    part = np.log(above / target) / np.log(above / below)
    before, behind = z.isel(step=after - 1), z.isel(step=after)
    moved = before + part * (behind - before) - z.isel(step=0)
    return moved.transpose(*after.dims, "query", "token").values


def lines(
    classes: SequenceClasses, moved: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The slope of `moved` (..., query, token) against ln P over distinct tokens; and the part of
    the variance of ln P + moved, the log of attention, that a line in ln P explains. Means over
    classes."""
    slopes, explained = [], []
    for n in range(len(classes)):
        own = classes.distinct_tokens(n)
        x = np.log(classes.probs[n, own])
        x = x - x.mean()
        z = moved[..., classes.query_index[n], own]
        z = z - z.mean(axis=-1, keepdims=True)
        slope = z @ x / (x @ x)
        slopes.append(slope)
        explained.append((1 + slope) ** 2 * (x @ x) / ((x + z) ** 2).sum(axis=-1))
    return np.mean(slopes, axis=0), np.mean(explained, axis=0)


def crossing(by_epsilon: xr.DataArray) -> float:
    """epsilon / g0 at which the mean sharpening over seeds passes 0, between two of those tried."""
    s = by_epsilon.mean("seed").values
    rises = np.flatnonzero((s[:-1] < 0) & (s[1:] >= 0))
    if not rises.size:
        return float("nan")
    i = rises[-1]
    log = np.log(by_epsilon["epsilon"].values)
    return float(np.exp(np.interp(0.0, s[i : i + 2], log[i : i + 2])))


def draw(runs: xr.Dataset) -> Figure:
    """Draw who gains at the matched loss, sharpening by rate and in training, Adam by epsilon."""
    matched = runs.attrs["matched"]
    middle = (runs.sizes["rate"] - 1) // 2  # where only one rate is shown
    with style.page(5.2) as figure:
        axes = figure.subplots(2, 2).ravel()
        for (one, styles), dashes in zip(
            style.entries(runs, "choice"), cycle(style.DASHES), strict=False
        ):
            styles, shown = {**styles, "linestyle": dashes}, one.isel(rate=middle)
            label = f"{one['choice'].item()}, {float(shown['eta']):g}"
            axes[0].plot(shown["probability"], shown["moved"].mean("seed"), label=label, **styles)
            draw_mean(axes[1], one["eta"], one["sharpening"].sel(loss=matched), **styles)
            draw_mean(axes[2], one["loss"], shown["sharpening"], **styles)
        axes[2].invert_xaxis()
        for of_size, styles in style.entries(runs["by_epsilon"], "classes"):
            for j, s in enumerate(of_size.transpose("speed", ...)):
                label = rf"$K$ = {int(s['classes'])}, $\eta$ = {float(s['speed']):g}"
                draw_mean(
                    axes[3], s["epsilon"], s, linestyle=style.DASHES[j], label=label, **styles
                )
        axes[3].set_ylim(top=1.0)  # room for the legend
        axes[3].legend(loc="upper left", ncols=2)
        style.legend_above(figure, axes[0], ncols=5, title=r"optimiser, $\eta$ in (a) and (c)")
        for ax in axes:
            ax.axhline(0, color=style.OUTLINE, linewidth=0.6)
        for ax in axes[1:]:
            ax.set_xscale("log")
        TEXTS.label(axes, matched=matched)
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """The sharpening of each choice by rate at the matched loss, the crossover in epsilon, the law,
    inside its conditions and outside."""
    matched = runs.attrs["matched"]
    alike = runs.sel(loss=matched)
    sharpening, straight = (_by_choice(alike[of]) for of in ("sharpening", "straight"))
    crossings = {
        (int(s["classes"]), float(s["speed"])): jackknife(crossing, s)
        for of_size in runs["by_epsilon"].transpose("classes", "speed", ...)
        for s in of_size
    }
    alone, rises = runs["law"].sel(queries=2), runs["rises"].sel(queries=2)
    found = (
        {
            f"{what}_{number_name(name)}_{eta:g}": of[name][eta]
            for name in sharpening
            for eta in sharpening[name]
            for what, of in (("sharpening", sharpening), ("straight", straight))
        }
        | {f"crossing_K{size}_{eta:g}": of for (size, eta), of in crossings.items()}
        | {"law_inside": share(alone.where(rises)), "law_outside": share(alone.where(~rises))}
        | {"law_one_query": share(runs["law"].sel(queries=1))}
    )
    kinds = runs["kind"].values.tolist()
    sgd, adam = (str(runs["choice"].values[kinds.index(kind)]) for kind in ("sgd", "adam"))
    of_theorem = sharpening[sgd].values()
    favours, opposes = all(s.above(0) for s in of_theorem), any(s.below(0) for s in of_theorem)
    borders = [estimate.value for estimate in crossings.values()]
    return TEXTS.judgement(
        Standing.OPEN if favours else Standing.FAILS if opposes else Standing.PARTLY,
        found,
        matched=matched,
        sgd=sgd,
        adam=adam,
        agrees="as" if favours else "against what" if opposes else "in part as",
        sharpening={"sgd": _by_rate(sharpening[sgd]), "adam": _by_rate(sharpening[adam])},
        straight={"sgd": _by_rate(straight[sgd]), "adam": _by_rate(straight[adam])},
        borders=(min(borders), max(borders)),
        count=len(sharpening),
        sizes=", ".join(str(size) for size in runs["classes"].values),
        told="; ".join(
            f"{name} " + ", ".join(f"{s} at {eta:g}" for eta, s in by_rate.items())
            for name, by_rate in sharpening.items()
        ),
        passes=", ".join(
            f"{of} g0 (K = {size}, rate {eta:g})" for (size, eta), of in crossings.items()
        ),
    )


def _by_choice(values: xr.DataArray) -> dict[str, dict[float, Estimate]]:
    """The mean of each choice, by its rate."""
    choices = values.transpose("choice", "rate", "seed")
    return {str(of["choice"].item()): {float(s["eta"]): mean(s) for s in of} for of in choices}


def _by_rate(found: dict[float, Estimate]) -> str:
    """The numbers at the first and the last rate."""
    (first, at_first), *_, (last, at_last) = found.items()
    return f"{at_first.value:.2g} (rate {first:g}) to {at_last.value:.2g} ({last:g})"


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
