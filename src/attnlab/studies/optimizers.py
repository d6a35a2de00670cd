"""Study: which distinct tokens do SGD, momentum, Adam and AdamW pick, at matched loss?

Measured: the sharpening s, the slope of z_l(t) - z_l(0) against ln P(l|n) over the distinct tokens
of a class, when the loss first passes a given value. Attention to them then goes as P(l|n)^(1 + s):
s > 0 favours the frequent ones, as Theorem 3 says; s < 0 favours the rare; at s = -1 all get alike.

The law that is put to the test (`theory.sign_fates`): where epsilon is small against the gradient,
Adam moves all entries of Y alike, so that g_l is the same for all tokens of a class, and by Lemma 1
the first move of z_l has the sign of |p|^2 - P(l|n). So epsilon over the decoder's first gradient,
g0 = 1/(K sqrt L) for classes of L tokens, should decide between the two regimes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import theory
from attnlab.data import SequenceClasses, classes_from, random
from attnlab.dynamics import Limit, Optimizer, Sampled, Save, simulate
from attnlab.figures import style
from attnlab.figures.finding import Finding
from attnlab.studies.answer import Answer
from attnlab.studies.estimate import jackknife, mean, standard_error
from attnlab.studies.recipe import StudyRecipe
from attnlab.studies.turns import in_turn
from attnlab.sweep import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Which tokens an optimiser picks"


@dataclass(frozen=True)
class Choice:
    """An optimiser and its rate, eta_y = eta_z."""

    optimizer: Optimizer
    eta: float


@dataclass(frozen=True)
class EpsilonLaw:
    """Adam for T to infinity: num_last of Syn-Medium sets K. epsilons: in units of g0; the rate is
    eta (1 + epsilon / g0), so that steps are alike.

    draws: of random classes, of which the first move is compared with the law's, after `moves`
    steps at a tenth of eta."""

    num_last: tuple[int, ...]
    epsilons: tuple[float, ...]
    eta: float
    steps: int
    draws: int
    moves: int


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """choices: by the name shown; trained on Syn-Small. losses: at which they are compared;
    matched: the one that is quoted."""

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
            raise ValueError(f"matched: expected one of the losses, got {self.matched:g}")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """sharpening over (choice, loss, seed), and moved: z_l of class 0 over (choice, seed, rank).

    by_epsilon: the sharpening of Adam over (classes, epsilon, seed), at the matched loss and with
    epsilon in units of g0. law: over `draw`, the share of tokens whose first move under Adam has
    the sign that the law says.
    """
    pieces = (_choices, _by_epsilon, _law)
    made = [piece(recipe, report) for piece, report in in_turn(pieces, progress)]
    return xr.merge(made).assign_attrs(matched=recipe.matched)


def _choices(recipe: Recipe, progress: Progress) -> xr.Dataset:
    classes = classes_from("syn-small")
    sharpening, moved = [], []
    for choice, report in in_turn(list(recipe.choices.values()), progress):
        result = simulate(
            classes, Sampled(recipe.length, recipe.batch_size), eta_y=choice.eta, eta_z=choice.eta,
            optimizer=choice.optimizer, steps=recipe.steps, seeds=recipe.seeds,
            save=Save(what=("logits", "loss"), every=1), progress=report,
        )  # fmt: skip
        at = [at_loss(result, loss) for loss in recipe.losses]
        sharpening.append([_sharpening(classes, z) for z in at])
        own = classes.distinct_tokens(0)
        moved.append(at[recipe.losses.index(recipe.matched)][:, 0, own])
    return xr.Dataset(
        {
            "sharpening": (("choice", "loss", "seed"), np.array(sharpening)),
            "moved": (("choice", "seed", "rank"), np.array(moved)),
            "probability": ("rank", classes.probs[0, own]),
        },
        {
            "choice": list(recipe.choices),
            "loss": list(recipe.losses),
            "seed": np.arange(recipe.seeds),
        },
    )


def _by_epsilon(recipe: Recipe, progress: Progress) -> xr.Dataset:
    law = recipe.law
    rows = []
    for (queries, epsilon), report in in_turn(list(product(law.num_last, law.epsilons)), progress):
        classes = classes_from(f"syn-medium:num_last={queries}")
        adam = Optimizer("adam", epsilon=epsilon * first_gradient(classes))
        eta = law.eta * (1 + epsilon)
        result = simulate(
            classes, Limit(), eta_y=eta, eta_z=eta, steps=law.steps, init="uniform",
            optimizer=adam, seeds=recipe.seeds,
            save=Save(what=("logits", "loss"), every=2), progress=report,
        )  # fmt: skip
        rows.append(_sharpening(classes, at_loss(result, recipe.matched)))
    shape = (len(law.num_last), len(law.epsilons), recipe.seeds)
    sizes = [len(classes_from(f"syn-medium:num_last={queries}")) for queries in law.num_last]
    return xr.Dataset(
        {"by_epsilon": (("classes", "epsilon", "seed"), np.array(rows).reshape(shape))},
        {"classes": sizes, "epsilon": list(law.epsilons)},
    )


def _law(recipe: Recipe, progress: Progress) -> xr.Dataset:
    right = []
    for seed, report in in_turn(range(recipe.law.draws), progress):
        classes = random(50, 2, overlap=0.5, concentration=2.0, queries=2, seed=seed)
        result = simulate(
            classes, Limit(), eta_y=recipe.law.eta / 10, eta_z=recipe.law.eta / 10,
            optimizer="adam", steps=recipe.law.moves, progress=report, dtype="float64",
            save=Save(what="logits", at=(recipe.law.moves,)),
        )  # fmt: skip
        z = result["attention_logits"].isel(seed=0, step=-1).values
        fates = theory.sign_fates(classes.probs)
        right.append((np.sign(z) == fates)[fates != 0].mean())
    return xr.Dataset({"law": ("draw", right)})


def first_gradient(classes: SequenceClasses) -> float:
    """g0, the r.m.s. of the decoder's first gradient over the tokens of a class: f_nl / K."""
    tokens = classes.num_nonzeros / len(classes)
    return float(1.0 / (len(classes) * np.sqrt(tokens)))


