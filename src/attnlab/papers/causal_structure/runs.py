"""Training runs that claims and figures share; published settings where we know them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.measures import parent_attention, parent_recovery
from attnlab.measures.maps import entropy as maps_entropy
from attnlab.simulation import Batches, Piecewise, Record, Simulation, Steps
from attnlab.theory.facts import facts_of

from .model import Disentangled, Reduced
from .task import ROOT, Forest, Graph, TwoParents

GRAPHS: tuple[Graph, ...] = ("chain", "pairs", "random")
SEEDS = 10
STAGE = 300
PROBE = 4096


def cosine(rate: float, steps: int, pieces: int = 64) -> Piecewise:
    """Return a learning rate that decays to 0 along half a cosine, in pieces."""
    middle = (np.arange(pieces) + 0.5) / pieces
    values = rate * (1 + np.cos(np.pi * middle)) / 2
    return Piecewise((np.arange(pieces) * steps / pieces).tolist(), values.tolist())


def stages(
    task: Forest, *, steps: int = STAGE, second: int = STAGE, seeds: int = SEEDS, batch: int = 512
) -> Simulation:
    """Return the two stages of the reduced model: A1 alone at 5 T S, then A2 alone at 5."""
    first = 5.0 * task.length * task.vocab_size
    last = steps + second
    return Simulation(
        task,
        Reduced(),
        motion=Steps(last),
        gradient=Batches(batch),
        learning_rate={
            "first": Piecewise((0, steps), (first, 0.0)),
            "second": Piecewise((0, steps), (0.0, 5.0)),
        },
        seeds=seeds,
        record=Record(
            ("first_attention", "parameters", "probe_loss", "counts_loss"),
            at=sorted(at for at in {0, 1, 2, 5, 10, 20, 50, 100, 200, steps, last} if at <= last),
            probe=PROBE,
        ),
    )


def stage_one(
    task: Forest,
    *,
    steps: int,
    seeds: int | Sequence[int] = SEEDS,
    batch: int = 512,
    model: Reduced | None = None,
) -> Simulation:
    """Return stage 1 alone, at a constant learning rate, as the theories take it."""
    return Simulation(
        task,
        model or Reduced(),
        motion=Steps(steps),
        gradient=Batches(batch),
        learning_rate={"first": 5.0 * task.length * task.vocab_size, "second": None},
        seeds=seeds,
        record=Record(
            ("first_attention", "parameters"),
            at=sorted(at for at in {0, 1, 2, 5, 10, 20, 50, 100, steps} if at <= steps),
            probe=1,
        ),
    )


def full(
    task: Forest, *, steps: int = 4000, seeds: int = SEEDS, batch: int = 256, constant: bool = False
) -> Simulation:
    """Return the disentangled model from zero, by SGD at learning rate 1."""
    even = {round(steps * i / 16) for i in range(17)}
    return Simulation(
        task,
        Disentangled(),
        motion=Steps(steps),
        gradient=Batches(batch),
        learning_rate=1.0 if constant else cosine(1.0, steps),
        seeds=seeds,
        record=Record(
            ("first_attention", "parameters", "probe_loss", "counts_loss", "released_loss"),
            at=sorted(at for at in {0, 1, 50, *even} if at <= steps),
            probe=PROBE,
        ),
    )


def two_parents(
    task: TwoParents, *, steps: int, seeds: int = SEEDS, batch: int = 1024
) -> Simulation:
    """Return two heads in layer 1, from a small start, by AdamW at 0.01."""
    return Simulation(
        task,
        Disentangled(heads=(2, 1), scale=1e-4),
        motion=Steps(steps, optimizer="adamw"),
        gradient=Batches(batch),
        learning_rate=cosine(0.01, steps),
        seeds=seeds,
        record=Record(
            ("first_attention", "parameters", "probe_loss", "counts_loss", "one_parent_loss"),
            at=sorted({round(steps * i / 16) for i in range(17)}),
            probe=PROBE,
        ),
    )


def parents(run: Simulation) -> NDArray[np.int64]:
    """Return the graph of each seed, (seed, position)."""
    if isinstance(run.task, TwoParents):
        raise InputError("task: TwoParents has two graphs; take those of the task")
    return _parents(run.task, run.seeds)


@cache
def _parents(task: Forest, seeds: tuple[int, ...]) -> NDArray[np.int64]:
    run = stage_one(task, steps=1, seeds=seeds)  # what a seed draws hangs on the task alone
    drawn = {facts.seed: facts.data["parents"] for _, facts in facts_of(run)}
    return np.stack([drawn[seed] for seed in seeds])


def measured(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return what the claims speak of, by seed and step, for one head in layer 1.

    parent_attention (mean over children) and recovery; root_entropy, the entropy of root rows but
    the first over its largest value, ln i; excess of the loss over that of the count predictor on
    the same sequences; diagonal and off_diagonal means of the block of A2 that compares the test
    token with the tokens that layer 1 has read.
    """
    maps = result["first_attention"].values
    maps = maps[:, :, 0] if "head" in result["first_attention"].dims else maps
    A2, S = result["parameters.second"].values, run.task.vocab_size
    if "head" in result["first_attention"].dims:
        wide = S + run.task.length
        A2 = A2[:, :, 0, :S, wide : wide + S]
    rows: dict[str, list[Any]] = {"parent_attention": [], "recovery": [], "root_entropy": []}
    for of, above in zip(maps, parents(run), strict=True):
        rows["parent_attention"].append(parent_attention(of, above).mean(-1))
        rows["recovery"].append(parent_recovery(of, above))
        roots = np.flatnonzero(above == ROOT)[1:]  # position 0 can read only itself
        entropy = maps_entropy(of[..., roots, :]) / np.log(roots + 1)
        rows["root_entropy"].append(entropy.mean(-1) if roots.size else np.full(len(of), np.nan))
    same = np.eye(S, dtype=bool)
    values = {
        **{name: np.stack(of) for name, of in rows.items()},
        "diagonal": A2[..., same].mean(-1),
        "off_diagonal": A2[..., ~same].mean(-1),
    }
    if "probe_loss" in result:
        values["excess"] = (result["probe_loss"] - result["counts_loss"]).values
    coords = {"seed": result["seed"].values, "step": result["step"].values}
    return xr.Dataset({name: (("seed", "step"), of) for name, of in values.items()}, coords)


