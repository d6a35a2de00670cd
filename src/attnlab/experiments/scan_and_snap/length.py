"""Study: from which length on do finite sequences follow the limit T to infinity?

Measured: the logits z at the end of training on sequences of length T, minus those of T to
infinity at the same rates, as a vector relative to the latter. It is held against the relative
bias of |q|^2, the squared norm of a sequence's token frequencies: (1 - |p|^2) / (|p|^2 (T - 1)).
That bias depends on P alone; so the same P is also trained with outputs that are never used, which
make M larger and nothing else (docs/errata.md, point 3: how long is long depends on M).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab import theory
from attnlab.data import SequenceClasses, classes_from
from attnlab.dynamics import Limit, Sampled, Save, simulate
from attnlab.experiments.base import Experiment, Judgement, Standing
from attnlab.experiments.estimate import Estimate, jackknife, power
from attnlab.experiments.recipe import StudyRecipe
from attnlab.files.progress import Progress, in_turn
from attnlab.plots import style

NEAR = 0.1  # z is called near its limit at this deviation


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """classes: several, by a short name, to tell what is general. unused: how many outputs that are
    never used are added, in increasing order. fitted: the law is fitted to the lengths from the
    first to the second; beyond, the seeds' noise is as large as the deviation."""

    classes: dict[str, str]
    unused: tuple[int, ...]
    lengths: tuple[int, ...]
    fitted: tuple[int, int]
    batch_size: int
    eta_y: float
    eta_z: float
    steps: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """excess over (classes, unused, length, seed, entry): (z(T) - z(infinity)) / |z(infinity)|.

    An entry is a (query, token) pair, NaN where classes have fewer. bias: of |q|^2, relative, over
    (classes, length). outputs: M, over (classes, unused). distinct, distinct_limit, probability:
    z(T), z(infinity) and P(l|n) of the distinct tokens of class 0, along `rank`, rarest first.
    """
    cells = list(product(recipe.classes.values(), recipe.unused))
    parts = [
        _training(recipe, classes_from(text).with_unused(count), report)
        for (text, count), report in in_turn(cells, progress)
    ]
    names = xr.DataArray(list(recipe.classes), dims="classes", name="classes")
    unused = xr.DataArray(list(recipe.unused), dims="unused", name="unused")
    sets = [parts[i : i + unused.size] for i in range(0, len(parts), unused.size)]
    together = xr.concat([xr.concat(some, unused) for some in sets], names, join="outer")
    shortest, longest = recipe.fitted
    return together.assign(bias=together["bias"].isel(unused=0)).assign_attrs(
        fitted_from=shortest, fitted_to=longest
    )


def _training(recipe: Recipe, classes: SequenceClasses, progress: Progress) -> xr.Dataset:
    own = classes.distinct_tokens(0)
    own = own[np.argsort(classes.probs[0, own], kind="stable")]
    query = int(classes.query_index[0])

    def end(length: int | None, report: Progress) -> xr.DataArray:
        engine = Limit() if length is None else Sampled(length, recipe.batch_size)
        result = simulate(
            classes, engine, eta_y=recipe.eta_y, eta_z=recipe.eta_z, steps=recipe.steps,
            seeds=1 if length is None else recipe.seeds,
            momentum=0.0, save=Save(what="logits", at=(recipe.steps,)), progress=report,
        )  # fmt: skip
        return result["attention_logits"].isel(step=-1).astype(np.float64)

    limit, *finite = [end(*turn) for turn in in_turn((None, *recipe.lengths), progress)]
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
        by_length = (
            deviation(excess).transpose("length", ...).values.reshape(late.sizes["length"], -1)
        )
        return float(np.mean([power(late["length"].values - 1.0, row) for row in by_length.T]))

    return jackknife(exponent, late["excess"])


def over_bias(runs: xr.Dataset, name: str, unused: int) -> Estimate:
    """The deviation over the bias of |q|^2, mean over the fitted lengths."""
    late = _fitted(runs).sel(classes=name)
    return jackknife(
        lambda excess: float((deviation(excess) / late["bias"]).mean()),
        late["excess"].sel(unused=unused),
    )


def growth(runs: xr.Dataset, name: str) -> Estimate:
    """How many times the deviation at the smallest M that at the largest is, at the same T."""
    late = _fitted(runs).sel(classes=name)

    def times(excess: xr.DataArray) -> float:
        far = deviation(excess)
        return float((far.isel(unused=-1) / far.isel(unused=0)).mean())

    return jackknife(times, late["excess"])


def _fitted(runs: xr.Dataset) -> xr.Dataset:
    return runs.sel(length=slice(runs.attrs["fitted_from"], runs.attrs["fitted_to"]))


