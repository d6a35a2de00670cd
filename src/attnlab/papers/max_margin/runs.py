"""Runs of the claims and figures, and what their weights are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from attnlab.auditing.runs import trained_run
from attnlab.experiments import mean
from attnlab.formulas.checks import FloatArray
from attnlab.simulation import Population, Record, Simulation, Steps
from attnlab.theory.facts import facts_of

from . import theory
from .model import CrossAttention, normalised, released, released_factors
from .task import TokenSelection

ETA = 0.1  # of normalised steps, in the released code
PUBLISHED = TokenSelection(sequences=6, length=8, vocab_size=10)  # its local convergence
SMALL = TokenSelection(sequences=4, length=5, vocab_size=8)
EVEN = TokenSelection(sequences=4, length=5, vocab_size=12, scores="equal")
EXACT = CrossAttention(arithmetic="scaled")
FROM_ZERO = CrossAttention(scale=0, arithmetic="scaled")
USUAL = CrossAttention(arithmetic="usual")
SAME_RANK = 0.05  # of the largest singular value: those below are not counted in trained weights
LOST, KEPT = 1e-6, 1e-3  # the released filter of several tokens: no attention weight in between
HIDDEN = 4  # ReLUs of their head; the released number is not known to us
# W_fin + R W_mm, W_mm alone, the programme of one token
BY = ("both_parts", "margin_alone", "one_token")
PROGRAMMES = {"frobenius": theory.max_margin, "nuclear": theory.nuclear_margin}

Instance = Mapping[str, Any]  # arrays of `TokenSelection.instance`


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
        record=Record(("log_attention", "matrix"), at=at),
        dtype="float64",
    )


def even_ratios(first: int, last: int, count: int) -> tuple[int, ...]:
    """Return at most `count` steps in even ratios."""
    return tuple(np.unique(np.geomspace(first, last, count).round().astype(int)).tolist())


def factors(*, at: tuple[int, ...], seeds: int) -> Simulation:
    """Return a run of K and Q in the published setting, by released steps, which have a ridge."""
    model = CrossAttention(width=PUBLISHED.vocab_size)
    return descent(PUBLISHED, model, at=at, seeds=seeds, optimizer=released_factors)


def relus(d: int, *, at: tuple[int, ...], seeds: int) -> Simulation:
    """Return a run of a ReLU head by released steps, n = 3, T = 4."""
    task, model = TokenSelection(3, 4, d), replace(USUAL, hidden=HIDDEN)
    return descent(task, model, at=at, seeds=seeds, optimizer=released)


def wide(d: int, *, seeds: int) -> Simulation:
    """Return a run of the small setting with vectors of width d, from W = 0."""
    return descent(replace(SMALL, vocab_size=d), FROM_ZERO, at=(2000,), seeds=seeds)


def instances(run: Simulation) -> list[Instance]:
    """Return the tokens, queries, labels and scores of each seed."""
    return [facts.data for _, facts in sorted(dict(facts_of(run)).items())]


def late_training(run: Simulation) -> list[theory.Late]:
    """Return late training towards the tokens of highest score, by seed."""
    return [
        theory.late_training(of["x"], of["z"], of["scores"], of["scores"].argmax(-1))
        for of in instances(run)
    ]


def by_seed(
    run: Simulation, found: xr.Dataset | None, measure: Callable[..., dict[str, Any]]
) -> xr.Dataset:
    """Return what `measure(instance, log_attention, W)` gives, over (seed, step).

    A number of a seed is repeated. The run is trained, and kept, where its result is not given.
    """
    found = trained_run(run) if found is None else found
    results = (found[name].values for name in ("log_attention", "matrix"))
    rows = [measure(*each) for each in zip(instances(run), *results, strict=True)]
    steps = found.sizes["step"]
    columns = {
        name: np.array([np.broadcast_to(row[name], steps) for row in rows], dtype=float)
        for name in rows[0]
    }
    coords = {"seed": found["seed"], "step": found["step"]}
    return xr.Dataset({name: (("seed", "step"), of) for name, of in columns.items()}, coords)


def compared(
    run: Simulation, found: xr.Dataset | None = None, *, norm: str = "frobenius"
) -> xr.Dataset:
    """Compare the weights of a run with the programmes of the tokens that it selects at its end.

    Returns
    -------
    xarray.Dataset
        correlation, error: of W's direction. best: its correlation with `max_margin` of the tokens
        of highest score. weight: mean over sequences of the largest attention weight. others: the
        log of the largest other weight. size, nuclear: |W| and |W|_*. Of each seed: margin, the
        norm of the solution; optimal, the share of sequences whose token has the highest score;
        local, 1 if the selection is locally optimal; rank and solution_rank, of W at the end and of
        the solution.
    """

    def measure(instance: Instance, logs: FloatArray, W: FloatArray) -> dict[str, Any]:
        x, z, scores = (instance[name] for name in ("x", "z", "scores"))
        tokens, highest = logs.argmax(-1), scores.argmax(-1)
        chosen = tokens[-1]
        own, best = PROGRAMMES[norm](x, z, chosen), theory.max_margin(x, z, highest)
        others = np.where(np.arange(logs.shape[-1]) == tokens[..., None], -np.inf, logs)
        return {
            "correlation": theory.correlation(W, own.weights),
            "error": theory.direction_error(W, own.weights),
            "best": theory.correlation(W, best.weights),
            "size": np.linalg.norm(W, axis=(-2, -1)),
            "nuclear": np.linalg.norm(W, "nuc", axis=(-2, -1)),
            "weight": np.exp(logs.max(-1)).mean(-1),
            "others": others.max(axis=(-2, -1)),
            "margin": own.norm,
            "optimal": (chosen == highest).mean(),
            "local": theory.locally_optimal(scores, chosen, own),
            "rank": theory.rank(W[-1], tolerance=SAME_RANK),
            "solution_rank": rank_of(own),
        }

    return by_seed(run, found, measure)


def several_tokens(run: Simulation, found: xr.Dataset | None = None) -> xr.Dataset:
    """Compare W with the parts of the theory, by the tokens that keep weight at the end.

    Returns
    -------
    xarray.Dataset
        1 - correlation of W with each of `BY`, and several, the number of sequences that keep more
        than one token; NaN where the released filter drops the instance: it keeps those with a
        negative label, no weight in (1e-6, 1e-3], one below, and a solution.
    """

    def measure(instance: Instance, logs: FloatArray, W: FloatArray) -> dict[str, Any]:
        x, z, s = instance["x"], instance["z"], np.exp(logs[-1])
        between = ((s > LOST) & (s <= KEPT)).any()
        if (instance["y"] > 0).all() or between or (s > LOST).all():
            return dict.fromkeys((*BY, "several"), np.nan)
        one = theory.max_margin(x, z, s.argmax(-1)).weights
        parts = [theory.several_tokens(x, z, s, of, least=KEPT) for of in W]
        said = np.array([(of.weights, of.margin, one) for of in parts])
        gaps = 1 - theory.correlation(W[:, None], said).T
        return {**dict(zip(BY, gaps, strict=True)), "several": ((s > KEPT).sum(-1) > 1).sum()}

    return by_seed(run, found, measure)


def best_solutions(task: TokenSelection, seeds: int, norm: str) -> list[theory.Margin]:
    """Return the programmes' solutions for the tokens of highest score; nothing is trained."""
    made = (
        task.instance(np.random.default_rng([task.vocab_size, seed]).standard_normal(task.numbers))
        for seed in range(seeds)
    )
    return [PROGRAMMES[norm](of["x"], of["z"], of["scores"].argmax(-1)) for of in made]


