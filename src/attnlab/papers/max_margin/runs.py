"""Runs of the claims and figures, and what their weights are compared with."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.auditing.runs import trained_run
from attnlab.experiments import mean
from attnlab.simulation import Population, Record, Simulation, Steps
from attnlab.theory.facts import facts_of

from . import theory
from .model import CrossAttention, normalised, released_factors
from .task import TokenSelection

ETA = 0.1  # of normalised steps, in the released code
PUBLISHED = TokenSelection(sequences=6, length=8, vocab_size=10)  # its local convergence
EXACT = CrossAttention(arithmetic="scaled")
FROM_ZERO = CrossAttention(scale=0, arithmetic="scaled")
SAME_RANK = 0.05  # of the largest singular value: those below are not counted in trained weights

Norm = Literal["frobenius", "nuclear"]


def descent(
    task: TokenSelection,
    model: CrossAttention = EXACT,
    *,
    at: tuple[int, ...],
    seeds: int | tuple[int, ...],
    optimizer: Any = normalised,
    rate: float = ETA,
) -> Simulation:
    """Return a run by steps of `optimizer`, normalised by default, recorded at the steps `at`."""
    return Simulation(
        task,
        model,
        motion=Steps(at[-1], optimizer=optimizer),
        gradient=Population(),
        learning_rate=rate,
        loss="logistic",
        seeds=seeds,
        record=Record(("loss", "attention", "log_attention", "matrix"), at=at),
        dtype="float64",
    )


def even_ratios(first: int, last: int, count: int) -> tuple[int, ...]:
    """Return at most `count` steps in even ratios."""
    return tuple(np.unique(np.geomspace(first, last, count).round().astype(int)).tolist())


@lru_cache(maxsize=64)
def instances(run: Simulation) -> tuple[dict[str, NDArray[Any]], ...]:
    """Return the tokens, queries and scores of each seed."""
    return tuple(facts.data for _, facts in sorted(dict(facts_of(run)).items()))


def late_training(run: Simulation) -> list[theory.Late]:
    """Return late training towards the tokens of highest score, by seed."""
    return [
        theory.late_training(of["x"], of["z"], of["scores"], of["scores"].argmax(-1))
        for of in instances(run)
    ]


def solution(
    instance: dict[str, NDArray[Any]], selected: NDArray[np.int64], norm: Norm = "frobenius"
) -> theory.Margin:
    """Return the programme's solution that selects these tokens of an instance."""
    programme = theory.max_margin if norm == "frobenius" else theory.nuclear_margin
    return programme(instance["x"], instance["z"], selected)


@lru_cache(maxsize=64)
def compared(run: Simulation, *, norm: Norm = "frobenius", best: bool = False) -> xr.Dataset:
    """Train a run and compare it with the programmes of the tokens that it selects at its end.

    best: compare with the programmes of the tokens of highest score.

    Returns
    -------
    xarray.Dataset
        correlation, error: of W's direction, over (seed, step). weight: of the token of largest
        weight, over (seed, step, sequence). others: the log of the largest other weight, over
        (seed, step). size: |W|. chosen, optimal: the token that is selected at the end, and whether
        its score is the highest, over (seed, sequence). feasible, local: whether the programme has
        a solution, and the selection is locally optimal. rank, solution_rank: of W at the end and
        of the solution. solution: the programme's W.
    """
    found = trained_run(run)
    logs, W = found["log_attention"], found["matrix"]
    selected = logs.argmax("token")
    chosen, made = selected.isel(step=-1), instances(run)
    scores = np.stack([of["scores"] for of in made])
    wanted = scores.argmax(-1) if best else chosen.values
    solved = [solution(of, token, norm) for of, token in zip(made, wanted, strict=True)]
    direction = np.stack([of.weights for of in solved])[:, None]
    local = [
        theory.locally_optimal(of, token, solution)
        for of, token, solution in zip(scores, wanted, solved, strict=True)
    ]
    over = ("seed", "step")
    return xr.Dataset(
        {
            "correlation": (over, theory.correlation(W.values, direction)),
            "error": (over, theory.direction_error(W.values, direction)),
            "weight": np.exp(logs.max("token")),
            "others": logs.where(logs["token"] != selected, -np.inf).max(["token", "sequence"]),
            "size": (over, np.linalg.norm(W.values, axis=(-2, -1))),
            "chosen": chosen,
            "optimal": (("seed", "sequence"), chosen.values == scores.argmax(-1)),
            "feasible": ("seed", [of.feasible for of in solved]),
            "local": ("seed", local),
            "rank": ("seed", [theory.rank(of, tolerance=SAME_RANK) for of in W.values[:, -1]]),
            "solution_rank": ("seed", [_rank(of) for of in solved]),
            "solution": (("seed", "key_dim", "query_dim"), direction[:, 0]),
        },
        {"seed": found["seed"], "step": found["step"]},
    )


