"""Study: from which length on do finite sequences follow the limit T to infinity?

Measured: the logits z at the end of training on sequences of length T, minus those of T to
infinity at the same rates, as a vector relative to the latter. It is held against the relative
bias of |q|^2, the squared norm of a sequence's token frequencies: (1 - |p|^2) / (|p|^2 (T - 1)).
That bias depends on P alone; so the same P is also trained with outputs that are never used, which
make M larger and nothing else (docs/errata.md, point 3: how long is long depends on M).

Measured as well, on two classes with one common token: T*, the length up to which the rarest
distinct token ends with a negative logit. Our law (`theory.losing_length`): the drift of order 1/T
competes with an interaction of order M^(rho - 1), rho = f_1 . f_2, so that T* grows as M^(1 - rho),
up to powers of ln M.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Estimate, Judgement, Standing, StudyRecipe, Texts, jackknife
from attnlab.experiments.cells import over_cells
from attnlab.experiments.drawing import draw_estimates
from attnlab.experiments.estimate import COVERAGE, number_name, power, standard_error
from attnlab.files.progress import Progress, in_turn
from attnlab.papers.scan_and_snap import theory
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.tasks.classes import SequenceClasses, classes_from, single_common

TEXTS = Texts.read(__file__)
NEAR = 0.1  # z is called near its limit at this deviation
DISTINCT = 3  # distinct tokens of each of the two classes on which T* is measured


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Settings for T*. common_probs: of the common token, in increasing order, which set the
    overlap. outputs: M, in increasing order. upper_from: the exponent of M is also fitted from this
    M on. t0s: when z is read, in units of t_0."""

    common_probs: tuple[float, ...]
    outputs: tuple[int, ...]
    upper_from: int
    t0s: float
    batch_size: int
    eta_y: float
    eta_z: float


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """classes: several, by a short name, to find what is general. unused: how many outputs that are
    never used are added, in increasing order. fitted: the law is fitted to the lengths from the
    first to the second; beyond, the seeds' noise is as large as the deviation. turn: settings for
    T*."""

    classes: dict[str, str]
    unused: tuple[int, ...]
    lengths: tuple[int, ...]
    fitted: tuple[int, int]
    batch_size: int
    eta_y: float
    eta_z: float
    steps: int
    turn: Turn


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """excess over (classes, unused, length, seed, entry): (z(T) - z(infinity)) / |z(infinity)|.

    An entry is a (query, token) pair, NaN where classes have fewer. bias: of |q|^2, relative, over
    (classes, length). outputs: M, over (classes, unused). distinct, distinct_limit, probability:
    z(T), z(infinity) and P(l|n) of the distinct tokens of class 0, along `rank`, rarest first.

    rarest over (common_prob, M, seed): z(T)/z(infinity) of the rarest distinct token, at a length
    near T* (`rarest_length`). losing_length: T* by `theory.losing_length`. overlap: f_1 . f_2, over
    common_prob.
    """
    made = [piece(recipe, report) for piece, report in in_turn((_distances, _turns), progress)]
    shortest, longest = recipe.fitted
    return xr.merge(made).assign_attrs(
        fitted_from=shortest,
        fitted_to=longest,
        upper_from=recipe.turn.upper_from,
        t0s=recipe.turn.t0s,
    )


def _distances(recipe: Recipe, progress: Progress) -> xr.Dataset:
    train = partial(_training, recipe)
    together = over_cells(train, progress, classes=recipe.classes, unused=recipe.unused)
    return together.assign(bias=together["bias"].isel(unused=0))


def _training(recipe: Recipe, name: str, unused: int, progress: Progress) -> xr.Dataset:
    classes = classes_from(recipe.classes[name]).with_unused(unused)
    own = classes.distinct_tokens(0)
    own = own[np.argsort(classes.probs[0, own], kind="stable")]
    query = int(classes.query_index[0])

    limit, *finite = _ends(
        classes, recipe.lengths, recipe, progress, steps=recipe.steps, seeds=recipe.seeds
    )
    limit = limit.isel(seed=0)
    size = float(np.sqrt((limit**2).sum()))
    z = xr.concat(finite, xr.DataArray(list(recipe.lengths), dims="length", name="length"))
    excess = ((z - limit) / size).isel(token=classes.in_play)
    entries = excess.values.reshape(*excess.shape[:2], -1)
    p = classes.probs[0]
    norm = theory.expected_squared_norm(p, length=np.array(recipe.lengths))
    return xr.Dataset(
        {
            "excess": (("length", "seed", "entry"), entries),
            "bias": ("length", norm / (p**2).sum() - 1.0),
            "outputs": ((), classes.vocab_size),
            "distinct": (("length", "seed", "rank"), z.isel(query=query, token=own).values),
            "distinct_limit": ("rank", limit.isel(query=query, token=own).values),
            "probability": ("rank", p[own]),
        },
        {
            "length": list(recipe.lengths),
            "seed": np.arange(recipe.seeds),
            "entry": np.arange(entries.shape[-1]),
            "rank": np.arange(own.size),
        },
    )