def draw(runs: xr.Dataset) -> Figure:
    """The deviation against T, over the bias against M, and which tokens gain at which length."""
    length = runs["length"].values
    far = deviation(runs["excess"])
    with style.page(3.1) as figure:
        axes = figure.subplots(1, 3)
        for i, colour in enumerate(style.ordered(runs.sizes["classes"])):
            name = str(runs["classes"].values[i])
            for j, unused in enumerate(runs["unused"].values):
                axes[0].plot(
                    length, far[i, j], color=colour, marker=style.MARKERS[i], linewidth=1.0,
                    linestyle=style.DASHES[j], label=f"{unused} unused" if i == 0 else None,
                )  # fmt: skip
            ratio = [over_bias(runs, name, unused) for unused in runs["unused"].values]
            axes[1].errorbar(
                runs["outputs"].isel(classes=i), [estimate.value for estimate in ratio],
                yerr=[estimate.error for estimate in ratio], capsize=2, label=name, color=colour,
                marker=style.MARKERS[i], linewidth=1.0,
            )  # fmt: skip
        axes[0].axhline(NEAR, color=style.OUTLINE, linewidth=0.6)
        axes[0].set_xscale("log", base=2)
        axes[0].set_xticks(length, [f"{value:g}" for value in length])
        axes[0].set_xlabel("sequence length $T$")
        axes[0].set_ylabel(r"$|z(T) - z(\infty)| \,/\, |z(\infty)|$")
        axes[0].legend(fontsize=6.5)
        axes[1].set_xscale("log")
        axes[1].set_xlabel("outputs $M$, at the same $P$")
        axes[1].set_ylabel("deviation / bias of $|q|^2$")
        for ax in axes[:2]:
            ax.set_yscale("log")
        first = runs.isel(classes=0, unused=0).dropna("rank")
        for i, colour in enumerate(style.ordered(length.size)):
            z = first["distinct"].isel(length=i).mean("seed")
            axes[2].plot(first["probability"], z, color=colour, label=f"T = {length[i]}")
        axes[2].plot(
            first["probability"], first["distinct_limit"], color="black", linestyle="--",
            label=r"$T = \infty$",
        )  # fmt: skip
        axes[2].axhline(0, color=style.OUTLINE, linewidth=0.6)
        axes[2].set_xlabel("$P(l|n)$ of a distinct token")
        axes[2].set_ylabel("logit $z_l$ at the end")
        axes[2].legend(fontsize=6.5)
        style.panel_titles(axes, ["distance from the limit", "over the bias", "who gains"])
        style.legend_above(
            figure, axes[1], ncols=runs.sizes["classes"],
            title=f"(a): dashes by outputs that are never used; (c): {first['classes'].item()}, "
            "none of them; bars: s.e.",
        )  # fmt: skip
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """How does the deviation fall with T, and what besides P sets its size?"""
    fall = slope(runs)
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
    numbers = fall.numbers("slope")
    for name, estimate in grown.items():
        numbers |= estimate.numbers(f"growth_with_outputs_{_key(name)}")
    for (name, unused), estimate in ratio.items():
        numbers |= estimate.numbers(f"over_bias_{_key(name)}_{unused}")
    numbers |= {f"rarest_loses_up_to_{unused}": float(T) for unused, T in loses.items()}
    smallest, largest = (pick(grown, key=lambda name: grown[name].value) for pick in (min, max))
    outputs = runs["outputs"].sel(unused=most, classes=names[0]).item()
    headline = (
        f"From T = {runs.attrs['fitted_from']} on the distance from the limit falls as T - 1 to "
        f"the power {fall}. Its size is not set by P: {most} outputs that are never used make it "
        f"{grown[smallest].value:.1f} ({smallest}) to {grown[largest].value:.0f} ({largest}) times "
        f"as large."
    )
    told = "; ".join(
        f"{name} {' -> '.join(f'{ratio[name, int(u)].value:.2g}' for u in runs['unused'].values)}"
        for name in names
    )
    needed = {
        unused: [_needed(runs, name, ratio[name, unused]) for name in names]
        for unused in (least, most)
    }
    summary = (
        f"{headline} The relative bias of |q|^2, which P alone decides, has the rate and not the "
        f"size; the distance over it, as {' -> '.join(map(str, runs['unused'].values))} unused "
        f"outputs are added: {told}. By this fall z is within {NEAR:.0%} of its limit from T = "
        f"{min(needed[least]):,} to {max(needed[least]):,} on as the classes are, and from "
        f"{min(needed[most]):,} to {max(needed[most]):,} on with {most} unused outputs. So what is "
        f"long depends on M as well (docs/errata.md, point 3). Short sequences do not only add "
        f"noise: what the rare distinct tokens should gain they lose, because a token that occurs "
        f"now and then has E q_l^2 = p_l^2 + p_l (1 - p_l)/(T - 1). In {names[0]} the rarest one "
        f"loses up to T = {loses[least]}, and up to {loses[most]} with M = {outputs}. The paper "
        f"takes T to infinity (Assumption 1(b)) and does not say how long is long. "
        f"({fall.count} seeds.)"
    )
    alt = (
        f"Relative deviation of the logits from their limit against sequence length from "
        f"{int(runs['length'][0])} to {int(runs['length'][-1])}, for {len(names)} sets of classes "
        f"with up to {most} unused outputs, falling in parallel with slope {fall.value:.2f}; the "
        f"same over the bias of the norm, rising with the number of outputs, up to "
        f"{max(estimate.value for estimate in ratio.values()):.2g}; and the logits of distinct "
        f"tokens against their probability, negative for rare ones at short lengths."
    )
    return Judgement(Standing.OPEN, headline, summary, alt, numbers)


def _needed(runs: xr.Dataset, name: str, ratio: Estimate) -> int:
    """The length from which on z is near its limit, if the deviation is `ratio` times the bias."""
    of_length = runs["bias"].sel(classes=name) * (runs["length"] - 1)  # 1/|p|^2 - 1, at any length
    return round(1 + ratio.value / NEAR * float(of_length[0]))


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


EXPERIMENT = Experiment(
    name="length", kind="study", title="When finite sequences follow the limit",
    recipe=Recipe, data=data, judge=judge, draw=draw,
)  # fmt: skip