def blocks(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return the mean size of the blocks of A_1 at the end, by seed: queries x keys.

    Of positions, only pairs with the key before the query.
    """
    S, A1 = run.task.vocab_size, abs(result["parameters.first"].isel(step=-1).values[:, 0])
    before = np.tri(run.task.length, k=-1, dtype=bool)
    found = {
        "token_token": A1[:, :S, :S].mean((1, 2)),
        "token_position": A1[:, :S, S:].mean((1, 2)),
        "position_token": A1[:, S:, :S].mean((1, 2)),
        "position_position": A1[:, S:, S:][:, before].mean(-1),
    }
    return xr.Dataset({name: ("seed", of) for name, of in found.items()})


def heads_on_parents(run: Simulation, result: xr.Dataset) -> xr.Dataset:
    """Return each head's mean attention to the farther and to the nearer of two parents.

    Positions from 2 on, whose parents differ.
    """
    positions = np.arange(2, run.task.length)
    above = run.task.parents[positions - 1]
    maps = result["first_attention"].values[..., positions, :]  # seed step head child key
    found = np.stack(
        [maps[..., np.arange(positions.size), above[:, k]].mean(-1) for k in (0, 1)], -1
    )
    excess = {
        f"{name}_excess": (("seed", "step"), (result["probe_loss"] - result[f"{name}_loss"]).values)
        for name in ("counts", "one_parent")
    }
    return xr.Dataset(
        {"attention": (("seed", "step", "head", "parent"), found), **excess},
        {"seed": result["seed"].values, "step": result["step"].values},
    )
