"""Study: where does a common token grow instead of shrinking?

The criterion for K = 2 classes of one query (`theory.common_token_margin`): under Eq. 10 a common
token gains at the start if and only if the overlap f_1 . f_2 exceeds its balance
2 f_1l f_2l / (f_1l^2 + f_2l^2). For K > 2 the sign of Eq. 10's velocity at the start takes its
place. Measured: the sign of z at the end of Eq. 10 and of the joint flow of Y and Z, for random
classes with many common tokens of unequal probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from attnlab import theory
from attnlab.data import SequenceClasses, random
from attnlab.dynamics import Flow, Save, simulate
from attnlab.figures import style
from attnlab.figures.finding import Finding
from attnlab.studies.answer import Answer
from attnlab.studies.estimate import Estimate, jackknife
from attnlab.studies.recipe import StudyRecipe
from attnlab.studies.turns import in_turn
from attnlab.sweep import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Where a common token grows"
DYNAMICS = {"reduced": "Eq. 10", "joint": "training (joint flow)"}


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """vocab, concentration: of `data.random`, whose seeds are the study's. clear: tokens further
    than this from the criterion's border are also counted apart."""

    vocab: int
    num_classes: tuple[int, ...]
    overlaps: tuple[float, ...]
    concentration: float
    eta_y: float
    eta_z: float
    steps: float
    clear: float


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Every common token over (num_classes, overlap, seed, token), NaN where there are fewer.

    predicted: Eq. 10's velocity at z = 0, whose sign is that of the criterion's margin where K = 2.
    reduced, joint: z at the end of Eq. 10 and of the joint
    flow. correlation, balance: f_1 . f_2 and 2 f_1l f_2l / (f_1l^2 + f_2l^2), of the first two
    classes.
    """
    cells = list(product(recipe.num_classes, recipe.overlaps, range(recipe.seeds)))
    parts = []
    for (K, overlap, seed), report in in_turn(cells, progress):
        classes = random(
            recipe.vocab, K, concentration=recipe.concentration, overlap=overlap, seed=seed
        )
        tokens = _tokens(recipe, classes, report)
        parts.append(tokens.expand_dims(num_classes=[K], overlap=[overlap], seed=[seed]))
    together = xr.combine_by_coords(parts, data_vars="all", join="outer")
    assert isinstance(together, xr.Dataset)
    return together.assign_attrs(clear=recipe.clear)


def _tokens(recipe: Recipe, classes: SequenceClasses, progress: Progress) -> xr.Dataset:
    P, M = classes.probs[:, classes.in_play], classes.vocab_size
    common = np.flatnonzero(theory.token_roles(P).common)
    rates: dict[str, Any] = {"eta_y": recipe.eta_y, "eta_z": recipe.eta_z}
    at_rest = np.zeros((1, P.shape[1]))
    start = theory.attention_velocity(P, at_rest, psi=None, M=M)
    reduced = theory.attention_flow(P, np.array([recipe.steps]), psi=None, M=M, **rates)
    result = simulate(
        classes, Flow(), **rates, steps=recipe.steps, dtype="float64",
        save=Save(what="logits", at=(recipe.steps,)), progress=progress,
    )  # fmt: skip
    joint = result["attention_logits"].isel(seed=0, time=-1, query=0).values[classes.in_play]
    f1, f2 = theory.unit_attention(P)[:2]
    balance = 2 * f1[common] * f2[common] / (f1[common] ** 2 + f2[common] ** 2)
    return xr.Dataset(
        {
            "predicted": ("token", start[0, common]),
            "reduced": ("token", reduced.logits[-1, 0, common]),
            "joint": ("token", joint[common]),
            "balance": ("token", balance),
            "correlation": ((), float(f1 @ f2)),
        },
        {"token": common},
    )


def share_right(tokens: xr.Dataset, dynamics: str, *, clear: float = 0.0) -> Estimate:
    """The share of common tokens that end with the predicted sign, with its error over seeds.

    clear: only tokens of which |balance - correlation| is larger.
    """
    right = np.sign(tokens[dynamics]) == np.sign(tokens["predicted"])
    counted = tokens[dynamics].notnull()
    if clear:
        counted &= abs(tokens["balance"] - tokens["correlation"]) > clear
    both = xr.concat([right & counted, counted], "part")
    return jackknife(lambda kept: float(kept[0].sum() / kept[1].sum()), both)


def draw(tokens: xr.Dataset) -> Figure:
    """The map for K = 2 under both dynamics, and the share classified right."""
    from matplotlib.figure import Figure

    two = tokens.sel(num_classes=2)
    x = two["correlation"].broadcast_like(two["balance"]).values.ravel()
    y = two["balance"].values.ravel()
    with style.style():
        figure = Figure(figsize=(style.PAGE_WIDTH, 2.9), layout="constrained")
        axes = figure.subplots(1, 3)
        for ax, name in zip(axes[:2], DYNAMICS, strict=True):
            z = two[name].values.ravel()
            for grows, colour, marker, label in (
                (z < 0, style.COMMON, "v", "loses attention"),
                (z > 0, style.DISTINCT, "^", "gains attention"),
            ):
                ax.plot(
                    x[grows], y[grows], linestyle="none", marker=marker, color=colour,
                    markersize=2.5, markeredgewidth=0, alpha=0.8, label=label,
                )  # fmt: skip
            ax.plot([0, 1], [0, 1], color="black", linewidth=1.0, label="criterion")
            ax.set_xlabel(r"overlap $f_1 \cdot f_2$")
            ax.set_xlim(0, max(0.05, 1.05 * np.nanmax(x)))
            ax.set_ylim(0, 1.02)
        axes[0].set_ylabel(r"balance $2 f_{1l} f_{2l} / (f_{1l}^2 + f_{2l}^2)$")
        for i, name in enumerate(DYNAMICS):
            found = [share_right(tokens.sel(num_classes=[K]), name) for K in tokens["num_classes"]]
            axes[2].errorbar(
                np.arange(len(found)) + 0.08 * (i - 0.5),
                [estimate.value for estimate in found],
                yerr=[estimate.error for estimate in found],
                linestyle="none", marker=style.MARKERS[i], capsize=3,
                color=(style.GREEN, style.ACCENT)[i], label=DYNAMICS[name],
            )  # fmt: skip
        axes[2].set_xticks(range(tokens.sizes["num_classes"]), tokens["num_classes"].values)
        axes[2].set_xlim(-0.5, tokens.sizes["num_classes"] - 0.5)
        axes[2].set_xlabel("number of classes $K$")
        axes[2].set_ylabel("share of common tokens\nclassified right")
        axes[2].set_ylim(None, 1.0)
        axes[2].legend(loc="upper right")
        style.panel_titles(axes, [*DYNAMICS.values(), "signs predicted"])
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, markerscale=2)
    return figure


def judge(tokens: xr.Dataset) -> Finding:
    """How many common tokens grow, and how many of the signs does the criterion give?"""
    two = tokens.sel(num_classes=[2])
    more = tokens.sel(num_classes=tokens["num_classes"] > 2)
    clear = tokens.attrs["clear"]
    reduced, joint = (share_right(two, name) for name in DYNAMICS)
    clearly = share_right(two, "joint", clear=clear)
    others = share_right(more, "joint")
    grow = jackknife(lambda z: float((z > 0).sum() / z.notnull().sum()), tokens["joint"])
    numbers = {
        **grow.numbers("share_growing"),
        **reduced.numbers("right_eq10"),
        **joint.numbers("right_training"),
        **clearly.numbers("right_training_clear"),
        **others.numbers("right_training_more_classes"),
    }
    headline = (
        f"{grow.value:.0%} of the common tokens gain attention in training; the criterion gives "
        f"the sign of {joint.value:.1%} ± {joint.error:.1%} of them for K = 2."
    )
    summary = (
        f"{headline} Under Eq. 10 it gives {reduced.value:.1%} ± {reduced.error:.1%} of the signs "
        f"at the end, being exact at the start. In training {clearly.value:.1%} ± "
        f"{clearly.error:.1%} of the tokens further than {clear:g} from its border end as it says, "
        f"so that what it misses lies near the border. For more classes the sign of Eq. 10's "
        f"velocity at the start gives {others.value:.1%} ± {others.error:.1%}. ({joint.count} "
        f"draws of random classes for each overlap.)"
    )
    alt = (
        f"Common tokens of random pairs of classes by overlap and balance, marked by whether they "
        f"gain or lose attention, under Eq. 10 and in training; the diagonal, the criterion, "
        f"separates them up to {1 - joint.value:.0%} of errors in training. On the right, the "
        f"share classified right by number of classes, between "
        f"{min(joint.value, others.value):.2f} and 1."
    )
    some_grow = grow.value > 2 * grow.error
    answer = Answer.CONTRADICTS if some_grow else Answer.AGREES
    return Finding(answer, headline, summary, alt, numbers)
