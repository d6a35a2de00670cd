"""Study: does the head with a favourable z(0) keep its token, and how many tokens do H heads cover?

Each head starts from its own random z(0), and its favourite in a class is the distinct token with
the largest P(l|n) exp(z_l(0)), which wins by Theorem 3. Measured: the share of (head, class) pairs
whose favourite is the most attended distinct token at the end too, and the number of different
winners of a class, for heads that share a decoder and for each head alone with one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import theory
from attnlab.data import SequenceClasses, classes_from
from attnlab.dynamics import Extended, Limit, Save, simulate
from attnlab.figures import style
from attnlab.figures.finding import Finding
from attnlab.studies.answer import Answer
from attnlab.studies.estimate import Estimate, mean, standard_error
from attnlab.studies.recipe import StudyRecipe
from attnlab.studies.turns import in_turn
from attnlab.sweep import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "What several heads attend to"
KEPT = 0.9  # favourites are called kept where more than this share of them wins
TOGETHER = {
    "alone": "each head alone",
    "concatenate": "concatenated",
    "average": "averaged",
}


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """heads: how many, in increasing order. spread: standard deviation of z(0)."""

    classes: str
    heads: tuple[int, ...]
    spread: float
    eta_y: float
    eta_z: float
    steps: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """kept, covered and grown over (together, heads, seed), means over heads and classes.

    kept: share of favourites that win. covered: different winners of a class; covered_start: the
    same of the favourites, over (heads, seed). grown: z of the favourite, end minus start. The
    first H starts of a seed serve every run of it with H heads.
    """
    classes = classes_from(recipe.classes)
    rows = []
    for seed, report in in_turn(range(recipe.seeds), progress):
        rng = np.random.default_rng(seed)
        shape = (max(recipe.heads), classes.queries.size, classes.vocab_size)
        rows.append(_one_seed(recipe, classes, rng.normal(scale=recipe.spread, size=shape), report))
    seeds = xr.DataArray(np.arange(recipe.seeds), dims="seed", name="seed")
    return xr.concat(rows, seeds).assign_attrs(distinct=classes.distinct_tokens(0).size)


def _one_seed(
    recipe: Recipe, classes: SequenceClasses, start: NDArray[np.float64], progress: Progress
) -> xr.Dataset:
    P, psi = classes.probs, classes.query_index
    favourite = theory.dominant_tokens(P, start, psi=psi)  # (head, class)
    alone = np.concatenate([_end(recipe, classes, start[[h]]) for h in range(len(start))])
    cells = list(product(TOGETHER, recipe.heads))
    measured = []
    for (together, count), report in in_turn(cells, progress):
        first, own = start[:count], favourite[:count]
        if together == "alone" or count == 1:
            z = alone[:count]
        else:
            model = Extended(heads=count, combine=together)  # type: ignore[arg-type]
            z = _end(recipe, classes, first, model=model, progress=report)
        winner = theory.dominant_tokens(P, z, psi=psi)
        growth = np.take_along_axis((z - first)[:, psi], own[..., None], axis=-1)
        measured.append([(winner == own).mean(), _different(winner), growth.mean()])
    values = np.reshape(measured, (len(TOGETHER), len(recipe.heads), 3))
    dims = ("together", "heads")
    return xr.Dataset(
        {
            "kept": (dims, values[..., 0]),
            "covered": (dims, values[..., 1]),
            "grown": (dims, values[..., 2]),
            "covered_start": ("heads", [_different(favourite[:count]) for count in recipe.heads]),
        },
        {"together": list(TOGETHER), "heads": list(recipe.heads)},
    )


def _end(
    recipe: Recipe,
    classes: SequenceClasses,
    start: NDArray[np.float64],
    *,
    model: Extended | None = None,
    progress: Progress = False,
) -> NDArray[np.float64]:
    """z at the end, from the start (head, query, token)."""
    result = simulate(
        classes, Limit(), eta_y=recipe.eta_y, eta_z=recipe.eta_z, steps=recipe.steps, model=model,
        init=start if model else start[0], save=Save(what="logits", at=(recipe.steps,)),
        momentum=0.0, progress=progress,
    )  # fmt: skip
    z = result["attention_logits"].isel(seed=0, step=-1).values
    return np.asarray(z.reshape(start.shape), dtype=np.float64)


def _different(winner: NDArray[np.int64]) -> float:
    """The number of different tokens in each column of (head, class), mean over classes."""
    return float(np.mean([np.unique(column).size for column in winner.T]))


def by_chance(tokens: int, heads: NDArray[np.int64]) -> NDArray[np.float64]:
    """How many of `tokens` are picked by heads that pick one each, evenly and independently."""
    return np.asarray(tokens * (1 - (1 - 1 / tokens) ** heads))


def draw(runs: xr.Dataset) -> Figure:
    """Kept favourites, covered tokens and how far favourites grow, against the number of heads."""
    from matplotlib.figure import Figure

    heads = runs["heads"].values
    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 2.8), layout="constrained")
        axes = figure.subplots(1, 3)
        for i, (together, label) in enumerate(TOGETHER.items()):
            for ax, name in zip(axes, ("kept", "covered", "grown"), strict=True):
                values = runs[name].sel(together=together)
                half = standard_error(values)
                ax.errorbar(
                    heads * 1.06 ** (i - 1), values.mean("seed"), yerr=half, capsize=2, label=label,
                    color=(style.GREEN, style.DISTINCT, style.ACCENT)[i], marker=style.MARKERS[i],
                    linestyle=style.DASHES[i],
                )  # fmt: skip
        axes[1].plot(
            heads, by_chance(runs.attrs["distinct"], heads), color="black", linestyle=":",
            label="picked by chance",
        )  # fmt: skip
        axes[0].set_ylabel("favourites that win")
        axes[0].set_ylim(0, 1.05)
        axes[1].set_ylabel("different winners of a class")
        axes[2].set_ylabel("growth of the favourite's $z$")
        axes[2].set_ylim(0, None)
        for ax in axes:
            ax.set_xscale("log", base=2)
            ax.set_xticks(heads, [str(h) for h in heads])
            ax.set_xlabel("heads $H$")
        style.panel_titles(axes, ["kept", "covered", "grown"])
        figure.legend(*axes[1].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def judge(runs: xr.Dataset) -> Finding:
    """Are favourites kept, and how many tokens are covered, at the largest number of heads?"""
    most = runs.isel(heads=-1)
    H, D = int(most["heads"]), int(runs.attrs["distinct"])
    kept = {name: mean(most["kept"].sel(together=name)) for name in TOGETHER}
    covered = {name: mean(most["covered"].sel(together=name)) for name in TOGETHER}
    start = mean(most["covered_start"])
    chance = float(by_chance(D, np.array(H)))
    grown = {
        name: mean(most["grown"].sel(together=name) / most["grown"].sel(together="alone"))
        for name in list(TOGETHER)[1:]
    }
    numbers: dict[str, float] = {"covered_by_chance": chance, **start.numbers("covered_start")}
    for name in TOGETHER:
        numbers |= kept[name].numbers(f"kept_{name}") | covered[name].numbers(f"covered_{name}")
    for name, estimate in grown.items():
        numbers |= estimate.numbers(f"growth_{name}")
    headline = (
        f"A head keeps its favourite: in {kept['concatenate'].value:.0%} of the cases with "
        f"concatenated heads and {kept['average'].value:.0%} with averaged ones; {H} heads cover "
        f"{covered['concatenate']} of {D} distinct tokens."
    )
    summary = (
        f"With {H} heads favourites win in {_share(kept['alone'])} of the cases where each head is "
        f"alone, in {_share(kept['concatenate'])} with concatenated and {_share(kept['average'])} "
        f"with averaged heads. So what is covered is decided by the start: {start} different "
        f"favourites, {covered['concatenate']} and {covered['average']} different winners; heads "
        f"that pick evenly by chance would cover {chance:.1f} of {D}, but frequent tokens are "
        f"favoured more often. Heads that share a decoder stop early, because the others reduce "
        f"the loss too: the favourite grows {grown['concatenate']} times as much as alone when "
        f"concatenated, {grown['average']} times when averaged. ({start.count} seeds.)"
    )
    alt = (
        f"Against the number of heads, 1 to {H}: the share of favourites that win, at 1 or just "
        f"below; the number of different winners, rising to {covered['concatenate'].value:.1f}, "
        f"below the {chance:.1f} of chance; the growth of the favourite's logit, falling for "
        f"concatenated heads to {grown['concatenate'].value:.2f} of a single head's."
    )
    holds = all(estimate.value > KEPT for estimate in kept.values())
    return Finding(Answer.AGREES if holds else Answer.PARTLY, headline, summary, alt, numbers)


def _share(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} ± {estimate.error:.1%}"
