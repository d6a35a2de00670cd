"""Study: does the head with a favourable z(0) keep its token, and how many tokens do H heads cover?

Each head starts from its own random z(0), and its favourite in a class is the distinct token with
the largest P(l|n) exp(z_l(0)), which wins by Theorem 3. Measured, for heads that share a decoder
and for each head alone with one, by the ratio of the rates: the share of (head, class) pairs whose
favourite is the most attended distinct token at the end too, the number of different winners of a
class, and how far the favourite's z has grown along training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlab.experiments import Judgement, Standing, StudyRecipe, Texts, over_cells
from attnlab.experiments.drawing import draw_mean
from attnlab.experiments.estimate import Estimate, mean, share
from attnlab.files.progress import Progress
from attnlab.formulas import Setting
from attnlab.models import Extended
from attnlab.papers.scan_and_snap import theory
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.tasks.classes import SequenceClasses, classes_from

TEXTS = Texts.read(__file__)
KEPT = 0.9  # favourites are called kept where more than this share of them wins
COMBINE = {"alone": "each head alone", "concatenate": "concatenated", "average": "averaged"}


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """heads: how many, in increasing order. spread: standard deviation of z(0). ratios: eta_y /
    eta_z, the larger of the two being 1. records: steps at which growth is recorded; the last
    is the end."""

    classes: str
    heads: tuple[int, ...]
    spread: float
    ratios: tuple[float, ...]
    records: tuple[int, ...]


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """kept over (combine, heads, ratio, seed, head, sequence_class): 1 where the favourite wins at
    the end, 0 where not, NaN where there is no such head. covered: different winners of a class,
    mean over classes; covered_start, of the favourites, over (heads, seed). grown: z of the
    favourite minus its start at each step, mean over heads and classes.

    The first H starts of a seed serve every run of it with H heads.
    """
    classes = classes_from(recipe.classes)
    most = max(recipe.heads)
    shape = (most, classes.queries.size, classes.vocab_size)
    generators = map(np.random.default_rng, range(recipe.seeds))
    starts = np.stack([of.normal(scale=recipe.spread, size=shape) for of in generators])
    alone = _alone(recipe, classes, starts)
    P, psi = classes.probs, classes.query_index
    whole = Setting(P, psi=psi)  # tokens as they are numbered in the results

    def one(seed: int, combine: str, count: int, report: Progress) -> xr.Dataset:
        first = starts[seed, :count]
        own = theory.dominant_tokens(whole, first)  # the favourites, (head, class)
        if combine == "alone" or count == 1:
            z = alone[seed][:, :, :count]
        else:
            z = _logits(
                recipe,
                classes,
                init=first,
                progress=report,
                model=Extended(heads=count, combine=combine),  # type: ignore[arg-type]
            )
        winner = [theory.dominant_tokens(whole, of_ratio[-1]) for of_ratio in z]
        missing = np.full((most - count, len(P)), np.nan)
        kept = np.array([np.concatenate([of_ratio == own, missing]) for of_ratio in winner])
        growth = (z - first)[..., psi, :]  # (ratio, step, head, class, token)
        chosen = np.broadcast_to(own[..., None], (*growth.shape[:-1], 1))
        grown = np.take_along_axis(growth, chosen, axis=-1).mean(axis=(-3, -2, -1))
        return xr.Dataset(
            {
                "kept": (("ratio", "head", "sequence_class"), kept),
                "covered": ("ratio", [_different(of_ratio) for of_ratio in winner]),
                "grown": (("ratio", "step"), grown),
                "covered_start": _different(own),
            },
            {"ratio": list(recipe.ratios), "step": list(recipe.records)},
        )

    axes = {"seed": range(recipe.seeds), "combine": COMBINE, "heads": recipe.heads}
    runs = over_cells(one, progress, **axes)
    return runs.assign(covered_start=runs["covered_start"].isel(combine=0, drop=True)).assign_attrs(
        distinct=classes.distinct_tokens(0).size
    )


def _alone(
    recipe: Recipe, classes: SequenceClasses, starts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """z of each head alone, (seed, ratio, step, head, query, token), all trained together.

    For T to infinity only P(l|n) exp(z_l) enters: a start is a change of P.
    """
    each = starts.reshape(-1, *starts.shape[2:])
    z = _logits(recipe, [tilted(classes, start) for start in each])
    z = z + each[:, None, None]  # (seed and head, ratio, step, query, token)
    apart = z.reshape(*starts.shape[:2], *z.shape[1:])
    return np.asarray(np.moveaxis(apart, 1, 3))


def tilted(classes: SequenceClasses, start: NDArray[np.float64]) -> SequenceClasses:
    """The classes with P(l|n) exp(z_l(0)), normalised, in place of P(l|n)."""
    return SequenceClasses.from_entries(
        classes.class_of_entry,
        classes.tokens,
        classes.attention_entries(start),
        query=classes.query,
        next_token=classes.next_token,
        vocab_size=classes.vocab_size,
        prior=classes.prior,
    )


def _logits(
    recipe: Recipe, classes: SequenceClasses | list[SequenceClasses], **how: Any
) -> NDArray[np.float64]:
    """z at the recorded steps: (setting, ratio, step, head, query, token), where there are any."""
    ratio = xr.DataArray(list(recipe.ratios), dims="ratio")
    result = simulate(
        classes,
        gradient="population",
        eta_y=np.minimum(ratio, 1.0),
        eta_z=np.minimum(1 / ratio, 1.0),
        steps=recipe.records[-1],
        momentum=0.0,
        what="logits",
        at=recipe.records,
        **{"progress": False, **how},
    )
    z = result["attention_logits"].isel(seed=0)
    return np.asarray(z.values, dtype=np.float64)


def _different(winner: NDArray[np.int64]) -> float:
    """The number of different tokens in each column of (head, class), mean over classes."""
    return float(np.mean([np.unique(column).size for column in winner.T]))


def by_chance(tokens: int, heads: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how many of `tokens` are picked by heads that pick one each by chance, evenly."""
    return np.asarray(tokens * (1 - (1 - 1 / tokens) ** heads))


