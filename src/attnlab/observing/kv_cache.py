"""KV cache policies: the attention and output that each keeps under a budget, head by head.

The text up to the last few queries is the prompt. Each of these later queries may keep a share of
the keys that it sees. A policy chooses them by what was known at the end of the prompt (except for
the oracle, which uses the query's own attention weights); the softmax is taken anew over them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from attnlab.measures.arrays import Array, namespace, same_kind, sort_descending, take_along

BUDGETS = (0.05, 0.1, 0.2, 0.5)  # of the keys that a query sees
SINKS = 4  # first keys that are kept, as in StreamingLLM
WINDOW = 32  # queries that vote
LATER = 16  # queries after the prompt, of all sequences together,
LEAST_LATER = 2  # and of each at least
BYTES_OF_AN_ENTRY = 48  # for each attention weight of the later queries, under all budgets


@dataclass(frozen=True, eq=False)
class CacheLimits:
    """Limits of a policy, the same for all layers that are alike.

    seen: visible keys of later queries. age: 1 for the latest visible key of a query. offset:
    distance of a key from the first of the query's own text. budget: number of keys to keep.
    """

    seen: Bool[Array, "#batch #head row 1 key"]
    age: Int[Array, "#batch #head row 1 key"]
    offset: Int[Array, "batch 1 row 1 key"]
    budget: Int[Array, "#batch #head row budget 1"]
    _latest: dict[int | None, tuple[Any, Any, Any]] = field(default_factory=dict)

    @cached_property
    def sinks_recent(self) -> Bool[Array, "#batch #head row budget key"]:
        """The first four keys and the latest."""
        few = namespace(self.budget).clip(self.budget // 2, None, SINKS)
        first = (self.offset >= 0) & (self.offset < few) & self.seen
        return first | (self.seen & (self.age <= self.budget - _count(first)))

    def latest(self, most: int | None) -> tuple[Any, Any, Any]:
        """Return the latest keys, half of the budget and at most `most`; the other visible keys;
        and the number of these that may be kept."""
        if most not in self._latest:
            half = namespace(self.budget).clip(self.budget // 2, None, most)
            always = self.seen & (self.age <= half)
            self._latest[most] = always, self.seen & ~always, self.budget - _count(always)
        return self._latest[most]


# Keys to keep: by the limits, the attention weights of later queries (many head row 1 key), and the
# attention that keys received from all queries of the prompt and from its last ones (1 key)
Policy = Callable[[CacheLimits, Any, Any, Any], Any]


def _oracle(limits: CacheLimits, maps: Any, heavy: Any, window: Any) -> Any:
    """Keep the strongest keys of the query's own attention: the most mass for this size, which need
    not give the nearest output."""
    xp = namespace(maps)
    ranked = sort_descending(maps[..., 0, :])
    last = xp.clip(limits.budget[..., 0] - 1, 0, None)
    last = xp.broadcast_to(last, (*ranked.shape[:-1], len(BUDGETS)))
    least = take_along(ranked, xp.astype(last, xp.asarray(0).dtype), -1)[..., None]
    above, equal = maps > least, (maps == least) & limits.seen
    left = limits.budget - _count(above)
    return above | (equal & (_counted(equal) <= left))  # the earlier of equal keys


def _sinks_recent(limits: CacheLimits, maps: Any, heavy: Any, window: Any) -> Any:
    """Keep the first four keys and the latest, as StreamingLLM (Xiao et al. 2024) does."""
    return limits.sinks_recent


def _heavy_recent(limits: CacheLimits, maps: Any, heavy: Any, window: Any) -> Any:
    """Keep half the latest, half the keys that received most in the prompt. This is not H2O (Zhang
    et al. 2023), which sums attention over its own cache, not full attention."""
    return _voted(heavy, *limits.latest(None))


def _window_vote(limits: CacheLimits, maps: Any, heavy: Any, window: Any) -> Any:
    """Keep the latest, at most half and at most WINDOW, and the keys to which the prompt's last
    queries attended. This is not SnapKV (Li et al. 2024), which pools neighbours and keeps its
    whole window, which may be larger than the budgets here."""
    return _voted(window, *limits.latest(WINDOW))


def _voted(score: Any, always: Any, others: Any, left: Any) -> Any:
    """Keep some keys always, and `left` of the others with the highest score, the earlier of equal
    ones."""
    xp = namespace(score)
    order = xp.argsort(-score, axis=-1, stable=True)
    rank = xp.argsort(order, axis=-1, stable=True)
    whole = (*score.shape[:-2], *others.shape[-3:])
    turned = take_along(xp.broadcast_to(others, whole), order[..., None, :], -1)
    reached = _count(_counted(turned) <= left)
    return always | (others & (rank[..., None, :] < reached))


POLICIES: dict[str, Policy] = {
    "oracle": _oracle,
    "sinks_recent": _sinks_recent,
    "heavy_recent": _heavy_recent,
    "window_vote": _window_vote,
}


def cache_limits(
    visible: Bool[Array, "#batch #head row key"], start: Int[Array, "batch row"]
) -> CacheLimits:
    """Return the limits of later queries. visible: the keys that they see. start: the first key of
    a query's own text."""
    xp = namespace(visible)
    order = xp.cumulative_sum(xp.astype(visible, xp.int32), axis=-1, dtype=xp.int32)
    number = order[..., -1:]
    percent = same_kind(number, np.array([round(100 * share) for share in BUDGETS], np.int32))
    key = same_kind(number, np.arange(visible.shape[-1], dtype=np.int32))
    return CacheLimits(
        visible[..., None, :],
        (number - order + 1)[..., None, :],
        key - start[:, None, :, None, None],
        ((number * percent + 99) // 100)[..., None],  # rounded up
    )


def retained(
    maps: Float[Array, "*many head row key"],
    limits: CacheLimits,
    *,
    value: Float[Array, "*many kv_head key width"] | None,
    sink: Float[Array, "*many head row"] | None,
    heavy: Float[Array, "*many head key"],
    window: Float[Array, "*many head key"],
) -> tuple[Float[Array, "*many head row kept"], Float[Array, "*many head row kept"] | None]:
    """Return retained mass and relative error of the output, POLICIES x BUDGETS in the last dim.

    many: batch, or layer and batch. sink: attention to a learnable sink. Retained mass is a share
    of the query's attention to all keys. The error is that of the attention output before its
    projection, |o - o'| / |o|; None without values.
    """
    xp = namespace(maps)
    whole = xp.sum(maps, axis=-1)[..., None]
    maps, heavy, window = (one[..., None, :] for one in (maps, heavy, window))
    output = None if value is None else output_of(maps, value)
    masses, errors = [], []
    for policy in POLICIES.values():
        kept = policy(limits, maps, heavy, window)
        left = xp.where(kept, maps, 0.0)  # many head row budget key
        mass = xp.sum(left, axis=-1)
        masses.append(mass)
        if output is not None:
            total = mass if sink is None else mass + sink[..., None]
            anew = output_of(left, value) / xp.where(total > 0, total, 1.0)[..., None]
            errors.append(_norm(output - anew))
    share = xp.concat(masses, axis=-1) / whole
    return share, None if output is None else xp.concat(errors, axis=-1) / _norm(output)


def output_of(maps: Any, value: Any) -> Any:
    """Return the output of attention weights (many head row kept key)."""
    *many, head, rows, held, keys = maps.shape
    merged = maps.reshape(*many, value.shape[-3], -1, keys)
    return namespace(maps).matmul(merged, value).reshape(*many, head, rows, held, -1)


def _count(keys: Any) -> Any:
    xp = namespace(keys)
    return xp.sum(keys, axis=-1, keepdims=True, dtype=xp.int32)


def _counted(keys: Any) -> Any:
    xp = namespace(keys)
    return xp.cumulative_sum(keys, axis=-1, dtype=xp.int32)


def _norm(vectors: Any) -> Any:
    return namespace(vectors).linalg.vector_norm(vectors, axis=-1)
