"""Numbers of runs from many starts, on file: about five minutes of one core.

    python -m attnlab.papers.linear_icl.evidence four

trains the run again and writes `evidence/four.csv`. Files keep what claims read of each start.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab import predict
from attnlab.experiments import Evidence
from attnlab.simulation import Simulation

from . import theory
from .learner import SampleRegression
from .measures import dwell, purity
from .model import LinearAttention
from .runs import (
    crossed,
    descent,
    flow,
    geometric,
    gone,
    proportional,
    side_by_side,
    starts_of,
    weights_of,
)
from .task import InContextRegression

PUBLISHED = InContextRegression()
WHITE = InContextRegression((0.25,) * 4)
EIGHT = proportional(np.arange(8.0, 0.0, -1.0))
TINY = 1e-6 * np.sqrt(31)  # the published start of merged attention, in our units
SPECTRA = {
    "white": WHITE,
    "4:3:2:1": PUBLISHED,
    "1/d^2, D = 4": proportional(np.arange(1.0, 5.0) ** -2),
    "1/d^2, D = 8": proportional(np.arange(1.0, 9.0) ** -2),
}
FOUR = tuple(list(SPECTRA)[:3])  # those in four dimensions
LARGER = 1e-3  # a start with a shorter wait
SIZES = (1250, 5000, 20000)  # sequences in the training set; 5000 as published
FRESH = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # shares of sequences with a task of their own
SHARES = {"t50": 0.5, "t90": 0.9, "t99": 0.99}  # of the loss that can be lost
RANKS = (2, 4, 8)
HEADS = (1, 2, 3, 4, 5)
CLOSE = 0.004  # of a level
LEARNED = 0.7  # an in-weight loss below: at the start it is 1
MERGED_LEVELS = ("icl-one-head", "icl-population")


# Runs


def staircases(
    std: float = 0.01,
    last: float = 1e5,
    seeds: int = 20,
    heads: int = 5,
    *,
    task: InContextRegression = PUBLISHED,
    rank: int = 1,
    records: int = 1000,
) -> Simulation:
    """Return the flow of separate key and query."""
    at = geometric(last / 2000, last, records)
    return flow(task, LinearAttention(heads, rank, std), at, seeds=seeds)


eight = partial(staircases, seeds=10, heads=9, task=EIGHT, records=500)


def drops(*spectra: str, std: float = TINY, last: float = 2500.0, seeds: int = 10) -> Simulation:
    """Return the flow of merged attention with its tail, for these spectra at once."""
    at = geometric(10.0, last, 300)
    return flow([SPECTRA[of] for of in spectra], LinearAttention(8, std=std), at, seeds=seeds)


def merged(*sizes: int, partner: bool = False) -> Simulation:
    """Return the published run of merged attention on training sets of these sizes."""
    tasks = [replace(PUBLISHED, sequences=P) for P in sizes]
    return descent(tasks, std=1e-6, rate=1e-3, steps=6001, every=20, seeds=4, partner=partner)


def mixtures() -> Simulation:
    """Return the published run on mixtures, white inputs; to step 5001, as far as it is drawn."""
    tasks = [replace(WHITE, fresh=share) for share in FRESH]
    return descent(tasks, std=1e-6, rate=5e-4, steps=5001, every=20, seeds=3)


# What is kept of them


def passage(run: xr.Dataset) -> xr.Dataset:
    """Return how in-weight learning comes and goes.

    least, end: the in-weight loss, and gap, by how much its end differs from its start. training:
    the training loss at the end. in_weight, in_context: the first record at which each loss is
    below 0.7.
    """
    losses = {name: run[f"{name}_loss"] for name in ("in_weight", "in_context")}
    own = losses["in_weight"]
    end = own.isel(step=-1, drop=True)
    return xr.Dataset(
        {
            "least": own.min("step"),
            "end": end,
            "gap": abs(end - own.isel(step=0, drop=True)),
            "training": run["loss"].isel(step=-1, drop=True),
            **{name: (of < LEARNED).argmax("step") for name, of in losses.items()},
        }
    )


def missed(run: Simulation, learned: xr.DataArray, level: str) -> xr.DataArray:
    """Return the mean error of what a theory says is learned, over that of "nothing moves"."""
    over = [run.clock, "component"]
    still = abs(learned - learned.isel({run.clock: 0})).mean(over)
    return abs(predict(run, theory=level)["learned"] - learned).mean(over) / still


def errors(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return the errors of theories of separate attention."""
    levels = ("icl-staircase", "icl-population")
    return xr.Dataset({level: missed(run, result["learned"], level) for level in levels})


