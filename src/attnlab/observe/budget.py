"""How little of the KV cache would do: the attention and output that policies keep, head by head.

The text up to the last few queries is the prompt. Each of these later queries may keep a share of
the keys that it sees; which, is decided by what was known at the end of the prompt (but for the
oracle, which sees the query's own map), and the softmax is taken anew over what is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.measures.arrays import Array, beside, namespace
from attnlab.observe.block import Block, Part

if TYPE_CHECKING:
    from jaxtyping import Float, Int

BUDGETS = (0.05, 0.1, 0.2, 0.5)  # of the keys that a query sees
SINKS = 4  # StreamingLLM keeps as many
WINDOW = 32  # queries that vote: SnapKV's observation window
LATER = 16  # queries after the prompt, of all sequences together,
LEAST_LATER = 2  # and of each at least


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


class Policy(NamedTuple):
    """What is kept: some keys in any case, the others by a score, the highest first.

    score: (batch, head, row, key), of one row where it is the same for all. always: of the budgets
    (batch, head, row, budget, 1), which keys are kept under each.
    """

    score: Callable[[Cache], Any]
    always: Callable[[Cache, Any], Any]


def _latest(cache: Cache, number: Any) -> Any:
    return cache.age[..., None, :] <= number


def _first(cache: Cache, budget: Any) -> Any:
    maps = cache.block.maps
    place = beside(maps, np.arange(maps.shape[-1])) - cache.start[:, None, :, None, None]
    return (place >= 0) & (place < namespace(maps).clip(budget // 2, None, SINKS))


POLICIES = {
    # the strongest of the query's own map: nothing of this size keeps more mass
    "oracle": Policy(lambda cache: cache.block.maps, lambda cache, budget: _latest(cache, 0)),
    # the first four keys and the latest (Xiao et al. 2024, StreamingLLM)
    "sinks_recent": Policy(lambda cache: -cache.age, _first),
    # half the latest, half what received most in the prompt (Zhang et al. 2023, H2O, by the sums of
    # full attention: H2O itself sums what its own cache has left)
    "heavy_recent": Policy(
        lambda cache: cache.heavy[:, :, None, :],
        lambda cache, budget: _latest(cache, budget // 2),
    ),
    # the latest, at most half and at most as many as vote, and what the prompt's last queries
    # attended to (Li et al. 2024, SnapKV, without its pooling of neighbours)
    "window_vote": Policy(
        lambda cache: cache.window[:, :, None, :],
        lambda cache, budget: _latest(cache, namespace(cache.age).clip(budget // 2, None, WINDOW)),
    ),
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
    whole = xp.sum(maps, axis=-1)[..., None]
    output = None if part.value is None else part.output(maps)[..., None, :]
    percent = beside(number, np.array([round(100 * share) for share in BUDGETS]))
    budget = ((number * percent + 99) // 100)[..., None]  # rounded up; batch head row budget 1
    each = (*maps.shape[:3], len(BUDGETS), maps.shape[3])
    seen = xp.broadcast_to(seen[..., None, :], each)
    masses, errors = [], []
    for policy in POLICIES.values():
        order = xp.argsort(-policy.score(cache), axis=-1, stable=True)  # of equal ones the earlier
        rank = xp.argsort(order, axis=-1, stable=True)
        order, rank = (xp.broadcast_to(one[..., None, :], each) for one in (order, rank))
        always = policy.always(cache, budget) & seen
        room = budget - xp.sum(xp.astype(always, xp.int32), axis=-1, keepdims=True)
        others = xp.take_along_axis(seen & ~always, order, axis=-1)
        within = xp.cumulative_sum(xp.astype(others, xp.int32), axis=-1) <= room
        kept = always | xp.take_along_axis(others & within, rank, axis=-1)
        left = xp.where(kept, maps[..., None, :], 0.0)  # batch head row budget key
        mass = xp.sum(left, axis=-1)
        masses.append(mass / whole)
        if output is not None:
            total = mass if block.sink is None else mass + block.sink[..., None]
            rows = left.reshape(*maps.shape[:2], -1, maps.shape[3])
            anew = part.output(rows).reshape(*each[:4], -1)
            anew = anew / xp.where(total > 0, total, 1.0)[..., None]
            errors.append(_norm(output - anew) / _norm(output))
    return xp.concat(masses, axis=-1), xp.concat(errors, axis=-1) if errors else None


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


def _norm(vectors: Any) -> Any:
    xp = namespace(vectors)
    return xp.sqrt(xp.sum(vectors * vectors, axis=-1))
