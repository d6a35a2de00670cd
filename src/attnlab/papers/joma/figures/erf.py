"""JoMA's erf law: while the gradient that arrives stays the same, exp attention lets weights grow
as an inverse error function, and to infinity in finite time."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, Texts
from attnlab.files.progress import Progress
from attnlab.papers.joma import theory
from attnlab.papers.joma.model import Joint
from attnlab.plots import style
from attnlab.simulation import Diverged, Flow, Record, Simulation, simulate
from attnlab.tasks.classes import classes_from

TEXTS = Texts.read(__file__)
CLOSE = 0.01
STATIONARY = Joint(None, "linear", "exp", scale=0.0, stationary=True)
BEYOND = 10.0  # times t*: how long training with cross entropy is watched


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """classes: with one query. records: up to `until`, as a fraction of the blow-up time."""

    classes: str
    until: float
    records: int


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return |v_l| over (loss, time over t*, token) of exp attention, and of the law.

    The gradient is held as the law asks, or that of cross entropy.

    share: erf(|v_l|/sqrt 2) / (sqrt(2/pi) |Delta_l| t), which the law has at 1. blow_up: where the
    flow ends, over t*. frozen: the law's |v_l| at t*. trained_weight, trained_loss: of cross
    entropy, also long after.
    """
    classes = classes_from(recipe.classes)
    tokens = classes.in_play
    Delta = theory.delta(classes)[0]
    size = np.linalg.norm(Delta, axis=0)
    end = theory.blow_up_time(Delta)
    times = end * np.concatenate([[0.0], np.linspace(0, recipe.until, recipe.records)[1:]])
    held = Simulation(
        classes,
        STATIONARY,
        motion=Flow(2 * end),
        record=Record("logits", at=[*times, 2 * end]),
        dtype="float64",
    )
    try:
        reached, run = np.inf, simulate(held, progress=False)
    except Diverged as problem:
        run = problem.dataset
        reached = float(run["diverged_step"].isel(seed=0))
    if progress:
        progress(0.5)
    later = np.geomspace(end, BEYOND * end, 20)[1:]
    trained = simulate(
        held,
        model=replace(STATIONARY, stationary=False),
        motion=Flow(BEYOND * end),
        record=Record(("logits", "loss"), at=[*times, *later]),
        progress=False,
    )
    runs = {"held": run, "cross entropy": trained}
    lengths = np.stack([_lengths(of, tokens)[: times.size] for of in runs.values()])
    law = np.linalg.norm(theory.erf_law(Delta, times).weights, axis=-2)
    straight = np.sqrt(2 / np.pi) * size * times[:, None]
    with np.errstate(invalid="ignore"):
        share = scipy.special.erf(lengths / np.sqrt(2)) / straight
    order = np.argsort(size)[::-1]
    return xr.Dataset(
        {
            "weight": (("loss", "time", "token"), lengths[..., order]),
            "share": (("loss", "time", "token"), share[..., order]),
            "law": (("time", "token"), law[:, order]),
            "delta": ("token", size[order]),
            "frozen": ("token", theory.frozen_weights(Delta)[order]),
            "blow_up": reached / end,
            "trained_loss": ("later", trained["loss"].isel(seed=0).values),
            "trained_weight": (("later", "token"), _lengths(trained, tokens)[:, order]),
        },
        {
            "loss": list(runs),
            "time": times / end,
            "token": tokens[order],
            "later": np.append(times, later) / end,
        },
        {"blow_up_time": end, "labels": len(Delta)},
    )


def _lengths(run: Any, tokens: Any) -> Any:
    """Return |v_l| over hidden units, (time, token)."""
    v = run["mlp_weights"].isel(seed=0).transpose("time", "unit", "token").values
    return np.linalg.norm(v[..., tokens], axis=1)


def draw(curves: xr.Dataset) -> Figure:
    """Draw (a) weights and the law, (b) the collapse, (c) the same with cross entropy."""
    time, tokens = curves["time"].values, curves.sizes["token"]
    shown = curves.isel(token=np.unique(np.linspace(0, tokens - 1, 6).astype(int)))
    held, every = shown.sel(loss="held"), max(time.size // 14, 1)
    labels = [f"{share:.2g}" for share in (shown["delta"] / curves["delta"][0]).values]
    dots = {"linestyle": "none", "marker": "o", "markersize": 2.5}
    top = 1.15 * float(curves["law"].isel(token=0, time=-1))
    with style.page(2.7) as figure:
        axes = figure.subplots(1, 3)
        for ax in axes:
            ax.set_prop_cycle(color=style.ordered(len(labels)))
        axes[0].plot(time, held["law"], alpha=0.5, linewidth=2.2)
        axes[0].plot(time, held["weight"], markevery=every, label=labels, **dots)
        axes[1].plot(time[1:], held["share"][1:] * held["time"][1:])
        axes[2].plot(shown["later"], shown["trained_weight"])
        axes[0].axvline(float(curves["blow_up"]), color=style.ACCENT, linewidth=1)
        axes[0].set_ylim(0, top)
        axes[1].plot(time, time, color=style.OUTLINE, linewidth=0.8, linestyle=":")
        axes[1].set_ylim(0, 1.02)
        axes[2].axvline(1, color=style.OUTLINE, linewidth=0.8, linestyle=":")
        TEXTS.label(axes)
        style.legend_above(figure, axes[0], title=TEXTS.legend)
    return figure


def judge(curves: xr.Dataset) -> Judgement:
    """Judge whether everything lies on one line, and whether the flow ends at t*."""
    off = abs(curves["share"].isel(time=slice(1, None)) - 1).max(["time", "token"])
    collapse, blow_up = float(off.sel(loss="held")), float(curves["blow_up"])
    # those that will not win stand near where they freeze while the winner runs away
    frozen = curves["frozen"].isel(token=slice(1, None))
    reached = curves["weight"].sel(loss="held").isel(time=-1, token=slice(1, None))
    last = float(curves["time"][-1])
    trained = {"winner": curves["trained_weight"].isel(token=0), "loss": curves["trained_loss"]}
    numbers = {
        "collapse_error": collapse,
        "blow_up_over_theory": blow_up,
        "blow_up_time": curves.attrs["blow_up_time"],
        "frozen_gap": abs(reached / frozen - 1).max(),
        "trained_collapse_error": off.sel(loss="cross entropy"),
    }
    for name, of in trained.items():
        numbers[f"trained_{name}_at_blow_up"] = of.sel(later=last)
        numbers[f"trained_{name}_at_the_end"] = of.isel(later=-1)
    as_said = collapse < CLOSE and abs(blow_up - 1) < CLOSE
    return TEXTS.judgement(
        Standing.HOLDS if as_said else Standing.FAILS,
        numbers,
        tokens=curves.sizes["token"],
        labels=curves.attrs["labels"],
        law=float(curves["law"].isel(token=0, time=-1)),
        last=last,
        last_time=last * curves.attrs["blow_up_time"],
        beyond=float(curves["later"][-1]),
        first=float(curves["trained_loss"][0]),
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw)
