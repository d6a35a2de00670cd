"""Study: while a transformer learns a text, does the entropy of attention dip, bounce or cycle?

JoMA says that attention becomes sparse and then dense again. Its curves were recorded every 1,000
steps, on one window of 35 tokens, with Adam's moments reset after each epoch. Here entropy is
recorded from the first step on, on the validation text and on one window, with moments kept and
reset, and its turning points are found run by run (`measures.turning_points`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import lgamma
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from attnlab.experiments import Judgement, Standing, StudyRecipe, Table, Texts, published
from attnlab.experiments.estimate import Median, Share, coverage, median, power, share
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.measures.turning import SHAPES, TURNS, turning_points
from attnlab.models.transformer import Activation
from attnlab.papers.scan_and_snap.figures import text_runs
from attnlab.plots import style
from attnlab.simulation import Simulation

TEXTS = Texts.read(__file__)
PLACES = ("entropy", "window_entropy")  # on the validation text, and on one window
RECORDED = (*PLACES, "frequent_mass", "mlp_stable_rank", "qk_stable_rank", "validation_loss")
# Learning rate, distance of records and steps of JoMA's released runs (published/dip.csv).
PUBLISHED_RATE, PUBLISHED_EVERY, PUBLISHED_STEPS = 1e-4, 1000, 58_000
CYCLE_RATE = 1e-5  # up to which its one-layer runs dip and come back


@dataclass(frozen=True)
class Arm:
    """Settings of one training. layers: depths. The others are fields of training and model."""

    layers: tuple[int, ...]
    reset_moments: bool = False
    activation: Activation = "relu"


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe, text_runs.CorpusRecipe):
    """arms: settings of training by name, the first of which is judged. turn: nats by which entropy
    must come back for it to have turned."""

    arms: dict[str, Arm]
    turn: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.arms:
            raise InputError("arms: name at least one")
        for name, arm in self.arms.items():
            text_runs.check_depths(f"arms.{name}.layers", arm.layers)

    def runs(self) -> dict[tuple[str, int], Simulation]:
        """Return the runs by arm and depth."""
        corpus = self.text()
        return {
            (name, depth): self.run(
                corpus,
                layers=depth,
                activation=arm.activation,
                reset_moments=arm.reset_moments,
                seeds=self.seeds,
            )
            for name, arm in self.arms.items()
            for depth in arm.layers
        }


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Train, and return records over (arm, layers, rate, seed, step, layer); means over heads.

    entropy: on the validation text; window_entropy: on its first window alone (nats).
    frequent_mass: attention to the frequent words, of which `frequent_share` are seen.
    mlp_stable_rank, qk_stable_rank: of the lower matrix of the MLP and of W_Q^T W_K.
    validation_loss: over (arm, layers, rate, seed, step). NaN where an arm has no such depth, and a
    depth no such layer.
    """
    trainings = recipe.runs()
    results = text_runs.run_all(list(trainings.values()), progress=progress, keep=keep)
    parts = []
    for (arm, depth), result in zip(trainings, results, strict=True):
        of_heads = result.mean("head")
        window = of_heads["probe_entropy"].isel(probe=0, drop=True)
        recorded = of_heads.assign(window_entropy=window)
        # a new dataset, without the provenance of one training
        part = xr.Dataset({name: recorded[name] for name in RECORDED})
        parts.append(part.expand_dims(arm=[arm], layers=[depth]))
    order = {"arm": list(recipe.arms), "layers": sorted({depth for _, depth in trainings})}
    runs = xr.merge(parts, join="outer", compat="no_conflicts").reindex(order)
    runs = runs.assign_coords(arm=np.asarray(list(recipe.arms), dtype=np.str_))  # for a file
    dims = ("arm", "layers", "rate", "seed", "step", "layer")
    return runs.transpose(*dims).assign_attrs(
        corpus=recipe.corpus,
        turn=recipe.turn,
        context=recipe.run(recipe.corpus).task.length,
        frequent_share=float(results[0]["frequent_share"]),
    )


def turns(runs: xr.Dataset, what: str) -> xr.Dataset:
    """Return where the curve of each run and layer turns."""
    return turning_points(runs[what], least=runs.attrs["turn"])


def _told(values: xr.DataArray, digits: str = ".2f") -> str:
    """The median over seeds and its interval."""
    return median(values).told(digits)


