"""Study: which common tokens gain attention, how often, and does attention leave them as a whole?

The paper proves that a single common token loses (Theorem 2b) and that all of them do in a
symmetric case (Corollary 2); for several "the condition can be a bit involved". Here classes are
drawn at random, rows from a Dirichlet whose concentration says how unequal probabilities are. The
criterion for K = 2 classes of one query (`theory.common_token_margin`): under Eq. 10 a common token
gains at the start if and only if the overlap f_1 . f_2 exceeds its balance
2 f_1l f_2l / (f_1l^2 + f_2l^2). For K > 2 the sign of Eq. 10's velocity at the start takes its
place. Measured: the sign of z of each common token and the change of attention to all of them, at
the end of the joint flow of Y and Z.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import formulas
from attnlab.experiments import Judgement, Share, Standing, StudyRecipe, Texts, jackknife, share
from attnlab.experiments.cells import over_cells, over_draws
from attnlab.experiments.drawing import draw_estimates
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.papers.scan_and_snap import theory
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.tasks.classes import random

TEXTS = Texts.read(__file__)


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """vocab: of `data.random`, whose seeds are the study's. ratios: eta_Y/eta_Z, first the one that
    is quoted. quoted: the concentration for which most numbers are given. clear: tokens further
    than this from the criterion's border are also counted apart. weak: so are those of draws with
    at most this largest eigenvalue of E, the overlaps."""

    vocab: int
    num_classes: tuple[int, ...]
    overlaps: tuple[float, ...]
    concentrations: tuple[float, ...]
    quoted: float
    ratios: tuple[float, ...]
    eta_y: float
    steps: float
    clear: float
    weak: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if 2 not in self.num_classes:
            raise InputError(f"num_classes: the criterion is for 2, got {self.num_classes}")
        if self.quoted not in self.concentrations:
            raise InputError(f"quoted: expected one of the concentrations, got {self.quoted:g}")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Every common token over (num_classes, overlap, concentration, seed, token), NaN where there
    are fewer.

    predicted: Eq. 10's velocity at z = 0, whose sign is that of the criterion's margin where K = 2.
    joint: z at the end of the joint flow, also over `ratio`; reduced: of Eq. 10, at the quoted
    concentration and ratio. balance: 2 f_1l f_2l / (f_1l^2 + f_2l^2) of the first two classes. Of
    each draw: correlation, the largest eigenvalue of E (f_1 . f_2 where K = 2), and change, also
    over `ratio`: attention to all common tokens at the end minus that at the start, mean over
    classes.
    """
    axes = {"num_classes": recipe.num_classes, "overlap": recipe.overlaps}
    together = over_cells(partial(_cell, recipe), progress, **axes)
    return together.assign_attrs(quoted=recipe.quoted, clear=recipe.clear, weak=recipe.weak)


