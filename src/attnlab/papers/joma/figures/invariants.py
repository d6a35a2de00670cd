"""JoMA's invariants: attention logits as a function of the MLP, in correlation and in size.

Gradient flow keeps the invariants of exp and linear attention; steps do not. A step changes
1/2 sum_k v_k^2 by v . (change of v), which z follows, and by (change of v)^2/2, which it does not.
For exp attention the sum of the latter over steps is the whole error (1/T of it): small until the
end of the erf law, and larger than z after it.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, Table, Texts, over_cells
from attnlab.experiments.estimate import mean_and_range
from attnlab.files.progress import Progress
from attnlab.papers.joma import theory
from attnlab.papers.joma.invariants import by_invariant
from attnlab.papers.joma.model import Activation, Attention, Joint
from attnlab.papers.joma.predict import IN_SIZE
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.tasks.classes import SequenceClasses, classes_from

TEXTS = Texts.read(__file__)
ATTENTIONS, ACTIVATIONS = get_args(Attention), get_args(Activation)
FORMS = ("fixed", "moving")
PLAIN_EXP = {"attention": "exp", "activation": "linear", "form": "fixed"}
CLOSE = 0.05  # of how far z has moved: what steps may add to an invariant that the flow keeps
STRAIGHT = 0.95  # a correlation that a plot shows as a line
TOGETHER = 2  # programs that are compiled side by side


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """classes: the name of the toy, to which the number of queries and a seed are added. rate: of
    MLP and attention alike. early: a step at which b-bar has hardly moved. every: steps from record
    to record. seeds: draws of the toy's random frequencies, each with a start of its own."""

    classes: str
    queries: tuple[int, ...]
    temperature: float
    scale: float
    rate: float
    steps: int
    early: int
    every: int
    seeds: int

    def inputs(self) -> list[str]:
        """Digests of the toys."""
        return [of.digest for queries in self.queries for of in self.toys(queries)]

    def toys(self, queries: int) -> list[SequenceClasses]:
        """The draws of the toy with this number of queries."""
        names = (f"{self.classes}:queries={queries},seed={seed}" for seed in range(self.seeds))
        return [classes_from(name) for name in names]


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """correlation and error of each form over (queries, attention, activation, seed, step).

    form: "fixed" takes b-bar where it starts, as JoMA does (as we know it); "moving" takes it along
    (ours). They differ for softmax attention alone. error: the norm of the difference over that of
    how far z has moved, at each record. With several queries each is held against the invariant as
    if the MLP were its own; total_error: of the sum of z (of z^2, for linear attention) over
    queries, which the MLP gives for exp and linear attention however many share it. blow_up: the
    first step at which the erf law of a draw ends.
    """
    axes: Any = {"queries": recipe.queries, "attention": ATTENTIONS, "activation": ACTIVATIONS}
    with ThreadPoolExecutor(TOGETHER) as pool:  # most of the time is compiling
        running = {cell: pool.submit(_compared, recipe, *cell) for cell in product(*axes.values())}
        whole = over_cells(lambda *cell: running[cell[:-1]].result(), progress, **axes)
    rates = {"eta_w": recipe.rate, "eta_z": recipe.rate, "temperature": recipe.temperature}
    ends = [theory.blow_up_time(theory.delta(toy)[0], **rates) for toy in recipe.toys(1)]
    return whole.transpose("form", "seed", "step", *axes).assign_attrs(
        early=recipe.early, blow_up=min(ends)
    )