def _ends(
    classes: SequenceClasses,
    lengths: Sequence[int],
    of: Recipe | Turn,
    progress: Progress,
    *,
    steps: int,
    seeds: int,
    **more: Any,
) -> list[xr.DataArray]:
    """Return z at the end of training, for T to infinity and then for each of the lengths."""

    def end(length: int | None, report: Progress) -> xr.DataArray:
        drawn = {"length": length, "batch_size": of.batch_size, "seeds": seeds}
        result = simulate(
            classes,
            eta_y=of.eta_y,
            eta_z=of.eta_z,
            steps=steps,
            momentum=0.0,
            what="logits",
            at=(steps,),
            progress=report,
            **({"gradient": "population"} if length is None else drawn),
            **more,
        )
        return result["attention_logits"].isel(step=-1).astype(np.float64)

    return [end(*turn) for turn in in_turn((None, *lengths), progress)]


def _turns(recipe: Recipe, progress: Progress) -> xr.Dataset:
    axes = {"common_prob": recipe.turn.common_probs, "M": recipe.turn.outputs}
    together = over_cells(partial(_turn, recipe), progress, **axes)
    return together.assign(overlap=together["overlap"].isel(M=0, drop=True))


def _turn(recipe: Recipe, common_prob: float, M: int, progress: Progress) -> xr.Dataset:
    """z(T)/z(infinity) of the rarest distinct token of each seed, T, T* by theory, and f_1 . f_2.

    T is near T*, so that little is left to interpolate between T and infinity, in 1/(T - 1).
    """
    turn = recipe.turn
    classes = single_common(num_classes=2, distinct=DISTINCT, common_prob=common_prob, vocab_size=M)
    own = classes.distinct_tokens(0)
    rarest = own[np.argmin(classes.probs[0, own])]
    rho = float(theory.correlation(classes)[0, 1])
    steps = round(turn.t0s * float(theory.transition_times(K=2, M=M, eta_y=turn.eta_y).t0))
    predicted = float(
        theory.losing_length(classes.probs[0], steps, K=2, M=M, rho=rho, eta_y=turn.eta_y)[rarest]
    )
    length, seeds = round(predicted), recipe.seeds
    ends = _ends(classes, (length,), turn, progress, steps=steps, seeds=seeds, dtype="float64")
    limit, finite = (z.isel(query=0, token=rarest).values for z in ends)
    found = {"rarest_length": length, "losing_length": predicted, "overlap": rho}
    return xr.Dataset({"rarest": ("seed", finite / limit), **found})


def deviation(excess: xr.DataArray) -> xr.DataArray:
    """The norm of the mean excess, with what the spread of the seeds adds to it taken away.

    NaN where nothing is left: there the deviation is less than the noise.
    """
    squared = (excess.mean("seed") ** 2).sum("entry")
    noise = (excess.var("seed", ddof=1) / excess.sizes["seed"]).sum("entry")
    left = squared - noise
    return left.where(left > 0) ** 0.5


def slope(runs: xr.Dataset) -> Estimate:
    """The exponent of T - 1 in the deviation, mean over classes and M."""
    late = _fitted(runs)

    def exponent(excess: xr.DataArray) -> float:
        rows = deviation(excess).transpose(..., "length").values.reshape(-1, late.sizes["length"])
        return float(np.mean([power(late["length"].values - 1.0, row) for row in rows]))

    return jackknife(exponent, late["excess"])


def over_bias(runs: xr.Dataset, name: str, unused: int) -> Estimate:
    """The deviation over the bias of |q|^2, mean over the fitted lengths."""
    late = _fitted(runs).sel(classes=name)
    return jackknife(
        lambda excess: float((deviation(excess) / late["bias"]).mean()),
        late["excess"].sel(unused=unused),
    )


def growth(runs: xr.Dataset, name: str) -> Estimate:
    """Return the deviation at the largest M over that at the smallest, at the same T."""
    late = _fitted(runs).sel(classes=name)

    def times(excess: xr.DataArray) -> float:
        far = deviation(excess)
        return float((far.isel(unused=-1) / far.isel(unused=0)).mean())

    return jackknife(times, late["excess"])