def _at(text: xr.Dataset, name: str) -> Median:
    """Rate x steps of a turn: a seed's rates are averaged in the logarithm."""
    found = median(xr.apply_ufunc(np.log, text["rate"] * text[f"{name}_at"]))
    value, low, high = np.exp([found.value, found.low, found.high])
    return Median(float(value), float(low), float(high), found.count)


def table(runs: xr.Dataset) -> Table:
    """One row per arm, depth, layer and rate; on a page those of first and last layers."""
    found = {what: turns(runs, what) for what in PLACES}
    rows, cells = [], []
    for arm_number, arm in enumerate(runs["arm"].values.tolist()):
        for depth, layer, rate in _cells(runs, arm):
            place = {"arm": arm, "layers": depth, "layer": layer, "rate": rate}
            row: dict[str, float] = {**place, "arm": arm_number, "layer": layer + 1}
            for what in PLACES:
                one = found[what].sel(place)
                for i, shape in enumerate(SHAPES):
                    row[f"{what}_{shape.replace(' ', '_')}"] = float((one["shape"] == i).sum())
                for name in TURNS:
                    row |= median(one[name]).numbers(f"{what}_{name}")
                    row |= median(rate * one[f"{name}_at"]).numbers(f"{what}_{name}_at")
            rows.append(row)
            if layer in (0, depth - 1):
                cells.append(_row(runs, found, place))
    return TEXTS.table(rows, cells, brackets=_brackets(runs))


def _brackets(runs: xr.Dataset) -> str:
    """Say what stands in brackets behind a median."""
    seeds = int(runs.sizes["seed"])
    fewer = "".join(f", {100 * coverage(n):.0f} % where {n} do" for n in (3, 2) if n < seeds)
    return TEXTS.part("brackets", share=100 * coverage(seeds), seeds=seeds, fewer=fewer)


def _row(runs: xr.Dataset, found: Mapping[str, xr.Dataset], place: dict[str, Any]) -> list[str]:
    rate, last = place["rate"], int(runs["step"][-1])
    text, window = (found[what].sel(place) for what in PLACES)
    points = [
        f"{_told(text[name])}\n{_where(rate, text[f'{name}_at'], last)}"
        if text[name].count()
        else "-"
        for name in TURNS
    ]
    return [
        place["arm"],
        str(place["layers"]),
        str(place["layer"] + 1),
        f"{rate:g}",
        _shapes(text["shape"]),
        _told(runs["entropy"].sel(place).isel(step=0)),
        *points,
        _shapes(window["shape"]),
    ]


def _where(rate: float, steps: xr.DataArray, last: int) -> str:
    if (steps.isnull() | (steps == last)).all():
        return f"{rate * last:.2g}, the end"
    return _told(rate * steps, ".2g")


def _shapes(shape: xr.DataArray) -> str:
    counts = {name: int((shape == i).sum()) for i, name in enumerate(SHAPES)}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _cells(runs: xr.Dataset, arm: str) -> list[tuple[int, int, float]]:
    """(depth, layer, rate) of what an arm has."""
    return [
        (int(depth), layer, float(rate))
        for depth in _depths(runs, arm)
        for layer in range(depth)
        for rate in runs["rate"].values
    ]


def _depths(runs: xr.Dataset, arm: str) -> list[int]:
    there = runs["entropy"].sel(arm=arm).isel(layer=0)
    return there.dropna("layers", how="all")["layers"].values.tolist()