def at_loss(result: xr.Dataset, target: float) -> NDArray[np.float64]:
    """z - z(0) of each seed when its loss first passes `target`: (seed, query, token)."""
    loss = result["loss"].values
    passed = loss <= target
    if not passed.any(axis=1).all():
        raise ValueError(f"steps: the loss does not come down to {target:g}; raise steps")
    z = result["attention_logits"].values.astype(np.float64)
    return np.asarray(z[np.arange(len(z)), passed.argmax(axis=1)] - z[:, 0])


def _sharpening(classes: SequenceClasses, moved: NDArray[np.float64]) -> NDArray[np.float64]:
    """The slope of `moved` (seed, query, token) against ln P over distinct tokens; per seed."""
    slopes = []
    for n in range(len(classes)):
        own = classes.distinct_tokens(n)
        x = np.log(classes.probs[n, own])
        x = x - x.mean()
        slopes.append(moved[:, classes.query_index[n], own] @ x / (x @ x))
    return np.asarray(np.mean(slopes, axis=0))


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
    """Who gains at the matched loss, the sharpening along training, and that of Adam by epsilon."""
    from matplotlib.figure import Figure

    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 3.1), layout="constrained")
        axes = figure.subplots(1, 3)
        choices = runs["choice"].values
        for i, colour in enumerate(style.ordered(len(choices))):
            one = runs.isel(choice=i)
            look = {"color": colour, "linestyle": style.DASHES[i % len(style.DASHES)]}
            axes[0].plot(one["probability"], one["moved"].mean("seed"), label=choices[i], **look)
            s = one["sharpening"]
            half = standard_error(s)
            axes[1].errorbar(s["loss"], s.mean("seed"), yerr=half, capsize=2, **look)
        axes[0].set_xlabel("$P(l|n)$ of a distinct token")
        axes[0].set_ylabel(f"logit $z_l$ at loss {runs.attrs['matched']:g}")
        axes[1].set_xscale("log")
        axes[1].invert_xaxis()
        axes[1].set_xlabel("loss (training goes right)")
        axes[1].set_ylabel("sharpening $s$")
        for i, colour in enumerate(style.ordered(runs.sizes["classes"])):
            s = runs["by_epsilon"].isel(classes=i)
            half = standard_error(s)
            axes[2].errorbar(
                s["epsilon"], s.mean("seed"), yerr=half, capsize=2,
                color=colour, marker=style.MARKERS[i], label=f"K = {int(s['classes'])}",
            )  # fmt: skip
        axes[2].set_xscale("log")
        axes[2].set_xlabel(r"Adam's $\epsilon\,/\,g_0$")
        axes[2].legend()
        for ax in axes:
            ax.axhline(0, color=style.OUTLINE, linewidth=0.6)
        style.panel_titles(axes, ["who gains", "at matched loss", r"Adam, by $\epsilon$"])
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
    return figure


