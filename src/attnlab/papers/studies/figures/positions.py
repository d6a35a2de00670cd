"""Study: how does a position bias change who wins, how attention slows, and the order by P(l|n)?

Tokens are drawn alike at every position, so that in the mean a bias cancels
(`theory.position_prior`). It leaves fewer positions that count: with weights
w_d = exp(bias at distance d), n_eff = (sum w)^2 / sum w^2 of them, which for ALiBi stays finite
however long the sequence is. The hypothesis: training with an
ALiBi bias is training on unbiased sequences of n_eff contextual tokens.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import measures
from attnlab.experiments import Judgement, Standing, StudyRecipe, Texts, jackknife, mean, share
from attnlab.experiments.drawing import draw_mean
from attnlab.files.progress import Progress, in_turn
from attnlab.models import AlibiPosition, Extended, LearnedPosition
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.tasks.classes import SequenceClasses, classes_from

TEXTS = Texts.read(__file__)
MEASURES = ("winner", "order", "contrast", "slowed")


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """slopes: of the ALiBi bias, 0 first. slowed_share: of `measures.slowed_time`."""

    classes: str
    slopes: tuple[float, ...]
    length: int
    batch_size: int
    eta_y: float
    eta_z: float
    steps: int
    every: int
    slowed_share: float


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """The measures over (slope, how, seed): `how` is "biased", or "short" without a bias but with
    n_eff contextual tokens, rounded.

    winner: over classes too, 1 where the most frequent distinct token is the most attended one at
    the end. order: rank correlation of z with P(l|n) over distinct tokens, mean over classes.
    contrast: z of the most frequent minus z of the rarest. slowed: the mean `slowed_time`. logits:
    z of class 0's distinct tokens, along `rank`. learned: a bias learned from zero, (seed,
    distance).
    """
    classes = classes_from(recipe.classes)
    positions = [positions_that_count(slope, recipe.length) for slope in recipe.slopes]
    models = [Extended(position=AlibiPosition(slope)) for slope in recipe.slopes]
    turns: list[tuple[int, Extended | None]] = [
        *((recipe.length, model) for model in models),
        *((1 + round(n), None) for n in positions),
        (recipe.length, Extended(position=LearnedPosition())),
    ]
    *pairs, learned = [
        simulate(
            classes,
            model=model,
            length=length,
            batch_size=recipe.batch_size,
            eta_y=recipe.eta_y,
            eta_z=recipe.eta_z,
            steps=recipe.steps,
            momentum=0.0,
            seeds=recipe.seeds,
            what=("attention", "logits"),
            every=recipe.every,
            progress=report,
        )
        for (length, model), report in in_turn(turns, progress)
    ]
    slopes = xr.DataArray(list(recipe.slopes), dims="slope", name="slope")
    measured = [_measured(recipe, classes, result) for result in pairs]
    halves = [xr.concat(measured[i : i + slopes.size], slopes) for i in (0, slopes.size)]
    together = xr.concat(halves, xr.DataArray(["biased", "short"], dims="how", name="how"))
    return together.transpose("slope", "how", ...).assign(
        positions=("slope", positions), learned=learned["position_bias"].isel(step=-1, drop=True)
    )


def positions_that_count(slope: float, length: int) -> float:
    """n_eff = (sum w)^2 / sum w^2 for w_d = exp(-slope d), d = 1 to length - 1."""
    w = np.exp(-slope * np.arange(length - 1))
    return float(w.sum() ** 2 / (w**2).sum())


def _measured(recipe: Recipe, classes: SequenceClasses, result: xr.Dataset) -> xr.Dataset:
    end = result.isel(step=-1)
    z = end["attention_logits"].values.astype(np.float64)
    winner, order, contrast = [], [], []
    for n in range(len(classes)):
        own = classes.distinct_tokens(n)
        own = own[np.argsort(classes.probs[n, own])]
        of_class = z[:, classes.query_index[n], own]
        attention = end["attention"].values[:, n, own]
        winner.append(attention.argmax(-1) == own.size - 1)
        ranks = of_class.argsort(-1).argsort(-1)
        order.append([np.corrcoef(row, np.arange(own.size))[0, 1] for row in ranks])
        contrast.append(of_class[:, -1] - of_class[:, 0])
        if n == 0:
            logits, probability = of_class, classes.probs[0, own]
    slowed = measures.slowed_time(result, share=recipe.slowed_share).mean("sequence_class")
    return xr.Dataset(
        {
            "winner": (("seed", "sequence_class"), np.array(winner, dtype=float).T),
            "order": ("seed", np.mean(order, axis=0)),
            "contrast": ("seed", np.mean(contrast, axis=0)),
            "slowed": ("seed", slowed.values),
            "logits": (("seed", "rank"), logits),
        },
        {"seed": end["seed"].values, "probability": ("rank", probability)},
    )


def draw(runs: xr.Dataset) -> Figure:
    """Each measure against n_eff, biased and short; and the logits of class 0 by slope."""
    with style.page(4.4) as figure:
        axes = figure.subplots(2, 3).ravel()
        per_seed = runs[list(MEASURES)].mean("sequence_class")
        shown = (0.8 * float(runs["positions"].min()), 1.25 * float(runs["positions"].max()))
        for ax, name in zip(axes, MEASURES, strict=False):
            for i, label in enumerate(("ALiBi, T fixed", r"no bias, $n_\mathrm{eff}$ tokens")):
                values, colour = per_seed[name].isel(how=i), (style.ACCENT, style.DISTINCT)[i]
                styles = {"marker": style.MARKERS[i], "linestyle": style.DASHES[i], "label": label}
                draw_mean(ax, runs["positions"], values, color=colour, **styles)
            ax.set(xscale="log", xlim=shown)
        axes[0].set_ylim(-0.03, 1.05)
        axes[4].set_prop_cycle(color=style.ordered(runs.sizes["slope"]))
        z = runs["logits"].sel(how="biased").mean("seed").transpose("rank", "slope")
        axes[4].plot(runs["probability"], z, label=[f"{slope:g}" for slope in runs["slope"].values])
        axes[4].axhline(0, color=style.OUTLINE, linewidth=0.6)
        axes[4].legend(title="ALiBi slope", title_fontsize=7)
        bias = runs["learned"]
        axes[5].plot(bias["distance"], bias.T, color=style.GREEN, linewidth=0.5, alpha=0.6)
        TEXTS.label(axes, positions=r"positions that count, $n_\mathrm{eff}$")
        style.legend_above(figure, axes[0], ncols=2)
    return figure


def likeness(contrast: xr.DataArray) -> float:
    """The mean contrast with a bias over that of as many tokens as positions count."""
    of = contrast.mean("seed")
    return float(of.sel(how="biased") / of.sel(how="short"))


def judge(runs: xr.Dataset) -> Judgement:
    """Judge whether a bias changes the winner and the order, and acts as a shorter sequence."""
    biased = runs.sel(how="biased")
    steepest = biased.isel(slope=-1)
    alike = {
        float(of_slope["slope"]): jackknife(likeness, of_slope)
        for of_slope in runs["contrast"].isel(slope=slice(1, None)).transpose("slope", ...)
    }
    slowed = biased["slowed"].dropna("slope", how="any")  # where all seeds did
    found = {
        "winner_steepest": share(steepest["winner"]),
        "order_steepest": mean(steepest["order"]),
        "contrast_without": mean(biased["contrast"].isel(slope=0)),
        "contrast_steepest": mean(steepest["contrast"]),
        "slowed_ratio": mean(slowed.isel(slope=-1) / slowed.isel(slope=0)),
        "learned_spread": mean(runs["learned"].std("distance")),
    }
    counts = dict(zip(runs["slope"].values.tolist(), runs["positions"].values, strict=True))
    return TEXTS.judgement(
        Standing.OPEN,
        found | {f"contrast_ratio_{slope:g}": ratio for slope, ratio in alike.items()},
        later=float(slowed["slope"][-1]),
        slopes=(min(alike), max(alike)),
        alike=(alike[min(alike)], alike[max(alike)]),
        told=", ".join(f"{ratio} ({counts[slope]:.0f})" for slope, ratio in alike.items()),
        fewest=float(runs["positions"].min()),
        most=float(runs["positions"].max()),
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