def of_sets(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return what gradient descent does, along training sets and starts.

    half, held: the step at which half of the drop is over, with label blocks free and held at 0.
    apart: the largest difference of the two losses. leak: the longest vector in the free blocks at
    the end. gap: of A there, from the optimum, over the root of the product of the two entries on
    its diagonal; diagonal: of its diagonal alone. off: the largest entry off the diagonal. start:
    the growing part. The last two: errors of theories (`missed`).
    """
    result = side_by_side(result)
    one, free = PUBLISHED.regression, result.sel(blocks=True, drop=True)
    best = xr.DataArray(theory.optimum(one), dims=("context_input", "query_input"))
    entries = list(best.dims)
    end = free["matrix"].isel(step=-1, drop=True)
    gap = abs(end - best) / np.sqrt(np.outer(np.diag(best), np.diag(best)))
    alone = replace(run, task=replace(run.task, tasks=run.task.tasks[:1]))
    near = {level: missed(alone, result["learned"], level) for level in MERGED_LEVELS}
    return xr.Dataset(
        {
            "half": crossed(gone(free)),
            "held": crossed(gone(result.sel(blocks=False, drop=True))),
            "apart": abs(result["loss"].diff("blocks")).max(["blocks", "step"]),
            "leak": free["leak"].isel(step=-1, drop=True),
            "gap": gap.max(entries),
            "diagonal": gap.where(best > 0).max(entries),
            "off": abs(end).where(best == 0).max(entries),
            "start": (("seed", "setting"), theory.growing_start(one, starts_of(free))),
            **{level: of.sel(blocks=True, drop=True) for level, of in near.items()},
        }
    )


def of_drops(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return when 50, 90 and 99 % of the loss are gone, along spectra and starts.

    off: the largest distance of what is learned from one head along Lambda^2. end: that of A from
    the optimum at the end.
    """
    wide, kept = side_by_side(result), []
    for i, task in enumerate(run.task.tasks):
        one, of = task.regression, wide.isel(setting=i)
        norms = theory.growing_start(one, starts_of(of))
        curves = [theory.one_head_curve(one, of["time"].values, norm=c) for c in norms]
        off = of["learned"].transpose("seed", "time", "component") - one.gamma * np.array(curves)
        end = of["matrix"].isel(time=-1, drop=True).transpose("seed", ...) - theory.optimum(one)
        times = {name: crossed(gone(of), share) for name, share in SHARES.items()}
        distances = {"off": abs(off).max(off.dims[1:]), "end": abs(end).max(end.dims[1:])}
        kept.append(xr.Dataset(times | distances))
    return xr.concat(kept, "setting")


def of_staircases(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return what separate attention does, along starts and components.

    half: when half of the component is learned. on, between: log time within 0.004 of the level
    with it, and half way to that. near: within a tenth of the gap. purity: of its key. above: the
    loss at the end, over the level of as many components as there are heads.
    """
    (task,) = run.task.tasks
    levels, dims = theory.plateau_losses(task.regression), ("seed", "component")
    return xr.Dataset(
        {
            "half": crossed(result["learned"]),
            "on": (dims, rests(result, levels[1:], CLOSE)),
            "between": (dims, rests(result, (levels[1:] + levels[:-1]) / 2, CLOSE)),
            "near": (dims, rests(result, *plateaus(task.regression))),
            "purity": (dims, winners(result)),
            "above": result["loss"].isel(time=-1, drop=True)
            - levels[: run.task.model.heads + 1][-1],
        }
    )


def rests(run: xr.Dataset, levels: ArrayLike, within: ArrayLike) -> NDArray[np.float64]:
    """Return the log time that the loss of each seed spends near levels, (seed, level)."""
    t = np.log(run["time"].values[1:])
    losses = run["loss"].transpose("seed", "time").values[:, 1:]
    return np.array([dwell(t, loss, levels, within=within) for loss in losses])


def plateaus(one: theory.Regression) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the losses of the plateaus and of the end, and a tenth of the gap to the nearest."""
    levels = theory.plateau_losses(one)
    gaps = -np.diff(levels)
    return levels[1:], np.minimum(gaps, np.append(gaps[1:], np.inf)) / 10


def winners(found: xr.Dataset) -> NDArray[np.float64]:
    """Return the purity of the keys that learn each component at the end, (seed, component)."""
    v, k, q = (weights_of(found, name)[:, -1] for name in ("value", "key", "query"))
    share = np.abs(v[:, :, None] * k[:, :, 0] * q[:, :, 0]).argmax(1)
    return purity(np.take_along_axis(k[:, :, 0], share[..., None], 1))


def measured(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return what is kept of a run."""
    if isinstance(run.task, SampleRegression):
        return of_sets(run, result) if "blocks" in result.dims else passage(result)
    return (of_staircases if run.task.model.rank else of_drops)(run, result)


EVIDENCE = Evidence(
    __file__,
    {
        "four": staircases,
        "four-large": partial(staircases, 0.3, 2e4),
        "four-small": partial(staircases, 0.001, 1e5, 10),
        "eight": partial(eight, 0.005, 1e5),
        "eight-small": partial(eight, 2e-4, 5e5, records=5000),
        **{f"rank-{R}": partial(eight, 0.005, 5e4, rank=R, seeds=4) for R in RANKS},
        **{f"heads-{H}": partial(staircases, 0.03, 1e5, 5, H) for H in HEADS},
        "drops": partial(drops, *FOUR),
        "drops-larger": partial(drops, *FOUR, std=LARGER),
        "drops-eight": partial(drops, "1/d^2, D = 8", std=LARGER, last=2e4),
        "far": partial(drops, "4:3:2:1", std=0.5, seeds=40),
        "sets": partial(merged, *SIZES, partner=True),
        "mixtures": mixtures,
    },
    measured,
)

THEORIES = Evidence(__file__, {"theories": partial(staircases, seeds=2)}, errors)

if __name__ == "__main__":
    for name in sys.argv[1:] or (*EVIDENCE.runs, *THEORIES.runs):
        (THEORIES if name in THEORIES.runs else EVIDENCE).write(name)
