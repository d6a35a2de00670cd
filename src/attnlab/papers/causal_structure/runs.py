"""Training runs that claims and figures share; published settings where we know them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.measures import parent_attention, parent_recovery
from attnlab.measures.maps import entropy
from attnlab.models import Model
from attnlab.simulation import Batches, Piecewise, Record, Simulation, Steps
from attnlab.tasks import Task
from attnlab.theory.facts import facts_of

from .model import Disentangled, Reduced
from .task import ROOT, Forest, TwoParents

SEEDS = 10
PROBE = 4096
EARLY = (0, 1, 2, 5, 10, 20, 50, 100)


def cosine(rate: float, steps: int) -> Piecewise:
    """Return a learning rate that decays to 0 along half a cosine, in 64 pieces."""
    piece = np.arange(64)
    values = rate * (1 + np.cos(np.pi * (piece + 0.5) / 64)) / 2
    return Piecewise((piece * steps / 64).tolist(), values.tolist())


def _run(
    task: Task,
    model: Model,
    steps: int,
    *,
    rate: Any,
    at: Iterable[int],
    losses: Sequence[str] = (),
    seeds: int | Sequence[int],
    batch: int,
    probe: int = PROBE,
    optimizer: str = "sgd",
) -> Simulation:
    """Return a run that records layer 1, the parameters and these losses, at steps of `at`."""
    return Simulation(
        task,
        model,
        motion=Steps(steps, optimizer=optimizer),
        gradient=Batches(batch),
        learning_rate=rate,
        seeds=seeds,
        record=Record(
            ("first_attention", "parameters", *losses),
            at=sorted(step for step in set(at) if step <= steps),
            probe=probe,
        ),
    )


def stages(
    task: Forest, *, steps: int = 300, second: int = 300, seeds: int = SEEDS, batch: int = 512
) -> Simulation:
    """Return the two stages of the reduced model: A1 alone at 5 T S, then A2 alone at 5."""
    first, last = 5.0 * task.length * task.vocab_size, steps + second
    rate = {
        "first": Piecewise((0, steps), (first, 0.0)),
        "second": Piecewise((0, steps), (0.0, 5.0)),
    }
    at, losses = (*EARLY, 200, steps, last), ("probe_loss", "counts_loss")
    return _run(task, Reduced(), last, rate=rate, at=at, losses=losses, seeds=seeds, batch=batch)


def stage_one(
    task: Forest, *, steps: int = 100, seeds: int | Sequence[int] = SEEDS, batch: int = 512
) -> Simulation:
    """Return stage 1 alone, at a constant learning rate, as the theories take it."""
    rate, at = {"first": 5.0 * task.length * task.vocab_size, "second": None}, (*EARLY, steps)
    return _run(task, Reduced(), steps, rate=rate, at=at, seeds=seeds, batch=batch, probe=1)


def full(
    task: Forest, *, steps: int = 4000, seeds: int = SEEDS, batch: int = 256, constant: bool = False
) -> Simulation:
    """Return the disentangled model from zero, by SGD at learning rate 1."""
    return _run(
        task,
        Disentangled(),
        steps,
        rate=1.0 if constant else cosine(1.0, steps),
        at={0, 1, 50, *_even(steps)},
        losses=("probe_loss", "counts_loss", "released_loss"),
        seeds=seeds,
        batch=batch,
    )


def two_parents(task: TwoParents, *, steps: int, batch: int) -> Simulation:
    """Return two heads in layer 1, from a small start, by AdamW at 0.01."""
    return _run(
        task,
        Disentangled(heads=(2, 1), scale=1e-4),
        steps,
        rate=cosine(0.01, steps),
        at=_even(steps),
        losses=("probe_loss", "counts_loss", "one_parent_loss"),
        seeds=SEEDS,
        batch=batch,
        optimizer="adamw",
    )


def _even(steps: int) -> set[int]:
    return {round(steps * i / 16) for i in range(17)}


@cache
def parents(task: Forest, seeds: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the graph of each seed, (seed, position): it depends on task and seed alone."""
    run = stage_one(task, steps=1, seeds=seeds)
    drawn = {facts.seed: facts.data["parents"] for _, facts in facts_of(run)}
    return np.stack([drawn[seed] for seed in seeds])


