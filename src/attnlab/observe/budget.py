"""How little of the KV cache would do: the attention and output that policies keep, head by head.

The text up to the last few queries is the prompt. Each of these later queries may keep a share of
the keys that it sees; which, is decided by what was known at the end of the prompt (but for the
oracle, which sees the query's own map), and the softmax is taken anew over what is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.measures.arrays import Array, alike, beside, namespace
from attnlab.observe.block import Block, Part

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

BUDGETS = (0.05, 0.1, 0.2, 0.5)  # of the keys that a query sees
SINKS = 4  # StreamingLLM keeps as many
WINDOW = 32  # queries that vote: SnapKV's observation window
LATER = 8  # queries after the prompt


@dataclass(frozen=True, eq=False)
class Cache:
    """What a policy may know: the maps of later queries, and what keys received before.

    heavy: the attention that a key got from all queries of the prompt; window: from its last ones.
    start: the first key of a query's own text. age: 1 for the latest visible key of a query.
    """

    block: Block
    heavy: Float[Array, "batch head key"]
    window: Float[Array, "batch head key"]
    start: Int[Array, "batch row"]
    age: Int[Array, "batch head row key"]


def _oracle(cache: Cache, budget: Int[Array, "batch head row 1"]) -> Any:
    """The strongest of the query's own map: nothing of this size keeps more mass."""
    return cache.block.maps


def _sinks_recent(cache: Cache, budget: Int[Array, "batch head row 1"]) -> Any:
    """The first four keys and the latest (Xiao et al. 2024, StreamingLLM)."""
    xp, maps = namespace(cache.age), cache.block.maps
    place = beside(maps, np.arange(maps.shape[-1])) - cache.start[:, None, :, None]
    first = (place >= 0) & (place < xp.clip(budget // 2, None, SINKS))
    return xp.where(first, xp.inf, -alike(maps, cache.age))


def _heavy_recent(cache: Cache, budget: Int[Array, "batch head row 1"]) -> Any:
    """Half the latest, half what received most in the prompt (Zhang et al. 2023, H2O).

    By the sums of full attention: H2O itself sums what its own cache has left.
    """
    latest = cache.age <= budget // 2
    return namespace(cache.age).where(latest, float("inf"), cache.heavy[:, :, None, :])


def _window_vote(cache: Cache, budget: Int[Array, "batch head row 1"]) -> Any:
    """What the prompt's last queries attended to, and the latest: at most half, at most as many
    as voted (Li et al. 2024, SnapKV, without its pooling of neighbours)."""
    xp = namespace(cache.age)
    latest = cache.age <= xp.clip(budget // 2, None, WINDOW)
    return xp.where(latest, xp.inf, cache.window[:, :, None, :])


# A policy scores keys for a query, and the best are kept.
POLICIES: dict[str, Callable[[Cache, Any], Any]] = {
    "oracle": _oracle,
    "sinks_recent": _sinks_recent,
    "heavy_recent": _heavy_recent,
    "window_vote": _window_vote,
}


def kept(
    part: Part,
    block: Block,
    *,
    heavy: Float[Array, "batch head key"],
    window: Float[Array, "batch head key"],
    start: Int[Array, "batch row"],
) -> tuple[Float[Array, "batch head row kept"], Float[Array, "batch head row kept"] | None]:
    """Retained mass and relative error of the output, of POLICIES x BUDGETS in the last dim.

    Retained is the share of what the query gives to keys at all. The error is that of the
    attention output before its projection, |o - o'| / |o|; None without values.
    """
    xp, maps = namespace(block.maps), block.maps
    seen = block.visible & (maps >= 0)  # of every head
    order = xp.cumulative_sum(xp.astype(seen, xp.int32), axis=-1)
    number = order[..., -1:]
    cache = Cache(block, heavy, window, start, number - order + 1)
    whole = xp.sum(maps, axis=-1)
    output = None if part.value is None else part.output(maps)
    masses, errors = [], []
    for policy in POLICIES.values():
        for share in BUDGETS:
            budget = (number * round(100 * share) + 99) // 100  # rounded up
            kept = _best(policy(cache, budget), seen, budget)
            left = xp.where(kept, maps, 0.0)
            mass = xp.sum(left, axis=-1)
            masses.append(mass / whole)
            if output is not None:
                total = mass if block.sink is None else mass + block.sink
                anew = part.output(left) / xp.where(total > 0, total, 1.0)[..., None]
                errors.append(_norm(output - anew) / _norm(output))
    return xp.stack(masses, axis=-1), xp.stack(errors, axis=-1) if errors else None


def budget_table(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """What every head keeps under every policy, a row each, for a JSON document."""
    if "retained_mass" not in dataset:
        raise InputError(
            "dataset: has no retained_mass; it is measured where queries see earlier keys alone"
        )
    names = [name for name in ("retained_mass", "output_error") if name in dataset]
    table = dataset[names].to_dataframe().reset_index()
    columns = ["layer", "head", "policy", "budget", *names]
    return table[columns].to_dict("records")


def _best(score: Any, seen: Any, budget: Any) -> Bool[Array, "batch head row key"]:
    """The visible keys of highest score, so many; of equal ones the earlier."""
    xp = namespace(score)
    order = xp.argsort(xp.where(seen, -score, xp.inf), axis=-1, stable=True)
    return (xp.argsort(order, axis=-1, stable=True) < budget) & seen


def _norm(vectors: Any) -> Any:
    xp = namespace(vectors)
    return xp.sqrt(xp.sum(vectors * vectors, axis=-1))
