"""Attention that keys receive: columns of (..., query, key), and the tokens behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.files.errors import refuse_if
from attnlab.measures.arrays import Array, namespace, ranks, sort_descending, take_along

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

HEAVY = 0.1  # of the keys


def received(
    maps: Float[Array, "*rows query key"], visible: Bool[Array, "*#rows query key"] | None = None
) -> Float[Array, "*rows key"]:
    """Return the mean attention that a key gets from the queries that see it; NaN without one.

    Without `visible` every query counts, and the late keys of a causal map look weak.
    """
    xp = namespace(maps)
    total = xp.sum(maps, axis=-2)
    if visible is None:
        return total / maps.shape[-2]
    seeing = xp.sum(xp.astype(visible, maps.dtype) * xp.ones_like(maps), axis=-2)
    return mean_received(total, seeing)


def mean_received(
    total: Float[Array, "*rows key"], seeing: Float[Array, "*rows key"]
) -> Float[Array, "*rows key"]:
    """Return the total attention of keys divided by the number of queries that see them."""
    xp = namespace(total)
    some = seeing > 0
    return xp.where(some, total / xp.where(some, seeing, 1.0), xp.nan)


def heavy_hitters(
    total: Float[Array, "*rows key"], share: float = HEAVY
) -> Bool[Array, "*rows key"]:
    """Return which keys are the tenth that receives most in total (Zhang et al. 2023, H2O).

    NaN marks padding, which is not a key; ties go to the earlier. At least one key is heavy.
    """
    xp = namespace(total)
    there = ~xp.isnan(total)
    held = xp.where(there, total, -xp.inf)
    keys = xp.sum(xp.astype(there, xp.float64), axis=-1, keepdims=True)
    number = xp.astype(xp.ceil(share * keys), xp.int64)
    least = take_along(sort_descending(held), xp.clip(number - 1, 0, None), -1)
    above, equal = held > least, (held == least) & there
    room = number - xp.sum(xp.astype(above, xp.int64), axis=-1, keepdims=True)
    return above | (equal & (xp.cumulative_sum(xp.astype(equal, xp.int64), axis=-1) <= room))


def overlap(
    before: Float[Array, "*rows key"], after: Float[Array, "*rows key"], share: float = HEAVY
) -> Array:
    """Return the fraction of the heavy hitters of `after` that were heavy in `before`."""
    return shared(heavy_hitters(before, share), heavy_hitters(after, share))


def shared(first: Bool[Array, "*rows key"], second: Bool[Array, "*rows key"]) -> Array:
    """Return the fraction of the second's keys that are in the first; NaN where it has none."""
    xp = namespace(second)
    both, all_of = (xp.sum(xp.astype(one, xp.float32), axis=-1) for one in (first & second, second))
    return both / xp.where(all_of > 0, all_of, xp.nan)


def rank_correlation(
    target: Float[Array, "*rows value"], score: Float[Array, "*#rows value"]
) -> Array:
    """Spearman's; 0 where one of the two is constant, because then it ranks nothing."""
    a, b = (ranks(values) - (values.shape[-1] + 1) / 2 for values in (target, score))
    xp = namespace(a)
    norm = xp.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return (a * b).sum(-1) / xp.where(norm > 0, norm, xp.inf)


def token_counts(
    tokens: Int[Any, "sequence key"], present: Bool[Any, "sequence key"]
) -> tuple[Int[Any, "sequence key"], Int[Any, "sequence key"]]:
    """Count how often the token of each key occurs in all sequences, and in how many of them.

    idf is ln(sequences / the second). A token is common if it is in several sequences and distinct
    if it is in one: the roles of Section 3.2, with a text's sequences as its classes.
    """
    tokens, present = np.asarray(tokens), np.asarray(present)
    refuse_if(tokens.shape != present.shape, "tokens", f"shape {present.shape}", tokens.shape)
    _, kind = np.unique(tokens, return_inverse=True)
    kind = kind.reshape(tokens.shape)
    counts = np.zeros((len(tokens), kind.max() + 1), np.int64)
    for row, (kinds, there) in enumerate(zip(kind, present, strict=True)):
        np.add.at(counts[row], kinds[there], 1)
    return counts.sum(axis=0)[kind], (counts > 0).sum(axis=0)[kind]