def judge(runs: xr.Dataset) -> Finding:
    """The sharpening of each choice at the matched loss, the crossover in epsilon, the law."""
    at = runs["sharpening"].sel(loss=runs.attrs["matched"])
    found = {str(name): mean(at.sel(choice=name)) for name in runs["choice"].values}
    sizes = runs["classes"].values
    crossings = [jackknife(crossing, runs["by_epsilon"].sel(classes=K)) for K in sizes]
    law = mean(runs["law"], dim="draw")
    numbers = {
        key: value
        for name, estimate in found.items()
        for key, value in estimate.numbers(f"sharpening_{_key(name)}").items()
    }
    for K, estimate in zip(sizes, crossings, strict=True):
        numbers |= estimate.numbers(f"crossing_K{K}")
    numbers |= law.numbers("law")
    told = "; ".join(f"{name} {estimate}" for name, estimate in found.items())
    where = [estimate.value for estimate in crossings]
    passes = [f"{e} g0 (K = {k})" for e, k in zip(crossings, sizes, strict=True)]
    high, low = (pick(found, key=lambda name: found[name].value) for pick in (max, min))
    headline = (
        f"At the same loss the sharpening is {found[high]} with {high} and {found[low]} with "
        f"{low}; Adam changes sides at epsilon near {min(where):.2g} to {max(where):.2g} times the "
        f"first gradient."
    )
    turned = found[high].value > 0 > found[low].value
    summary = (
        f"Sharpening at loss {runs.attrs['matched']:g}: {told} ({found[high].count} seeds). Above "
        f"0 the frequent distinct tokens are favoured, as Theorem 3 says, below 0 the rare ones: "
        f"the optimisers {'differ' if turned else 'agree'} in it. Adam's epsilon decides: its "
        f"sharpening passes 0 at epsilon = {', '.join(passes)}, where g0 = 1/(K sqrt L) is the "
        f"decoder's first gradient. The law behind it: where epsilon is small, a token first gains "
        f"if and only if P(l|n) < |p|^2, the mean of P(l|n) over what a class draws. It gives the "
        f"first move of {law.value:.1%} ± {law.error:.1%} of the tokens of {law.count} random "
        f"pairs of classes."
    )
    alt = (
        f"Logits of distinct tokens against P(l|n) at the same loss, for {len(found)} optimisers; "
        f"their sharpening against the loss, from {found[low].value:.2f} to "
        f"{found[high].value:.2f} at loss {runs.attrs['matched']:g}; that of Adam against epsilon "
        f"over the first gradient for K = {', '.join(map(str, sizes))}, from negative to "
        f"positive, passing 0 between {min(where):.2g} and {max(where):.2g}."
    )
    return Finding(Answer.PARTLY if turned else Answer.AGREES, headline, summary, alt, numbers)


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