def ranks(n: int, d: int, seeds: int) -> xr.Dataset:
    """Return ranks of both solutions for the best tokens, T = 5; NaN where there is none.

    pulling: the number of sequences that have a support vector. gap: of the nuclear certificate.
    """
    task = TokenSelection(n, 5, d)
    short, low = (best_solutions(task, seeds, norm) for norm in PROGRAMMES)
    columns = {
        "frobenius": map(rank_of, short),
        "nuclear": map(rank_of, low),
        "pulling": ((of.dual > 0).any(-1).sum() if of.feasible else np.nan for of in short),
        "gap": (of.gap for of in low),
    }
    return xr.Dataset({name: ("seed", [*of]) for name, of in columns.items()})


def rank_of(margin: theory.Margin) -> float:
    """Return the rank of a solution, NaN where there is none."""
    return theory.rank(margin.weights) if margin.feasible else np.nan


def exponents(error: xr.DataArray) -> xr.DataArray:
    """Return the exponent p of error ~ step^p, by seed."""
    each = error.transpose("step", "seed")
    return xr.DataArray(np.polyfit(np.log(each["step"]), np.log(each), 1)[0], dims="seed")


def over_steps(values: xr.DataArray) -> str:
    """Return means over seeds at each step, as a note lists them."""
    return ", ".join(f"{mean(values.sel(step=t))} at {t}" for t in values["step"].values)


def kinds(of: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return which seeds end globally optimal, only locally, or neither, as 1 or 0."""
    best, local = of["optimal"] == 1, of["local"] == 1
    each = {"global": best, "local": local & ~best, "neither": ~local & ~best}
    return {name: seeds.astype(float) for name, seeds in each.items()}
