"""Statistics of single rows of attention weights, (..., query, key), from any source.

Functions of arrays of numpy, JAX or torch (see `attnlab.measures.arrays`), in the precision of what
they are given. A key that a query may not see has the entry 0. Rows may sum to less than 1: a
learnable sink takes the rest, and is not a key. A NaN that goes in comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnlab.measures.arrays import (
    Array,
    cast_like,
    count_below,
    largest,
    namespace,
    same_kind,
    sort_descending,
)

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

TOP = (1, 4, 16, 64)  # the k of the top-k mass
MASS = (0.9, 0.95, 0.99)  # how much of a row's mass keys are counted for


def entropy(maps: Float[Array, "*rows key"]) -> Float[Array, "*rows"]:
    """Return -sum p ln p, in nats, with 0 ln 0 = 0."""
    xp = namespace(maps)
    # the logarithm of 1 stands in for that of 0
    terms = maps * xp.log(xp.where(maps != 0, maps, 1.0))
    return 0.0 - xp.sum(terms, axis=-1)  # not -sum: certainty has entropy 0, not -0


def relative_entropy(
    entropy: Float[Array, "*rows"], visible_keys: Float[Array, "*#rows"]
) -> Float[Array, "*rows"]:
    """Return H / ln n: 1 for even attention to n visible keys. NaN where only one is visible."""
    xp = namespace(entropy)
    keys = cast_like(entropy, visible_keys)
    several = keys > 1
    return xp.where(several, entropy / xp.log(xp.where(several, keys, 2.0)), xp.nan)


def effective_tokens(entropy: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
    """Return exp H: the number of keys that equal attention of this entropy would cover."""
    return namespace(entropy).exp(entropy)


def participation(maps: Float[Array, "*rows key"]) -> Float[Array, "*rows"]:
    """Return 1 / sum p^2: exp of Renyi's entropy of order 2, ruled by the strongest keys."""
    xp = namespace(maps)
    return 1.0 / xp.sum(maps * maps, axis=-1)


def ranked_mass(maps: Float[Array, "*rows key"]) -> Float[Array, "*rows key"]:
    """Return the mass of the strongest key, of the two strongest, and so on."""
    xp = namespace(maps)
    return xp.cumulative_sum(sort_descending(maps), axis=-1)


def top_mass(
    maps: Float[Array, "*rows key"],
    top: Sequence[int] = TOP,
    *,
    ranked: Float[Array, "*rows key"] | None = None,
) -> Float[Array, "*rows k"]:
    """Return the attention to the k strongest keys, for each k. ranked: `ranked_mass`, if known."""
    xp = namespace(maps)
    if ranked is None:
        ranked = xp.cumulative_sum(largest(maps, max(top)), axis=-1)
    last = ranked.shape[-1] - 1
    return xp.stack([ranked[..., min(k - 1, last)] for k in top], axis=-1)


def keys_for(
    maps: Float[Array, "*rows key"],
    mass: Sequence[float] = MASS,
    *,
    ranked: Float[Array, "*rows key"] | None = None,
) -> Int[Array, "*rows mass"]:
    """Count the keys, the strongest first, that hold each fraction of a row's attention.

    Whole numbers cannot be NaN: they mean nothing for a row that is.
    """
    xp = namespace(maps)
    ranked = ranked_mass(maps) if ranked is None else ranked
    bounds = xp.stack([part * ranked[..., -1] for part in mass], axis=-1)
    return 1 + count_below(ranked, bounds)


def logit_norm(
    logits: Float[Array, "*rows key"], visible: Bool[Array, "*#rows key"] | None = None
) -> Float[Array, "*rows"]:
    """Return the norm s of a row's logits about their mean, over the visible keys."""
    xp = namespace(logits)
    if visible is None:
        visible = same_kind(logits, True)
    seen = xp.astype(visible, logits.dtype) * xp.ones_like(logits)
    kept = xp.where(visible, logits, 0.0)
    mean = xp.sum(kept, axis=-1, keepdims=True) / xp.sum(seen, axis=-1, keepdims=True)
    centred = xp.where(visible, logits - mean, 0.0)
    return xp.sqrt(xp.sum(centred * centred, axis=-1))


def entropy_floor(
    norm: Float[Array, "*rows"], visible_keys: Float[Array, "*#rows"]
) -> Float[Array, "*rows"]:
    """Return the least entropy that n logits of centred norm s can have.

    Zhai et al. (2023), Theorem 3.1: with beta = s sqrt(n / (n - 1)) it is
    ln(1 + (n - 1) e^-beta) + beta (n - 1) e^-beta / (1 + (n - 1) e^-beta), reached where one key
    stands out and the others are equal.
    """
    xp = namespace(norm)
    others = cast_like(norm, visible_keys) - 1
    # with one key s = 0, so the factor does not matter
    beta = norm * xp.sqrt((others + 1) / xp.where(others > 0, others, 1.0))
    rest = others * xp.exp(-beta)
    return xp.log1p(rest) + beta * rest / (1 + rest)


def total_variation(
    maps: Float[Array, "*rows key"], other: Float[Array, "*rows key"]
) -> Float[Array, "*rows"]:
    """Return half of sum |p - q|: the fraction of attention that moved."""
    xp = namespace(maps)
    return xp.sum(xp.abs(maps - other), axis=-1) / 2