def draw(runs: xr.Dataset) -> Figure:
    """First layers by rate at each depth; the deepest's layers; what goes with the first dip."""
    arms, rates = [str(name) for name in runs["arm"].values], runs["rate"].values
    main = arms[0]
    depths = _depths(runs, main)
    ceiling = lgamma(runs.attrs["context"] + 1) / runs.attrs["context"]
    colours = style.ordered(rates.size)
    with style.page(5.2) as figure:
        above, below = figure.subfigures(2, 1, squeeze=False)[:, 0]
        upper = above.subplots(1, len(depths), squeeze=False)[0]  # deep ones fall far lower
        lower = below.subplots(1, 3)
        for ax, depth in zip(upper, depths, strict=True):
            for arm, dashes in zip(arms, style.DASHES, strict=False):
                for rate, colour in zip(rates, colours, strict=True):
                    one = runs["entropy"].sel(arm=arm, layers=depth, rate=rate).isel(layer=0)
                    label = f"rate {rate:g}" if arm == main else None
                    _line(ax, one, rate, color=colour, linestyle=dashes, label=label)
            ax.axhline(ceiling, color=style.OUTLINE, linewidth=0.6, linestyle=":")
        upper[0].set_ylabel("entropy, first layer (nats)")
        middle = float(rates[len(rates) // 2])
        deepest = runs.sel(arm=main, layers=depths[-1], rate=middle)
        for layer, colour in enumerate(style.ordered(depths[-1])):
            text, window = (deepest[what].isel(layer=layer) for what in PLACES)
            _line(lower[0], text, middle, color=colour, label=f"{layer + 1}")
            _line(lower[0], window, middle, color=colour, linewidth=0.6, linestyle=":")
        lower[0].legend(fontsize=6, ncols=2 if depths[-1] > 3 else 1, title="layer")
        ranks = {"mlp_stable_rank": "MLP, lower", "qk_stable_rank": "$W_Q^T W_K$"}
        for rate, colour in zip(rates, colours, strict=True):
            shallow = runs.sel(arm=main, layers=depths[0], rate=rate).isel(layer=0)
            _line(lower[1], shallow["frequent_mass"], rate, color=colour)
            for (name, label), dashes in zip(ranks.items(), style.DASHES, strict=False):
                styles = {"linestyle": dashes, "label": label if rate == rates[-1] else None}
                _line(lower[2], shallow[name], rate, color=colour, **styles)
        spread = runs.attrs["frequent_share"]
        lower[1].axhline(spread, color=style.OUTLINE, linewidth=0.6, linestyle=":")
        style.y_labels(lower, TEXTS.ylabels)
        lower[2].legend(fontsize=6.5)
        for ax in (*upper, *lower):
            ax.set(xscale="log", xlabel="rate x steps")
            ax.xaxis.set_major_locator(LogLocator(numticks=5))
        names = [text_runs.depth_name(depth) for depth in depths]
        below_names = [f"{names[-1]}, rate {middle:g}", f"{names[0]}: where", names[0]]
        style.panel_titles([*upper, *lower], [*names, *below_names])
        lines = zip(("solid", "dashed", "dash-dot"), arms, strict=False)
        dashed = ", ".join(f"{how}: {arm}" for how, arm in lines)
        style.legend_above(above, upper[0], title=TEXTS.legend.format(arms=dashed, runs=runs))
    return figure


def _line(ax: Any, values: xr.DataArray, rate: float, **how: Any) -> None:
    later = values.mean("seed").isel(step=slice(1, None))  # rate x 0 has no place on the axis
    ax.plot(rate * later["step"], later, **{"linewidth": 1.0, **how})


def judge(runs: xr.Dataset) -> Judgement:
    """Judge in how many runs the first layer's entropy dips, bounces and cycles, and where."""
    arms = [str(name) for name in runs["arm"].values]
    found = {what: turns(runs, what).isel(layer=0) for what in PLACES}
    numbers: dict[str, float | Share | Median] = {}
    shares: dict[tuple[str, int], Share] = {}
    told = []
    for arm in arms:
        for depth in _depths(runs, arm):
            key = f"{arm}_{depth}"
            text, window = (found[what].sel(arm=arm, layers=depth) for what in PLACES)
            for i, shape in ((2, "returns"), (3, "cycles")):
                hits = share((text["shape"] >= i).where(text["shape"].notnull()))
                numbers[f"{shape}_{key}"] = hits
                shares.setdefault((shape, depth), hits)  # of the first arm
            for name in TURNS:
                numbers[f"{name}_{key}"] = median(text[name])
                numbers[f"{name}_at_{key}"] = _at(text, name)
            steps = text["first_at"].mean("seed").dropna("rate")
            # -1 where rate x steps decides
            numbers[f"slope_{key}"] = power(steps["rate"], steps) if steps.size > 1 else np.nan
            told.append(_in_words(arm, depth, text, window))
    main = _depths(runs, arms[0])
    each = {depth: (shares["returns", depth], shares["cycles", depth]) for depth in main}
    counted = "; ".join(
        TEXTS.part("counted", depth=text_runs.depth_name(depth), found=found)
        for depth, found in each.items()
    )
    return TEXTS.judgement(
        _standing(list(each.values())),
        numbers,
        runs=runs,
        arm=arms[0],
        counted=counted,
        counted_first=counted.capitalize(),
        depths=", ".join(map(str, main)),
        brackets=_brackets(runs),
        told="; ".join(told),
        meanwhile=_meanwhile(runs, arms[0], main[0]),
        published=_published(runs, arms),
        rates=runs["rate"].values[[0, -1]],
        last=int(runs["step"][-1]),
    )


def _in_words(arm: str, depth: int, text: xr.Dataset, window: xr.Dataset) -> str:
    points = [
        f"{words} {_told(text[name])} at {_at(text, name).told('.2g')}"
        for name, words in zip(TURNS, ("first minimum", "return", "second minimum"), strict=True)
        if text[name].count()
    ]
    return (
        f"{arm}, {text_runs.depth_name(depth)}: {_shapes(text['shape'])} (one window: "
        f"{_shapes(window['shape'])})" + (f", {', '.join(points)}" if points else "")
    )


def _meanwhile(runs: xr.Dataset, arm: str, depth: int) -> str:
    """Return other measures at the start, where entropy turns, and at the end, in words."""
    one = runs.sel(arm=arm, layers=depth).isel(layer=0)
    found, share = turns(one, "entropy"), runs.attrs["frequent_share"]
    told = {}
    for name, digits in (
        ("frequent_mass", ".2f"),
        ("mlp_stable_rank", ".1f"),
        ("qk_stable_rank", ".1f"),
    ):
        at = [one[name].where(one["step"] == found[f"{turn}_at"]).max("step") for turn in TURNS]
        every = [one[name].isel(step=0), *at, one[name].isel(step=-1)]
        told[name] = ", ".join(_told(values, digits) for values in every)
    depth_name = text_runs.depth_name(depth)
    return TEXTS.part("meanwhile", depth=depth_name, arm=arm, share=share, **told)


def _published(runs: xr.Dataset, arms: list[str]) -> str:
    """JoMA's released numbers beside ours, where rate, depth and steps allow."""
    if PUBLISHED_RATE not in runs["rate"].values or runs["step"][-1] < 2 * PUBLISHED_EVERY:
        return ""
    lines = []
    late = runs["window_entropy"].sel(rate=PUBLISHED_RATE)
    late = late.where(late["step"] >= PUBLISHED_EVERY, drop=True)
    for theirs, arm in product(published(__file__, "dip"), arms):
        if theirs["layers"] in _depths(runs, arm):
            one = late.sel(arm=arm, layers=theirs["layers"], layer=theirs["layer"] - 1)
            ours = {
                "least": _told(one.min("step")),
                "at": _told(one["step"][one.argmin("step")], ",.0f"),
                "last": _told(one.isel(step=-1)),
            }
            lines.append(TEXTS.part("published_layer", arm=arm, ours=ours, **theirs))
    if not lines:
        return ""
    slow = runs["rate"].values[runs["rate"].values <= CYCLE_RATE]
    if slow.size and 1 in _depths(runs, arms[0]):
        own = turns(runs.sel(arm=arms[0], layers=1, rate=slow).isel(layer=0), "entropy")
        first, back = (_told(own["rate"] * own[f"{name}_at"], ".2g") for name in TURNS[:2])
        lines.append(TEXTS.part("published_cycle", rate=CYCLE_RATE, first=first, back=back))
    return " " + TEXTS.part(
        "published",
        rate=PUBLISHED_RATE,
        first=PUBLISHED_EVERY,
        theirs=PUBLISHED_STEPS,
        ours=int(runs["step"][-1]),
        lines="; ".join(lines),
    )


def _standing(shares: list[tuple[Share, Share]]) -> Standing:
    """JoMA says: down, and back. A cycle adds a second fall, which is a correction."""
    back = [returns.value for returns, _ in shares]
    again = [cycles.value for _, cycles in shares]
    if min(back) > 0.5:
        return Standing.CORRECTED if max(again) > 0.5 else Standing.HOLDS
    return Standing.PARTLY if max(back) > 0.5 else Standing.FAILS


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw, table=table)