def _compared(
    recipe: Recipe, queries: int, attention: Attention, activation: Activation
) -> xr.Dataset:
    """Train one cell, and compare it with the invariant."""
    toys, T = recipe.toys(queries), recipe.temperature
    run = simulate(
        toys,
        model=Joint(None, activation, attention, recipe.temperature, scale=recipe.scale),
        gradient="population",
        eta_y=recipe.rate,
        eta_z=recipe.rate,
        steps=recipe.steps,
        momentum=0.0,
        init="uniform",
        independent=True,
        what="logits",
        every=recipe.every,
        progress=False,
    ).isel(seed=0)
    tokens = toys[0].in_play
    v = run["mlp_weights"].transpose("setting", "step", "unit", "token").values[..., tokens]
    z = run["attention_logits"].transpose("setting", "step", "query", "token").values[..., tokens]
    moved = (z - z[:, :1]).astype(np.float64)
    said = {form: np.empty_like(moved) for form in FORMS}
    for draw, toy in enumerate(toys):
        attended = theory.attend(toy, z[draw], attention=attention, temperature=T)
        b = theory.mean_attention(toy, attended)
        for form, m in product(FORMS, range(queries)):
            z0, moving = z[draw, 0, m], form == "moving"
            mean = b[:, m] if moving else b[0, m]
            found = by_invariant(attention, v[draw], mean, moving=moving, z0=z0, temperature=T)
            said[form][draw, :, m] = found - z0
    totals = [_total_error(attention, *of, T) for of in zip(v, z, strict=True)]
    dims = ("form", "seed", "step")
    far = np.linalg.norm(moved, axis=(2, 3))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = [np.linalg.norm(of - moved, axis=(2, 3)) / far for of in said.values()]
        straight = [_correlation(of, moved) for of in said.values()]
        size = [np.linalg.norm(of, axis=(2, 3)) / far for of in said.values()]
        return xr.Dataset(
            {
                "error": (dims, np.stack(error)),
                "correlation": (dims, np.stack(straight)),
                "size": (dims, np.stack(size)),
                "total_error": (("seed", "step"), np.stack(totals)),
                "moved": (("seed", "step"), far / np.sqrt(moved.shape[2] * moved.shape[3])),
            },
            {"form": list(FORMS), "seed": np.arange(recipe.seeds), "step": run["step"].values},
        )


def _total_error(attention: Attention, v: Any, z: Any, temperature: float) -> Any:
    """Return the error of the invariant of all queries together, over how far it has moved."""
    if attention == "softmax":
        return np.full(len(z), np.nan)
    if attention == "linear":
        found, said = (z**2).sum(axis=1), theory.linear_invariant(v, v0=v[0], z0=z[0])
    else:
        said = theory.exp_invariant(v, v0=v[0], z0=z[0], temperature=temperature)
        found = z.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):  # nothing has moved at the start
        off, far = (np.linalg.norm(of, axis=1) for of in (said - found, found - found[0]))
        return off / far


def _correlation(said: Any, moved: Any) -> Any:
    """Over queries and tokens, at each record."""
    a, b = (of.reshape(*of.shape[:2], -1) for of in (said, moved))
    a, b = a - a.mean(-1, keepdims=True), b - b.mean(-1, keepdims=True)
    return (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))


def draw(runs: xr.Dataset) -> Figure:
    """A row for each number of queries, a column for each attention: the error over steps."""
    shown = runs["error"].mean("seed").isel(step=slice(1, None))
    rows = runs["queries"].values
    colours = (style.DISTINCT, style.COMMON, style.GREEN)
    with style.page(0.5 + 1.9 * rows.size) as figure:
        axes = figure.subplots(rows.size, len(ATTENTIONS), sharex=True, sharey=True, squeeze=False)
        for (i, queries), (j, attention) in product(enumerate(rows), enumerate(ATTENTIONS)):
            ax = axes[i][j]
            for activation, colour in zip(ACTIVATIONS, colours, strict=True):
                cell = shown.sel(queries=queries, attention=attention, activation=activation)
                steps, fixed, moving = cell["step"], cell.sel(form="fixed"), cell.sel(form="moving")
                ax.plot(steps, fixed, color=colour, label=activation)
                if attention == "softmax":
                    styles = {"linestyle": style.DASHES[1], "label": f"{activation}, moving mean"}
                    ax.plot(steps, moving, color=colour, **styles)
            ax.set_yscale("log")
            ax.axhline(1, color=style.OUTLINE, linewidth=0.7, linestyle=":")
            noun = "query" if queries == 1 else "queries"
            ax.set_title(f"{attention}, {queries} {noun}", loc="left")
            ax.set_ylabel("error of $z$ / its change" if j == 0 else "")
            ax.set_xlabel("step" if i == rows.size - 1 else "")
        style.legend_above(figure, axes[0][0], ncols=3)
    return figure