def _cell(recipe: Recipe, K: int, overlap: float, progress: Progress) -> xr.Dataset:
    """All draws of one size, in one call."""
    sets = [
        random(recipe.vocab, K, concentration=concentration, overlap=overlap, seed=seed)
        for concentration, seed in product(recipe.concentrations, range(recipe.seeds))
    ]
    drawn, M = sets[0].in_play, recipe.vocab
    P = np.array([classes.probs[:, drawn] for classes in sets])  # (draw, class, token)
    common = np.flatnonzero(formulas.token_roles(P[0]).common)
    ratio = xr.DataArray(list(recipe.ratios), dims="ratio")
    result = simulate(
        sets,
        eta_y=recipe.eta_y,
        eta_z=recipe.eta_y / ratio,
        time=recipe.steps,
        what="logits",
        at=(recipe.steps,),
        dtype="float64",
        progress=progress,
    )
    logits = result["attention_logits"].transpose("setting", "ratio", ...)
    z = logits.isel(seed=0, time=-1, query=0).values[..., drawn]  # (draw, ratio, token)
    weight = P[:, None] * np.exp(z)[:, :, None]  # (draw, ratio, class, token)
    attention = (weight / weight.sum(-1, keepdims=True))[..., common].sum(-1).mean(-1)
    before = P[..., common].sum(-1).mean(-1)
    at_rest = np.zeros((1, drawn.size))
    predicted = [theory.attention_velocity(formulas.Setting(p, M=M), at_rest)[0, common] for p in P]
    f1, f2 = np.moveaxis(np.array([formulas.unit_attention(p)[:2, common] for p in P]), 1, 0)
    correlation = [np.linalg.eigvalsh(theory.correlation(p))[-1] for p in P]
    concentrations, seeds = recipe.concentrations, range(recipe.seeds)
    cell = over_draws(
        {
            "predicted": (("token",), predicted),
            "joint": (("ratio", "token"), z[..., common]),
            "balance": (("token",), 2 * f1 * f2 / (f1**2 + f2**2)),
            "correlation": ((), correlation),
            "change": (("ratio",), attention - before[:, None]),
        },
        concentration=concentrations,
        seed=seeds,
    ).assign_coords(ratio=list(recipe.ratios), token=common)
    quoted = P[concentrations.index(recipe.quoted) * len(seeds) :][: len(seeds)]
    rates: Any = {"eta_y": recipe.eta_y, "eta_z": recipe.eta_y / recipe.ratios[0]}
    reduced = [
        theory.attention_flow(formulas.Setting(p, M=M, **rates), recipe.steps) for p in quoted
    ]
    return cell.assign(reduced=(("seed", "token"), [path.logits[0, common] for path in reduced]))


def growing(tokens: xr.Dataset) -> Share:
    """Common tokens whose z ends above 0 in training."""
    return share((tokens["joint"] > 0).where(tokens["joint"].notnull()))


def right(tokens: xr.Dataset, *, clear: float = 0.0, dynamics: str = "joint") -> Share:
    """Common tokens that end with the predicted sign.

    clear: only those of which |balance - correlation| is larger.
    """
    z = tokens[dynamics]
    counted = z.notnull() & (abs(tokens["balance"] - tokens["correlation"]) > clear)
    return share((np.sign(z) == np.sign(tokens["predicted"])).where(counted))


def draw(tokens: xr.Dataset) -> Figure:
    """Draw the map for K = 2, the share that gains, and the signs predicted by each rule."""
    first = tokens.isel(ratio=0)
    two = first.sel(num_classes=2, concentration=tokens.attrs["quoted"])
    x = two["correlation"].broadcast_like(two["balance"]).values.ravel()
    y, z = two["balance"].values.ravel(), two["joint"].values.ravel()
    at = tokens["concentration"].values
    with style.page(3.0) as figure:
        axes = figure.subplots(1, 3)
        dots = {"linestyle": "none", "markersize": 2.5, "markeredgewidth": 0, "alpha": 0.8}
        for grows, colour, marker, label in (
            (z < 0, style.COMMON, "v", "(a) loses attention"),
            (z > 0, style.DISTINCT, "^", "(a) gains attention"),
        ):
            axes[0].plot(x[grows], y[grows], color=colour, marker=marker, label=label, **dots)
        axes[0].plot([0, 1], [0, 1], color="black", linewidth=1.0, label="(a) criterion")
        axes[0].set(xlim=(0, max(0.05, 1.05 * np.nanmax(x))), ylim=(0, 1.02))
        for i, (of_size, styles) in enumerate(style.entries(first, "num_classes")):
            K, marker, dashes = of_size["num_classes"].item(), styles["marker"], style.DASHES[i]
            for cell, shade in style.entries(of_size, "overlap"):
                found = [growing(cell.sel(concentration=c)) for c in at]
                label = f"K = {K}, {cell['overlap'].item():.0%} common"
                styles = {"color": shade["color"], "linestyle": dashes, "marker": marker}
                draw_estimates(axes[1], at, found, label=label, **styles)
            by = [of_size.sel(concentration=c) for c in at]
            styles = {"color": (style.GREEN, style.ACCENT)[i % 2], "marker": marker}
            draw_estimates(
                axes[2], at, [right(some) for some in by], label=f"criterion, K = {K}", **styles
            )
            styles |= {"linestyle": ":", "markerfacecolor": "none"}
            always = [1 - growing(some).value for some in by]
            axes[2].plot(at, always, label=f"always “loses”, K = {K}", **styles)
        for ax in axes[1:]:
            style.log_ticks(ax, at)
            ax.legend(fontsize=6)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, markerscale=2)
        TEXTS.label(axes, quoted=tokens.attrs["quoted"])
    return figure