def turning_length(runs: xr.Dataset, rarest: xr.DataArray) -> xr.DataArray:
    """T* over (common_prob, M): where z of the rarest distinct token, linear in 1/(T - 1), is 0."""
    return 1.0 + (runs["rarest_length"] - 1.0) * (1.0 - rarest.mean("seed"))


def _turning_length(at: xr.Dataset) -> Estimate:
    return jackknife(lambda rarest: float(turning_length(at, rarest)), at["rarest"])


def outputs_exponent(runs: xr.Dataset, *, lowest: int = 0) -> Estimate:
    """The exponent of M in T* at one overlap, from M = `lowest` on."""
    some = runs.sel(M=slice(lowest, None))
    return jackknife(
        lambda rarest: power(some["M"].values, turning_length(some, rarest).values), some["rarest"]
    )


def _fitted(runs: xr.Dataset) -> xr.Dataset:
    return runs.sel(length=slice(runs.attrs["fitted_from"], runs.attrs["fitted_to"]))


def draw(runs: xr.Dataset) -> Figure:
    """The deviation against T, over the bias against M, which tokens gain at which length, and T*
    against M."""
    length, unused = runs["length"].values, runs["unused"].values
    far = deviation(runs["excess"])
    first = runs.isel(classes=0, unused=0).dropna("rank")
    with style.page(5.2) as figure:
        axes = figure.subplots(2, 2).ravel()
        for i, (one, styles) in enumerate(style.entries(runs, "classes")):
            name = one["classes"].item()
            for j, dashes in zip(range(unused.size), style.DASHES, strict=False):
                label = None if i else f"{unused[j]} unused"
                axes[0].plot(
                    length, far[i, j], linewidth=1.0, linestyle=dashes, label=label, **styles
                )
            ratio = [over_bias(runs, name, outputs) for outputs in unused]
            draw_estimates(axes[1], one["outputs"], ratio, label=name, linewidth=1.0, **styles)
        axes[0].axhline(NEAR, color=style.OUTLINE, linewidth=0.6)
        style.log_ticks(axes[0], length)
        axes[0].set_yscale("log")
        axes[1].set(xscale="log", yscale="log")
        P = first["probability"]
        axes[2].set_prop_cycle(color=style.ordered(length.size))
        axes[2].plot(P, first["distinct"].mean("seed").T, label=[f"T = {T}" for T in length])
        axes[2].plot(P, first["distinct_limit"], "k--", label=r"$T = \infty$")
        axes[2].axhline(0, color=style.OUTLINE, linewidth=0.6)
        _draw_turns(axes[3], runs)
        for ax in axes[[0, 2, 3]]:
            ax.legend(fontsize=6.5)
        TEXTS.label(axes)
        title = TEXTS.legend.format(first=first["classes"].item())
        style.legend_above(figure, axes[1], ncols=runs.sizes["classes"], title=title)
    return figure


def _draw_turns(ax: Any, runs: xr.Dataset) -> None:
    found = turning_length(runs, runs["rarest"])
    runs = runs.assign(
        found=found, error=(runs["rarest_length"] - 1) * standard_error(runs["rarest"])
    )
    M = runs["M"].values
    for one, styles in style.entries(runs, "common_prob"):
        dots = {"linestyle": "", "markersize": 4, "capsize": 2, **styles}
        label = rf"$f_1\cdot f_2 = {float(one['overlap']):.2f}$"
        ax.errorbar(M, one["found"], yerr=one["error"], label=label, **dots)
        ax.plot(M, one["losing_length"], color=styles["color"], linestyle="--", linewidth=1.0)
    ax.plot(M, found[0, 0].item() * M / M[0], color=style.OUTLINE, linewidth=0.6, label="like $M$")
    ax.set(xscale="log", yscale="log")


