"""Study: does the frequency of a token matter in the end?

Max-margin, as we know it: with fixed values attention grows towards the tokens of the best scores,
in a direction that knows nothing of frequencies. Scan and Snap: the most frequent distinct token
wins, where the decoder is trained from 0. Here both have the same two classes, a decoder that
starts at random, and learning rates from a decoder that stands still to one that is fast.
"""

from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Judgement, Standing, StudyRecipe, Table, Texts, over_cells
from attnlab.experiments.drawing import draw_estimates
from attnlab.experiments.estimate import Estimate, jackknife, share
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.papers.max_margin.theory import one_hot_margin
from attnlab.plots import style
from attnlab.simulation import Flow, Record, simulate

from ..drawn import distinct
from ..two_outputs import ScoreAttention, TwoOutputs

TEXTS = Texts.read(__file__)
NORMS = ("none", "l2")
RULES = ("score", "frequency")
MOST = 0.8  # a rule is right where it names the winner in more than this share of the classes
STIFF = 1e6  # with a fixed decoder and a norm attention comes to rest; later than this it is stiff
GROWTH = 1e-2  # the direction of z is that of its growth from this fraction of the time on


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    """common, own, concentration: of `TwoOutputs`. starts: standard deviations of the scores that
    the decoder starts with. ratios: eta_Y/eta_Z, from 0. time: of the flow, at eta_Z = 1."""

    common: int
    own: int
    concentration: float
    starts: tuple[float, ...]
    ratios: tuple[float, ...]
    time: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ratios[0] or list(self.ratios) != sorted(set(self.ratios)):
            raise InputError("ratios: expected rising numbers from 0, a decoder that stands still")


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Over (norm, start, ratio, seed): `right`, the share of the classes whose winner a rule names
    (rule); `alike`, whether both rules name one token (sequence_class); `top`, the largest
    attention (sequence_class); `cosine` of the growth of z with the max-margin programme of the
    winners, NaN where it has no solution."""
    return over_cells(partial(_cell, recipe), progress, norm=NORMS)


def _cell(recipe: Recipe, norm: Any, progress: Progress) -> xr.Dataset:
    task = TwoOutputs(recipe.common, recipe.own, recipe.concentration, recipe.starts)
    ratio = xr.DataArray(list(recipe.ratios), dims="ratio", coords={"ratio": list(recipe.ratios)})
    solver: Any = "implicit" if recipe.time > STIFF else "explicit"
    found = simulate(
        task,
        model=ScoreAttention(norm),
        motion=Flow(recipe.time, solver, rtol=1e-7, atol=1e-9),
        loss="logistic",
        learning_rate={"decoder": 2 * ratio, "attention": 1.0},
        seeds=recipe.seeds,
        record=Record(("attention", "parameters"), at=(0.0, GROWTH * recipe.time, recipe.time)),
        dtype="float64",
        progress=progress,
    ).rename(setting="start")
    drawn = xr.DataArray(task.drawn, dims=("sequence_class", "token"))
    sign = xr.DataArray([1.0, -1.0], dims="sequence_class")
    first, last = (found.isel(time=i, drop=True) for i in (0, -1))
    score = (sign * first["parameters.decoder"]).where(drawn, -np.inf).argmax("token")
    frequency = (
        first["attention"].where(distinct(drawn), -np.inf).argmax("token")
    )  # z = 0: attention is P
    winner = last["attention"].argmax("token")
    right = xr.concat([winner == score, winner == frequency], xr.Variable("rule", list(RULES)))
    z = found["parameters.attention"]
    grown = z.isel(time=-1, drop=True) - z.isel(time=1, drop=True)
    tokens = [np.flatnonzero(of).tolist() for of in task.drawn]
    cosine = xr.apply_ufunc(
        lambda w, of: _cosine(of, one_hot_margin(tokens, w, task.vocab_size)),
        winner,
        grown,
        input_core_dims=[["sequence_class"], ["token"]],
        vectorize=True,
    )
    kept = {
        "right": right.mean("sequence_class"),
        "alike": score == frequency,
        "top": last["attention"].max("token"),
        "cosine": cosine,
    }
    whole = xr.Dataset(kept).assign_coords(start=list(recipe.starts))
    return whole.transpose("start", "ratio", "seed", ...)


def _cosine(a: Any, b: Any) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def right(runs: xr.Dataset, rule: str) -> Estimate:
    """Return the share of classes whose winner the rule names, with its error over draws."""
    return jackknife(lambda kept: float(kept.mean()), runs["right"].sel(rule=rule))


def table(runs: xr.Dataset) -> Table:
    """One row for each norm, start and ratio."""
    rows, cells = [], []
    for norm, start, ratio in product(*(runs[dim].values for dim in ("norm", "start", "ratio"))):
        one = runs.sel(norm=norm, start=start, ratio=ratio)
        each = {rule: right(one, rule) for rule in RULES}
        top, cosine = float(one["top"].mean()), float(one["cosine"].median("seed"))
        values = {rule: of.value for rule, of in each.items()}
        rows.append({"start": start, "ratio": ratio, **values, "top": top, "cosine": cosine})
        shown = [f"{of.value:.2f} ± {of.error:.2f}" for of in each.values()]
        cells.append([norm, f"{start:g}", f"{ratio:g}", *shown, f"{top:.2f}", f"{cosine:.4f}"])
    return TEXTS.table(rows, cells, seeds=runs.sizes["seed"])


def draw(runs: xr.Dataset) -> Figure:
    """Draw how often each rule names the winner against the ratio, a panel for each start."""
    places = np.arange(runs.sizes["ratio"])
    looks = {"score": (style.DISTINCT, "o"), "frequency": (style.ACCENT, "s")}
    with style.page(3.0) as figure:
        axes = figure.subplots(1, runs.sizes["start"], sharey=True, squeeze=False)[0]
        for ax, start in zip(axes, runs["start"].values, strict=True):
            for norm, dash in zip(NORMS, ("-", ":"), strict=True):
                cell = runs.sel(norm=norm, start=start)
                for rule, (colour, mark) in looks.items():
                    each = [right(cell.isel(ratio=i), rule) for i in places]
                    label = f"{TEXTS.part(rule)}, {TEXTS.part(norm)}"
                    styles = {"color": colour, "linestyle": dash, "marker": mark, "label": label}
                    draw_estimates(ax, places, each, **styles)
            ax.axhline(float(runs["alike"].sel(start=start).mean()), color="0.6", linewidth=0.8)
            ax.set_xticks(places, [f"{ratio:g}" for ratio in runs["ratio"].values])
            ax.set(xlabel=r"$\eta_Y/\eta_Z$ (0: fixed decoder)", ylim=(0, 1.05))
        axes[0].set_ylabel("share of the winners it names")
        style.panel_titles(axes, [TEXTS.part("start", start=of) for of in runs["start"].values])
        style.legend_above(figure, axes[0], ncols=2, title=TEXTS.legend)
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """Judge which rule names the winner, with a fixed and with a trained decoder."""
    starts = {"small": float(runs["start"].min()), "large": float(runs["start"].max())}
    cells = product(NORMS, {"fixed": 0, "fast": -1}.items(), starts.items(), RULES)
    found: dict[str, Any] = {
        f"{rule}_{norm}_{where}_{size}": right(runs.sel(norm=norm, start=start).isel(ratio=i), rule)
        for norm, (where, i), (size, start), rule in cells
    }
    fixed = runs["cosine"].sel(norm="none", start=starts["large"]).isel(ratio=0)
    found["aligned"] = share((fixed > 1 - 1e-3).where(fixed.notnull()))
    alike = runs["alike"].isel(norm=0, start=0, ratio=0)
    found["alike"] = jackknife(lambda kept: float(kept.mean()), alike)
    score, fast = found["score_none_fixed_large"], found["frequency_none_fast_small"]
    both = score.value > MOST and fast.value > MOST
    return TEXTS.judgement(
        Standing.of(both, in_part=score.value > MOST or fast.value > MOST),
        found,
        ratio=float(runs["ratio"][-1]),
        **starts,
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw, table=table)