def judge(tokens: xr.Dataset) -> Judgement:
    """Judge how many common tokens gain, and whether attention leaves them as a whole."""
    quoted, clear, weak = (tokens.attrs[name] for name in ("quoted", "clear", "weak"))
    first = tokens.isel(ratio=0)
    usual, slow = (tokens.isel(ratio=i).sel(concentration=quoted) for i in (0, -1))
    of_two = usual.sel(num_classes=2)
    classes = [int(K) for K in tokens["num_classes"].values]
    by = {float(c): growing(first.sel(concentration=c)) for c in tokens["concentration"].values}
    fell = {c: share(tokens["change"].sel(concentration=c) < 0) for c in by}
    weak_draws = first.where(first["correlation"] <= weak)
    weakly = {c: growing(weak_draws.sel(concentration=c)) for c in by}
    signs = {K: right(usual.sel(num_classes=K)) for K in classes}
    always = {K: 1 - growing(usual.sel(num_classes=K)).value for K in classes}
    by_concentration = {"total_fell": fell, "gaining": by, "gaining_weakly_correlated": weakly}
    found: dict[str, Any] = {"largest_rise": float(tokens["change"].max())}
    found |= {f"{name}_{c:g}": of[c] for c in by for name, of in by_concentration.items()}
    for K, overlap in product(classes, tokens["overlap"].values):
        some = usual.sel(num_classes=K, overlap=overlap)
        found[f"gaining_K{K}_overlap{overlap:g}"] = growing(some)
    weak_usual = usual.where(usual["correlation"] < 1 / usual["num_classes"])
    found["gaining_within_assumption_2"] = growing(weak_usual)
    found["gaining_slow_attention"] = growing(slow)
    for K in classes:
        found |= {f"right_K{K}": signs[K], f"always_loses_K{K}": always[K]}
    found["right_K2_slow_attention"] = right(slow.sel(num_classes=2))
    found["right_K2_eq10"] = right(of_two, dynamics="reduced")
    found["right_K2_clear"] = right(of_two, clear=clear)
    for sign, of_this_sign in (("gaining", of_two["joint"] > 0), ("losing", of_two["joint"] < 0)):
        balance = of_two["balance"].where(of_this_sign)
        found[f"balance_of_{sign}"] = jackknife(lambda kept: float(kept.median()), balance)

    def at_each(of: Mapping[float, Share]) -> str:
        return ", ".join(f"{one} at {c:g}" for c, one in of.items())

    hits, runs = (sum(getattr(one, name) for one in fell.values()) for name in ("hits", "total"))
    mostly = hits >= runs / 2
    return TEXTS.judgement(
        Standing.of(mostly and not any(one.hits for one in by.values()), in_part=mostly),
        found,
        all_fell=hits,
        runs=runs,
        fast=float(usual["ratio"]),
        slow=float(slow["ratio"]),
        quoted=quoted,
        clear=clear,
        weak=weak,
        quickly=by[quoted],
        shares=", ".join(f"{one.value:.1%} at {c:g}" for c, one in by.items()),
        fallen=at_each(fell),
        weak_shares=at_each(weakly),
        told=" and ".join(
            f"{signs[K].value:.1%} (K = {K}; always saying “loses”: {always[K]:.1%})"
            for K in classes
        ),
        wrong=1 - signs[classes[0]].value,
        ratios=tokens.sizes["ratio"],
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