def judge(runs: xr.Dataset) -> Judgement:
    """Judge how the deviation falls with T, and what besides P sets its size."""
    names = [str(name) for name in runs["classes"].values]
    ratio = {
        (name, unused): over_bias(runs, name, unused)
        for name, unused in product(names, runs["unused"].values.tolist())
    }
    grown = {name: growth(runs, name) for name in names}
    least, most = (int(runs["unused"][i]) for i in (0, -1))
    rare = runs["distinct"].isel(rank=0, classes=0).mean("seed")
    loses = {
        unused: max(runs["length"].values[(rare.sel(unused=unused) < 0).values], default=0)
        for unused in (least, most)
    }
    found = (
        {"slope": slope(runs)}
        | {f"growth_with_outputs_{number_name(name)}": of for name, of in grown.items()}
        | {f"over_bias_{number_name(name)}_{unused}": of for (name, unused), of in ratio.items()}
        | {f"rarest_loses_up_to_{unused}": float(T) for unused, T in loses.items()}
    )
    laws = {float(c): _law(runs.sel(common_prob=c)) for c in runs["common_prob"].values}
    rhos = runs["overlap"].values.tolist()
    exponents = []
    for exponent, of_law, _ in laws.values():
        exponents.append(str(exponent))
        found |= of_law
    smallest, largest = (pick(grown, key=lambda name: grown[name].value) for pick in (min, max))

    def needed(unused: int) -> tuple[int, int]:
        lengths = [_needed(runs, name, ratio[name, unused]) for name in names]
        return min(lengths), max(lengths)

    return TEXTS.judgement(
        Standing.OPEN,
        found,
        most=most,
        smallest=smallest,
        largest=largest,
        growth=(grown[smallest].value, grown[largest].value),
        exponents=", ".join(exponents),
        overlaps=", ".join(f"{rho:.2f}" for rho in rhos),
        law=", ".join(f"{1 - rho:.2f}" for rho in rhos),
        unused=" -> ".join(map(str, runs["unused"].values)),
        told="; ".join(
            f"{name} {' -> '.join(f'{ratio[name, u].value:.2g}' for u in runs['unused'].values)}"
            for name in names
        ),
        near=NEAR,
        needed=(needed(least), needed(most)),
        first=names[0],
        loses=(loses[least], loses[most]),
        outputs=runs["outputs"].sel(unused=most, classes=names[0]).item(),
        laws="; ".join(words for _, _, words in laws.values()),
        coverage=COVERAGE,
        runs=runs,
        sets=len(names),
        most_over_bias=max(estimate.value for estimate in ratio.values()),
        lengths=runs["length"].values[[0, -1]],
        M=runs["M"].values[[0, -1]],
        Ms=", ".join(str(M) for M in runs["M"].values),
    )


def _law(runs: xr.Dataset) -> tuple[Estimate, dict[str, Estimate | float], str]:
    """Return T* at one overlap against the law: the exponent of M, all numbers, and in words."""
    lowest = int(runs.attrs["upper_from"])
    rho, outputs, theirs = float(runs["overlap"]), runs["M"].values.tolist(), runs["losing_length"]
    exponent, upper = (outputs_exponent(runs, lowest=M) for M in (0, lowest))
    by_theory = power(outputs, theirs.values)
    over_theory = jackknife(
        lambda rarest: float((turning_length(runs, rarest) / theirs).mean()), runs["rarest"]
    )
    lengths = {M: _turning_length(runs.sel(M=M)) for M in outputs}

    def beside(found: Estimate) -> str:
        """The exponent with its interval, and whether 1 - rho lies in it."""
        low, high = found.interval()
        side = "inside" if low <= 1 - rho <= high else "outside"
        return f"{found.value:.3f} ({low:.3f} to {high:.3f}, {1 - rho:.3f} is {side})"

    def over(exponent: float) -> str:
        """T* over this power of M, for each M."""
        return ", ".join(f"{length.value / M**exponent:.3g}" for M, length in lengths.items())

    words = TEXTS.part(
        "law",
        rho=rho,
        exponent=beside(exponent),
        lowest=lowest,
        upper=beside(upper),
        by_theory=by_theory,
        over_theory=over_theory,
        over_M=over(1.0),
        power=1 - rho,
        over_power=over(1 - rho),
    )
    key = f"rho_{100 * rho:.0f}"
    found: dict[str, Estimate | float] = {
        f"turning_length_{key}_{M}": length for M, length in lengths.items()
    }
    found |= {f"exponent_of_outputs_{key}": exponent, f"upper_exponent_{key}": upper}
    found |= {f"exponent_by_theory_{key}": by_theory, f"over_theory_{key}": over_theory}
    return exponent, found, words


def _needed(runs: xr.Dataset, name: str, ratio: Estimate) -> int:
    """The length from which on z is near its limit, if the deviation is `ratio` times the bias."""
    of_length = runs["bias"].sel(classes=name) * (runs["length"] - 1)  # 1/|p|^2 - 1, at any length
    return round(1 + ratio.value / NEAR * float(of_length[0]))


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