def growth(runs: xr.Dataset) -> xr.DataArray:
    """Return how far the favourite has grown, over that of a head alone, by seed."""
    of_seeds = runs["grown"].isel(heads=-1)
    return (of_seeds / of_seeds.sel(combine="alone")).drop_sel(combine="alone")


def draw(runs: xr.Dataset) -> Figure:
    """Kept favourites and covered tokens by the number of heads, at the first ratio; growth along
    training next to a head alone, by ratio."""
    heads = runs["heads"].values
    first = runs.isel(ratio=0)
    at_first = first["kept"].mean(("head", "sequence_class")), first["covered"]
    chance = by_chance(runs.attrs["distinct"], heads)
    colours = (style.GREEN, style.DISTINCT, style.ACCENT)
    with style.page(2.9) as figure:
        axes = figure.subplots(1, 3)
        for i, (combine, label) in enumerate(COMBINE.items()):
            styles = {"color": colours[i], "marker": style.MARKERS[i]}
            beside = heads * 1.06 ** (i - 1)
            for ax, values in zip(axes, at_first, strict=False):
                values, dashes = values.sel(combine=combine), style.DASHES[i]
                draw_mean(ax, beside, values, label=label, linestyle=dashes, **styles)
            if combine == "alone":
                continue
            of_ratios = growth(runs).sel(combine=combine).transpose("ratio", ...)
            for values, dashes in zip(of_ratios, style.DASHES, strict=False):
                ratio = rf"$\eta_Y/\eta_Z$ = {float(values['ratio']):g}"
                shown = ratio if combine == "average" else None
                draw_mean(axes[2], values["step"], values, linestyle=dashes, label=shown, **styles)
        axes[1].plot(heads, chance, color="black", linestyle=":", label="picked by chance")
        axes[0].set_ylim(0, 1.05)
        axes[2].axhline(1, color=style.OUTLINE, linewidth=0.6)
        axes[2].set(xscale="log", ylim=(0, 2.2))  # room for the legend
        axes[2].legend(loc="upper left")
        for ax in axes[:2]:
            ax.set_xscale("log", base=2)
            ax.set_xticks(heads, [str(h) for h in heads])
        TEXTS.label(axes, H=heads[-1])
        style.legend_above(figure, axes[1], ncols=4)
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """Judge how many favourites are kept and tokens covered, and how far shared heads grow."""
    most = runs.isel(heads=-1)
    H, D = int(most["heads"]), int(runs.attrs["distinct"])
    ratios = runs["ratio"].values.tolist()
    at_end = growth(runs).isel(step=-1)
    kept = {
        (name, ratio): share(most["kept"].sel(combine=name, ratio=ratio))
        for name, ratio in product(COMBINE, ratios)
    }
    grown = {
        (name, ratio): mean(at_end.sel(combine=name, ratio=ratio))
        for name, ratio in product(at_end["combine"].values.tolist(), ratios)
    }
    covered = {name: mean(most["covered"].isel(ratio=0).sel(combine=name)) for name in COMBINE}
    found = (
        {"covered_by_chance": float(by_chance(D, np.array(H)))}
        | {"covered_start": mean(most["covered_start"])}
        | {f"kept_{name}_{ratio:g}": of for (name, ratio), of in kept.items()}
        | {f"covered_{name}": of for name, of in covered.items()}
        | {f"growth_{name}_{ratio:g}": of for (name, ratio), of in grown.items()}
    )

    def in_all(name: str) -> str:
        """The range over ratios."""
        hits = [kept[name, ratio].hits for ratio in ratios]
        span = " to ".join(str(end) for end in dict.fromkeys((min(hits), max(hits))))
        return f"{span} of {kept[name, ratios[0]].total}"

    def by_ratio(of: Mapping[tuple[str, float], Estimate]) -> dict[str, str]:
        """The values by name, at all ratios."""
        names = dict.fromkeys(name for name, _ in of)
        return {name: ", ".join(str(of[name, ratio]) for ratio in ratios) for name in names}

    ends = [estimate.value for estimate in grown.values()]
    lost = [name for (name, _), of in kept.items() if of.below(KEPT)]
    more = sum(times.above(1) for times in grown.values())
    return TEXTS.judgement(
        Standing.FAILS if "alone" in lost else Standing.PARTLY if lost else Standing.HOLDS,
        found,
        ratios=", ".join(f"{ratio:g}" for ratio in ratios),
        first=ratios[0],
        H=H,
        D=D,
        steps=int(runs["step"][-1]),
        in_all={name: in_all(name) for name in COMBINE},
        kept=by_ratio(kept),
        grown=by_ratio(grown),
        growth=(min(ends), max(ends)),
        general="is not general" if more else "holds where it was tried",
        less=sum(times.below(1) for times in grown.values()),
        more=more,
        cases=len(grown),
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