def _rank(margin: theory.Margin) -> float:
    return theory.rank(margin.weights) if margin.feasible else np.nan


# The runs of claims

SEEDS = 100
SMALL = TokenSelection(sequences=4, length=5, vocab_size=8)
EVEN = TokenSelection(sequences=4, length=5, vocab_size=12, scores="equal")
LATE = (300, 1000, 1800, 3000, 5500, 10_000)


def local() -> Simulation:
    """The published setting of local convergence, from random starts."""
    return descent(PUBLISHED, at=(0, 80, 100, 200, 300, 500, 1000, 2000), seeds=SEEDS)


def factors() -> Simulation:
    """The same with K and Q trained by the released steps, which have a ridge."""
    model = CrossAttention(width=10)
    return descent(PUBLISHED, model, at=(80, 100, 1000, 2000), seeds=40, optimizer=released_factors)


def equal_scores() -> Simulation:
    """Equal scores from W = 0, far into late training."""
    return descent(EVEN, FROM_ZERO, at=LATE, seeds=20)


def wide(d: int, seeds: int) -> Simulation:
    """The small setting with vectors of width d, from W = 0."""
    return descent(replace(SMALL, vocab_size=d), FROM_ZERO, at=(2000,), seeds=seeds)


def exponents(error: xr.DataArray) -> xr.DataArray:
    """Return the exponent p of error ~ step^p, by seed."""
    each = error.transpose("step", "seed")
    return xr.DataArray(np.polyfit(np.log(each["step"]), np.log(each), 1)[0], dims="seed")


def over_steps(values: xr.DataArray) -> str:
    """Return means over seeds at each step, as a note lists them."""
    return ", ".join(f"{mean(values.sel(step=t))} at {t}" for t in values["step"].values)


def all_optimal(of: xr.Dataset) -> xr.DataArray:
    """Return whether every sequence selects its token of highest score, by seed."""
    return of["optimal"].all("sequence")


def kinds(run: Simulation) -> dict[str, xr.DataArray]:
    """Return which seeds end globally optimal, only locally, or neither."""
    of = compared(run)
    best, locally = all_optimal(of), of["local"]
    return {"global": best, "local": locally & ~best, "neither": ~locally & ~best}


def best_solutions(
    n: int, T: int, d: int, seeds: int, norm: Norm = "frobenius"
) -> list[theory.Margin]:
    """Return the programme's solutions for the tokens of highest score, by seed."""
    task = TokenSelection(sequences=n, length=T, vocab_size=d)
    made = instances(descent(task, FROM_ZERO, at=(1,), seeds=seeds))
    return [solution(of, of["scores"].argmax(-1), norm) for of in made]


@cache
def ranks(n: int, d: int, seeds: int) -> xr.Dataset:
    """Return ranks of both solutions for the best tokens, T = 5; NaN where there is none.

    pulling: the number of sequences that have a support vector. gap: of the nuclear certificate.
    """
    short, low = (best_solutions(n, 5, d, seeds, norm) for norm in get_args(Norm))
    pulling = [(of.dual > 0).any(-1).sum() if of.feasible else np.nan for of in short]
    columns = {
        "frobenius": map(_rank, short),
        "nuclear": map(_rank, low),
        "pulling": pulling,
        "gap": (of.gap for of in low),
    }
    return xr.Dataset({name: ("seed", list(of)) for name, of in columns.items()})
