"""What keys receive: the columns of plain maps (..., query, key), and tokens behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.measures.arrays import Array, namespace

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

HEAVY = 0.1  # of the keys


def received(
    maps: Float[Array, "*rows query key"], visible: Bool[Array, "*#rows query key"] | None = None
) -> Float[Array, "*rows key"]:
    """The mean attention that a key gets from the queries that may see it; NaN where none may.

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
    """Attention received by keys in total, for each query that may see the key."""
    xp = namespace(total)
    some = seeing > 0
    return xp.where(some, total / xp.where(some, seeing, 1.0), xp.nan)


def heavy_hitters(total: NDArray[Any], share: float = HEAVY) -> NDArray[np.bool_]:
    """Which keys are the tenth that receives most in total (Zhang et al. 2023, H2O).

    NaN marks what is no key (padding); ties go to the earlier. At least one key is heavy.
    """
    order = np.argsort(-np.where(np.isnan(total), -np.inf, total), axis=-1, kind="stable")
    rank = np.argsort(order, axis=-1, kind="stable")
    keys = (~np.isnan(total)).sum(axis=-1, keepdims=True)
    return (rank < np.ceil(share * keys)) & ~np.isnan(total)


def overlap(before: NDArray[Any], after: NDArray[Any], share: float = HEAVY) -> NDArray[Any]:
    """The share of the heavy hitters of `after` that were heavy hitters of `before`."""
    first, second = heavy_hitters(before, share), heavy_hitters(after, share)
    return (first & second).sum(axis=-1) / second.sum(axis=-1)


def rank_correlation(
    target: Float[Any, "*rows value"], score: Float[Any, "*#rows value"]
) -> NDArray[np.float64]:
    """Spearman's; 0 where one of the two is constant, because then it ranks nothing."""
    from scipy.stats import rankdata

    a, b = (
        rankdata(values, axis=-1) - (np.shape(values)[-1] + 1) / 2 for values in (target, score)
    )
    norm = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return (a * b).sum(-1) / np.where(norm > 0, norm, np.inf)


def token_counts(
    tokens: Int[Any, "sequence key"], present: Bool[Any, "sequence key"]
) -> tuple[Int[Any, "sequence key"], Int[Any, "sequence key"]]:
    """How often the token of each key occurs in all sequences, and in how many of them.

    idf is ln(sequences / the second). A token is common if it is in several sequences and distinct
    if it is in one: the roles of Section 3.2, with a text's sequences as its classes.
    """
    tokens, present = np.asarray(tokens), np.asarray(present)
    if tokens.shape != present.shape:
        raise InputError(f"tokens: expected shape {present.shape}, got {tokens.shape}")
    _, kind = np.unique(tokens, return_inverse=True)
    kind = kind.reshape(tokens.shape)
    counts = np.zeros((len(tokens), kind.max() + 1), np.int64)
    for row, (kinds, there) in enumerate(zip(kind, present, strict=True)):
        np.add.at(counts[row], kinds[there], 1)
    return counts.sum(axis=0)[kind], (counts > 0).sum(axis=0)[kind]