def table(runs: xr.Dataset) -> Table:
    """Every cell at the last step: correlation, error and its range, and size."""
    last = runs.isel(step=-1)
    worst = runs["error"].isel(step=slice(1, None)).mean("seed").max("step")
    rows, cells = [], []
    for queries, attention, activation in product(runs["queries"].values, ATTENTIONS, ACTIVATIONS):
        for form in runs["form"].values[: 2 if attention == "softmax" else 1]:
            where = dict(queries=queries, attention=attention, activation=activation, form=form)
            of = last.sel(where)
            numbers = {
                "correlation": float(of["correlation"].mean()),
                **mean_and_range("error", of["error"]),
                "largest_error": float(worst.sel(where)),
                "size": float(of["size"].mean()),
            }
            named = {"softmax": f"softmax, {form}"}.get(attention, attention)
            cells.append([str(queries), named, activation, *(f"{x:.3g}" for x in numbers.values())])
            rows.append(
                {
                    "queries": float(queries),
                    "attention": float(ATTENTIONS.index(attention)),
                    "activation": float(ACTIVATIONS.index(activation)),
                    "moving": float(form == "moving"),
                    **numbers,
                }
            )
    plain_exp = last["error"].isel(queries=0).sel(PLAIN_EXP)
    return TEXTS.table(
        rows,
        cells,
        seeds=runs.sizes["seed"],
        reason=_reason(runs, float(plain_exp.mean())),
        attentions=", ".join(ATTENTIONS),
        activations=", ".join(ACTIVATIONS),
    )


def _reason(runs: xr.Dataset, error: float) -> str:
    """Why exp attention ends far from an invariant that its flow keeps."""
    return TEXTS.part("reason", error=error, blow_up=runs.attrs["blow_up"])


def judge(runs: xr.Dataset) -> Judgement:
    """Judge whether z is what the MLP predicts, in correlation and in size, on every draw."""
    means = runs.mean("seed")
    early, last = means.sel(step=runs.attrs["early"]), means.isel(step=-1)

    def worst(at: xr.Dataset, attention: str, form: str = "fixed") -> float:
        return float(at["error"].sel(attention=attention, form=form).max())

    paper = runs.isel(step=-1, queries=0).sel(attention="softmax", activation="linear")
    several = last.isel(queries=-1).sel(form="fixed")
    one, one_early = last.isel(queries=0), early.isel(queries=0)
    exact = max(worst(one_early, "exp"), worst(one_early, "linear"))
    numbers = {
        "exact_early_error": exact,
        "linear_error": worst(one, "linear"),
        "exp_error": worst(one, "exp"),
        "fixed_early_error": worst(one_early, "softmax"),
        "moving_early_error": worst(one_early, "softmax", "moving"),
        "nonlinear_moving_error": worst(one, "softmax", "moving"),
        "shared_total_early_error": float(early["total_error"].isel(queries=-1).max()),
        "shared_error": float(several["error"].min()),
        "shared_correlation": float(several["correlation"].max()),
    }
    for form in runs["form"].values:
        for what in ("correlation", "error"):
            numbers |= mean_and_range(f"{form}_{what}", paper[what].sel(form=form))
        numbers[f"{form}_in_size"] = float((paper["error"].sel(form=form) <= IN_SIZE).sum())
    straight = numbers["fixed_correlation_least"] >= STRAIGHT
    sized, mended = (numbers[f"{form}_error_most"] <= IN_SIZE for form in ("fixed", "moving"))
    kept = numbers["exact_early_error"] <= CLOSE
    standing = Standing.PARTLY if kept else Standing.FAILS
    if kept and straight and (sized or mended):
        standing = Standing.HOLDS if sized else Standing.CORRECTED
    return TEXTS.judgement(
        standing,
        numbers,
        draws=runs.sizes["seed"],
        step=runs.attrs["early"],
        end=int(runs["step"][-1]),
        queries=int(runs["queries"][-1]),
        in_size=IN_SIZE,
        reason=_reason(runs, float(one["error"].sel(PLAIN_EXP))),
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw, table=table)
