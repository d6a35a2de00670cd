"""JoMA's Theorem 4, as we know it: salient components first, the others later, and entropy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, Table, Texts, over_cells
from attnlab.experiments.estimate import mean_and_range
from attnlab.files.progress import Progress
from attnlab.papers.joma import theory
from attnlab.plots import style

TEXTS = Texts.read(__file__)
FORMS = ("claimed", "drawn")
CLOSE = 0.05
EARLY = 0.5  # of mu: a component has been learnt half


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """components: of mu, drawn from U(low, high) and sorted. draws: of such a mu. v0: where all
    begin. rate, steps: of the picture, whose time is their product. sharpness: c of exp(c v^2) as
    claimed, and of softmax(c v^2) as drawn."""

    components: int
    low: float
    high: float
    v0: float
    rate: float
    steps: int
    sharpness: dict[str, float]
    draws: int
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """v, closeness ln(1/delta) and entropy of attention over (form, draw, time, component).

    late: closeness at a hundred times the picture's end. limit: the ratio of closeness to
    that of the component with the smallest mu. steps_error: what steps of the picture's rate give,
    against the flow at the end, over mu; infinite where steps do not stay finite.
    """
    rng = np.random.default_rng(0)
    mu = np.sort(rng.uniform(recipe.low, recipe.high, (recipe.draws, recipe.components)), axis=1)

    def one(form: str, draw: int, report: Progress) -> xr.Dataset:
        return _one(recipe, form, mu[draw])

    together = over_cells(one, progress, form=FORMS, draw=range(recipe.draws)).drop_vars("draw")
    return together.assign(mu=(("draw", "component"), mu)).assign_attrs(
        rate=recipe.rate, steps=recipe.steps, v0=recipe.v0
    )


def _one(recipe: Recipe, form: str, mu: Any) -> xr.Dataset:
    c, normalised = recipe.sharpness[form], form == "drawn"
    end = recipe.rate * recipe.steps
    times = np.append(0.0, np.geomspace(1e-4 * end, end, recipe.records - 1))
    flow = theory.salient_flow(
        mu, np.append(times, 100 * end), v0=recipe.v0, sharpness=c, normalised=normalised
    )
    v, closeness = flow.weights[:-1], flow.closeness[:-1]
    stepped = np.full(mu.shape, recipe.v0)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(recipe.steps):
            lift = c * stepped**2
            speed = scipy.special.softmax(lift) if normalised else np.exp(lift)
            stepped = stepped + recipe.rate * (mu - stepped) * speed
    error = abs(stepped - v[-1]) / mu
    return xr.Dataset(
        {
            "v": (("time", "component"), v),
            "closeness": (("time", "component"), closeness),
            "entropy": ("time", theory.salient_entropy(v, sharpness=c)),
            "last_entropy": float(theory.salient_entropy(mu, sharpness=c)),
            "late": ("component", flow.closeness[-1]),
            "limit": ("component", theory.salient_ratio(mu, mu[0], sharpness=c)),
            "steps_error": float(np.where(np.isfinite(error), error, np.inf).max()),
        },
        {"time": times, "component": np.arange(mu.size)},
    )


def draw(curves: xr.Dataset) -> Figure:
    """A row for each form: v over mu, and the entropy of attention with its limit."""
    with style.page(4.2) as figure:
        axes = figure.subplots(len(FORMS), 2, sharex="row")
        for row, form in zip(axes, FORMS, strict=True):
            of = curves.sel(form=form).isel(draw=0, time=slice(1, None))
            mu = of["mu"]
            row[0].set_prop_cycle(color=style.ordered(mu.size))
            row[0].plot(of["time"], of["v"] / mu, label=[rf"$\mu$ = {of:.2f}" for of in mu.values])
            row[1].plot(of["time"], of["entropy"], color=style.DISTINCT)
            row[1].axhline(float(of["last_entropy"]), color=style.OUTLINE, linestyle=":")
            for ax in row:
                ax.set_xscale("log")
        TEXTS.label(axes.ravel())
        style.legend_above(figure, axes[0][0], ncols=5)
    return figure


def table(curves: xr.Dataset) -> Table:
    """Ratios of ln(1/delta) to that of the smallest mu, of the draw that is shown."""
    of = curves.isel(draw=0)
    columns = {"mu": of["mu"].values.tolist()}
    for form in FORMS:
        one = of.sel(form=form)
        last, late = one["closeness"].isel(time=-1), one["late"]
        shown = {"end": last / last[0], "late": late / late[0], "limit": one["limit"]}
        columns |= {f"{form}_{name}": ratios.values.tolist() for name, ratios in shown.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return TEXTS.table(rows, [[f"{x:.4g}" for x in row.values()] for row in rows])


def judge(curves: xr.Dataset) -> Judgement:
    """Judge the order, the ratios against their limit, and the return of entropy."""
    half = (curves["v"] > EARLY * curves["mu"]).argmax("time")
    ordered = bool((half.diff("component") <= 0).all())
    entropy = curves["entropy"]
    lowest, last, limit = entropy.min("time"), entropy.isel(time=-1), curves["last_entropy"]
    back = (last - lowest) / (limit - lowest)
    end = curves["closeness"].isel(time=-1)
    off = abs(end / end.isel(component=0) / curves["limit"] - 1).max("component")
    later = abs(curves["late"] / curves["late"].isel(component=0) / curves["limit"] - 1)
    numbers: dict[str, Any] = {"salient_first": ordered}
    for form in FORMS:
        numbers |= {
            f"{form}_lowest_entropy": lowest.sel(form=form).mean(),
            f"{form}_last_entropy": last.sel(form=form).mean(),
            f"{form}_limit_entropy": limit.sel(form=form).mean(),
            **mean_and_range(f"{form}_entropy_back", back.sel(form=form)),
            **mean_and_range(f"{form}_ratio_error", off.sel(form=form)),
            f"{form}_late_ratio_error": later.sel(form=form).max(),
        }
    lost = ~np.isfinite(curves["steps_error"].sel(form="claimed"))

    right = (
        numbers["claimed_ratio_error_most"] < CLOSE
        and numbers["claimed_entropy_back_least"] > 1 - CLOSE
    )
    if ordered and right:
        same = numbers["drawn_ratio_error_most"] < CLOSE
        standing = Standing.HOLDS if same else Standing.CORRECTED
    else:
        standing = Standing.PARTLY if ordered else Standing.FAILS
    return TEXTS.judgement(
        standing,
        numbers,
        not_always="" if ordered else "not always ",
        draws=curves.sizes["draw"],
        components=curves.sizes["component"],
        rate=curves.attrs["rate"],
        time=curves.attrs["rate"] * curves.attrs["steps"],
        lost=int(lost.sum()),
        claimed_shown=float(last.sel(form="claimed")[0]),
        drawn_shown=float(last.sel(form="drawn")[0]),
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw, table=table)