def measured(result: xr.Dataset) -> xr.Dataset:
    """Return the measures of the claims, by seed and step, for one head in layer 1.

    parent_attention (mean over children) and recovery; root_entropy, the entropy of root rows but
    the first over its largest value, ln i; diagonal and off_diagonal means of the block of A2 that
    compares the test token with the tokens that layer 1 has read. Against the loss of the count
    predictor on the same sequences, the excess of the model's and the gap of the released line.
    """
    run = Simulation.of(result)
    maps, A2, S = result["first_attention"], result["parameters.second"].values, run.task.vocab_size
    if "head" in maps.dims:
        wide = S + run.task.length
        maps, A2 = maps.isel(head=0), A2[:, :, 0, :S, wide : wide + S]
    rows: dict[str, list[Any]] = {"parent_attention": [], "recovery": [], "root_entropy": []}
    for of, above in zip(maps.values, parents(run.task, run.seeds), strict=True):
        rows["parent_attention"].append(parent_attention(of, above).mean(-1))
        rows["recovery"].append(parent_recovery(of, above))
        roots = np.flatnonzero(above == ROOT)[1:]  # position 0 can read only itself
        left = entropy(of[..., roots, :]) / np.log(roots + 1)
        rows["root_entropy"].append(left.mean(-1) if roots.size else np.full(len(of), np.nan))
    same = np.eye(S, dtype=bool)
    values: dict[str, Any] = {
        **rows,
        "diagonal": A2[..., same].mean(-1),
        "off_diagonal": A2[..., ~same].mean(-1),
    }
    if "counts_loss" in result:
        values["excess"] = result["probe_loss"] - result["counts_loss"]
    if "released_loss" in result:
        values["released_gap"] = result["released_loss"] - result["counts_loss"]
    return _by_step(result, **values)


def staying(result: xr.Dataset) -> xr.Dataset:
    """Return the attention of positions to themselves, and the fraction that attend there most.

    By seed and step, without the first position, which can read only itself, and the test token's.
    """
    maps = result["first_attention"].values
    itself = np.append(ROOT, np.arange(1, maps.shape[-1] - 1))
    own = parent_attention(maps, itself).mean(-1)
    return _by_step(result, self_attention=own, self_chosen=parent_recovery(maps, itself))


def blocks(result: xr.Dataset) -> xr.Dataset:
    """Return the mean size of the blocks of A_1 at the end, by seed: queries x keys.

    Of positions, only pairs with the key before the query.
    """
    S = Simulation.of(result).task.vocab_size
    A1 = abs(result["parameters.first"].isel(step=-1).values[:, 0])
    before = np.tri(A1.shape[-1] - S, k=-1, dtype=bool)
    found = {
        "token_token": A1[:, :S, :S].mean((1, 2)),
        "token_position": A1[:, :S, S:].mean((1, 2)),
        "position_token": A1[:, S:, :S].mean((1, 2)),
        "position_position": A1[:, S:, S:][:, before].mean(-1),
    }
    return xr.Dataset({name: ("seed", of) for name, of in found.items()})


def heads_on_parents(result: xr.Dataset) -> xr.Dataset:
    """Return each head's mean attention to the farther and to the nearer of two parents.

    Positions from 2 on, whose parents differ.
    """
    above = np.vstack([[[ROOT, ROOT]] * 2, Simulation.of(result).task.parents[1:-1]])
    maps = result["first_attention"].values  # seed step head query key
    attention = [parent_attention(maps, each).mean(-1) for each in above.T]
    found = _by_step(
        result,
        **{f"{name}_excess": result["probe_loss"] - result[f"{name}_loss"] for name in LINES},
        **{f"{name}_loss": result[f"{name}_loss"] for name in LINES},
    )
    return found.assign(attention=(("seed", "step", "head", "parent"), np.stack(attention, -1)))


LINES = ("counts", "one_parent")


def _by_step(result: xr.Dataset, **values: Any) -> xr.Dataset:
    named = {name: (("seed", "step"), np.asarray(of)) for name, of in values.items()}
    return xr.Dataset(named, {dim: result[dim].values for dim in ("seed", "step")})
