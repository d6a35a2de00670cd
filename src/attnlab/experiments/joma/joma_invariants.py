"""JoMA's invariants: attention logits as a function of the MLP, in correlation and in size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.data import classes_from
from attnlab.dynamics import Joint, Limit, Optimizer, Save, Simulation, simulate
from attnlab.dynamics.models.joint import Activation, Attention
from attnlab.experiments.base import Experiment, Judgement, Standing, Table
from attnlab.experiments.recipe import ExperimentRecipe
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.theory import (
    attend,
    exp_invariant,
    linear_invariant,
    mean_attention,
    mixture,
    moving_invariant,
    softmax_invariant,
)

CELL = ("queries", "attention", "activation")
ATTENTIONS, ACTIVATIONS = get_args(Attention), get_args(Activation)
CLOSE = 0.05  # of the size of what z has moved: the invariant gives it
STRAIGHT = 0.95  # a correlation that a plot shows as a line
TOGETHER = 2  # programs that are compiled side by side


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """classes: the name of the toy, to which the number of queries is added. rate: of MLP and
    attention alike. early: a step at which attention has not snapped yet. every: steps from record
    to record."""

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
        return [classes_from(self.toy(queries)).digest for queries in self.queries]

    def toy(self, queries: int) -> str:
        """The classes with so many queries."""
        return f"{self.classes}:queries={queries}"

    def with_seeds(self, seeds: int) -> Recipe:
        """The same with another number of seeds."""
        return replace(self, seeds=seeds)


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """correlation and error of each form over (queries, attention, activation, seed, step).

    form: "printed" takes b-bar where it starts, "moving" takes it along; they differ for softmax
    attention alone. error: the norm of the difference over that of how far z has moved, at each
    record. With several queries each is held against the invariant as if the MLP were its own;
    total_error: of the sum of z (of z^2, for linear attention) over queries, which the MLP gives
    for exp and linear attention however many share it.
    """
    cells = list(product(recipe.queries, ATTENTIONS, ACTIVATIONS))
    done = []

    def one(cell: tuple[int, Attention, Activation]) -> xr.Dataset:
        found = _compared(recipe, *cell)
        done.append(cell)
        if progress:
            progress(len(done) / len(cells))
        return found

    with ThreadPoolExecutor(TOGETHER) as pool:  # most of the time is compiling
        found = list(pool.map(one, cells))
    whole = xr.concat(found, "cell").assign_coords(
        {name: ("cell", [cell[i] for cell in cells]) for i, name in enumerate(CELL)}
    )
    return whole.set_index(cell=list(CELL)).unstack("cell").reindex(
        queries=list(recipe.queries), attention=list(ATTENTIONS), activation=list(ACTIVATIONS)
    ).assign_attrs(early=recipe.early)  # fmt: skip


def _compared(
    recipe: Recipe, queries: int, attention: Attention, activation: Activation
) -> xr.Dataset:
    """One cell: trained, and held against the invariant."""
    simulation = Simulation(
        recipe.toy(queries), Limit(), init="uniform", optimizer=Optimizer(momentum=0.0),
        model=Joint(None, activation, attention, recipe.temperature, scale=recipe.scale),
        eta_y=recipe.rate, eta_z=recipe.rate, steps=recipe.steps, seeds=recipe.seeds,
        save=Save("logits", every=recipe.every),
    )  # fmt: skip
    run = simulate(simulation, progress=False)
    tokens = simulation.sets[0].in_play
    v = run["mlp_weights"].transpose("seed", "step", "unit", "token").values[..., tokens]
    z = run["attention_logits"].transpose("seed", "step", "query", "token").values[..., tokens]
    mixed = mixture(simulation.sets[0])
    b = mean_attention(mixed, attend(mixed, z, attention=attention, temperature=recipe.temperature))
    moved = (z - z[:, :1]).astype(np.float64)
    forms = {"printed": np.empty_like(moved), "moving": np.empty_like(moved)}
    for seed, m in np.ndindex(len(z), queries):
        of: dict[str, Any] = {"z0": z[seed, 0, m]}
        said = {name: _predicted(attention, name, v[seed], b[seed, :, m], of, recipe.temperature)
                for name in forms}  # fmt: skip
        for name, values in said.items():
            forms[name][seed, :, m] = values - z[seed, 0, m]
    totals = np.stack([_total_error(attention, *run, recipe.temperature)
                       for run in zip(v, z, strict=True)])  # fmt: skip
    dims = ("form", "seed", "step")
    gap = np.stack([np.linalg.norm(said - moved, axis=(2, 3)) for said in forms.values()])
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.stack([np.linalg.norm(said, axis=(2, 3)) for said in forms.values()])
        far = np.linalg.norm(moved, axis=(2, 3))
        straight = np.stack([_correlation(said, moved) for said in forms.values()])
        return xr.Dataset(
            {
                "error": (dims, gap / far),
                "correlation": (dims, straight),
                "size": (dims, size / far),
                "total_error": (("seed", "step"), totals),
                "moved": (("seed", "step"), far / np.sqrt(moved.shape[2] * moved.shape[3])),
            },
            {"form": list(forms), "seed": run["seed"].values, "step": run["step"].values},
        )


def _predicted(
    attention: Attention, form: str, v: Any, b: Any, of: dict[str, Any], temperature: float
) -> Any:
    """z by the invariant, (step, token)."""
    if attention == "linear":
        squares = linear_invariant(v, v0=v[0], **of)
        return np.sign(of["z0"]) * np.sqrt(np.maximum(squares, 0.0))
    if attention == "exp":
        return exp_invariant(v, v0=v[0], temperature=temperature, **of)
    if form == "moving":
        return moving_invariant(v, b, temperature=temperature, **of)
    return softmax_invariant(v, b[0], v0=v[0], temperature=temperature, **of)


def _total_error(attention: Attention, v: Any, z: Any, temperature: float) -> Any:
    """Of what the invariant gives for all queries together, over how far that has moved."""
    if attention == "softmax":
        return np.full(len(z), np.nan)
    if attention == "linear":
        found, said = (z**2).sum(axis=1), linear_invariant(v, v0=v[0], z0=z[0])
    else:
        said = exp_invariant(v, v0=v[0], z0=z[0], temperature=temperature)
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
                ax.plot(cell["step"], cell.sel(form="printed"), color=colour, label=activation)
                if attention == "softmax":
                    ax.plot(
                        cell["step"], cell.sel(form="moving"), color=colour,
                        linestyle=style.DASHES[1], label=f"{activation}, moving mean",
                    )  # fmt: skip
            ax.set_yscale("log")
            ax.axhline(1, color=style.OUTLINE, linewidth=0.7, linestyle=":")
            noun = "query" if queries == 1 else "queries"
            ax.set_title(f"{attention}, {queries} {noun}", loc="left")
            if j == 0:
                ax.set_ylabel("error of $z$ / its change")
            if i == rows.size - 1:
                ax.set_xlabel("step")
        style.legend_above(figure, axes[0][0], ncols=3)
    return figure


def table(runs: xr.Dataset) -> Table:
    """Every cell at the last step: correlation, error and size."""
    last = runs.isel(step=-1).mean("seed")
    worst = runs["error"].isel(step=slice(1, None)).mean("seed").max("step")
    rows, cells = [], [["queries", "attention", "activation", "correlation", "error at the end",
                        "largest on the way", "size over that of z"]]  # fmt: skip
    for queries, attention, activation in product(runs["queries"].values, ATTENTIONS, ACTIVATIONS):
        for form in runs["form"].values[: 2 if attention == "softmax" else 1]:
            where = {"queries": queries, "attention": attention, "activation": activation,
                     "form": form}  # fmt: skip
            of = last.sel(where)
            numbers = [float(of["correlation"]), float(of["error"]), float(worst.sel(where)),
                       float(of["size"])]  # fmt: skip
            named = {"softmax": f"softmax, {form}"}.get(attention, attention)
            cells.append([str(queries), named, activation, *(f"{x:.3g}" for x in numbers)])
            rows.append({
                "queries": float(queries), "attention": float(ATTENTIONS.index(attention)),
                "activation": float(ACTIVATIONS.index(activation)),
                "moving": float(form == "moving"),
                **dict(zip(("correlation", "error", "largest_error", "size"), numbers,
                           strict=True)),
            })  # fmt: skip
    return Table(
        rows,
        f"z as its invariant gives it, against z: Pearson's correlation over tokens, the norm of "
        f"the difference over that of the change of z at the end and at worst, and the predicted "
        f"change over the real one; means over {runs.sizes['seed']} seeds. For softmax attention, "
        f"with the mean attention of the start (printed) and of the moment (moving). In table.csv "
        f"attention and activation are numbers: {', '.join(ATTENTIONS)}; {', '.join(ACTIVATIONS)}.",
        cells,
    )


def judge(runs: xr.Dataset) -> Judgement:
    """Is z what the MLP says, in correlation and in size?"""
    means = runs.mean("seed")
    early, last = means.sel(step=runs.attrs["early"]), means.isel(step=-1)

    def worst(at: xr.Dataset, attention: str, form: str = "printed") -> float:
        return float(at["error"].sel(attention=attention, form=form).max())

    paper = last.isel(queries=0).sel(attention="softmax", activation="linear")
    several = last.isel(queries=-1).sel(form="printed")
    one, one_early = last.isel(queries=0), early.isel(queries=0)
    exact = max(worst(one_early, "exp"), worst(one_early, "linear"))
    numbers = {
        "exact_early_error": exact,
        "linear_error": worst(one, "linear"),
        "exp_error": worst(one, "exp"),
        "printed_early_error": worst(one_early, "softmax"),
        "moving_early_error": worst(one_early, "softmax", "moving"),
        "printed_correlation": float(paper["correlation"].sel(form="printed")),
        "printed_error": float(paper["error"].sel(form="printed")),
        "moving_correlation": float(paper["correlation"].sel(form="moving")),
        "moving_error": float(paper["error"].sel(form="moving")),
        "nonlinear_moving_error": worst(one, "softmax", "moving"),
        "shared_total_early_error": float(early["total_error"].isel(queries=-1).max()),
        "shared_error": float(several["error"].min()),
        "shared_correlation": float(several["correlation"].max()),
    }
    straight = numbers["printed_correlation"] >= STRAIGHT
    sized = numbers["printed_error"] <= CLOSE
    mended = numbers["moving_error"] <= CLOSE
    kept = numbers["exact_early_error"] <= CLOSE
    step, end, queries = runs.attrs["early"], int(runs["step"][-1]), int(runs["queries"][-1])
    headline = (
        f"For softmax attention the correlation is {numbers['printed_correlation']:.3f} as "
        f"printed, but z is off by {numbers['printed_error']:.2g} times its change; with the mean "
        f"attention of the moment by {numbers['moving_error']:.2g}. For exp and linear attention z "
        f"is what the MLP says to {100 * exact:.1g} % at step {step}."
    )
    summary = (
        f"{headline} At step {end:,} the error is {100 * numbers['linear_error']:.1g} % of what z "
        f"has moved for linear attention, but up to {100 * numbers['exp_error']:.0f} % for exp: "
        f"near the blow-up of the erf law attention is so large that steps of this rate no longer "
        f"follow the flow, and each adds (change of v)^2 to the square of v and nothing to z. For "
        f"softmax attention at step {step} the printed form is off by "
        f"{100 * numbers['printed_early_error']:.2g} % at worst and the moving one by "
        f"{100 * numbers['moving_early_error']:.2g} %; at the end the moving one by up to "
        f"{100 * numbers['nonlinear_moving_error']:.0f} % with ReLU or GELU. With {queries} "
        f"queries that share the MLP, which the paper does not cover, no query by itself follows "
        f"the invariant of one: the error is at least {numbers['shared_error']:.1f} times the "
        f"change of z and no correlation above {numbers['shared_correlation']:.2f}; what survives "
        f"is the sum of z (exp) or of z^2 (linear) over queries, to "
        f"{100 * numbers['shared_total_early_error']:.1g} % at step {step}."
    )
    alt = (
        f"The error of z by its invariant over the change of z, against the step, for three "
        f"attentions and two numbers of queries. With one query it is small for linear attention "
        f"throughout and for exp until it jumps above 1; for softmax the printed form grows to "
        f"{numbers['printed_error']:.1f}, the moving one to {numbers['moving_error']:.2f}. With "
        f"{queries} queries it is above 1 everywhere."
    )
    if kept and straight and sized:
        standing = Standing.HOLDS
    elif kept and straight and mended:
        standing = Standing.CORRECTED
    else:
        standing = Standing.PARTLY if kept else Standing.FAILS
    return Judgement(standing, headline, summary, alt, numbers)


EXPERIMENT = Experiment(
    name="joma_invariants", kind="figure", title="Attention logits as a function of the MLP",
    recipe=Recipe, data=data, judge=judge, draw=draw, table=table, source="JoMA",
)  # fmt: skip
