"""Attention by position: sinks, self, neighbours, distance, repeated tokens, graphs of positions.

Functions of attention weights (..., query, key), as those of `attnlab.measures.maps`. `at` has the
position of each query among the keys, (..., query); by default the last query is the last key.
`start` is the first key of a query's own text, where that is not 0: behind padding, in packed
sequences. `parents` has the parent of each of the first positions, counted from 0; -1 for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.files.errors import InputError
from attnlab.measures.arrays import Array, arange_like, namespace, same_kind

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    Maps = Float[Array, "*rows query key"]
    Row = Float[Array, "*rows query"]
    Positions = Int[Array, "*#rows #query"] | None

FIRST = (1, 4)  # how many first keys count as the sink
SINK_RATE = 0.3
SINK_SEEN = 0.5  # a sink is a key that at least this share of the queries sees
LOCAL = 64


def sink_mass(maps: Maps, first: Sequence[int] = FIRST, *, start: Any = 0) -> Row:
    """Return the attention to the first keys, 1 and 4 of them; the counts are the last dim."""
    xp = namespace(maps)
    start = same_kind(maps, 0) + start
    sums, last = [], 0.0
    for i in range(max(first)):
        last = last + _mass_at(maps, start + i)
        sums.append(last)
    return xp.stack([sums[count - 1] for count in first], axis=-1)


def sink_rate(received: Float[Array, "*heads"], threshold: float = SINK_RATE) -> Any:
    """Return 1 where the first key receives more than this on average (Gu et al. 2025).

    received: alpha_1, the mean over all queries of their attention to it. The mean over sequences
    and heads is the rate.
    """
    xp = namespace(received)
    return xp.where(xp.isnan(received), xp.nan, xp.astype(received > threshold, received.dtype))


def self_mass(maps: Maps, *, at: Positions = None) -> Row:
    """Return the attention of a query to its own position."""
    return _mass_at(maps, _positions(maps, at))


def previous_mass(maps: Maps, *, at: Positions = None) -> Row:
    """Return the attention to the key just before."""
    return _mass_at(maps, _positions(maps, at) - 1)


def local_mass(maps: Maps, reach: int = LOCAL, *, at: Positions = None) -> Row:
    """Return the attention to keys nearer than `reach`, the own position among them."""
    xp = namespace(maps)
    return xp.sum(xp.where(distance(maps, at=at) < reach, maps, 0.0), axis=-1)


def mean_distance(maps: Maps, *, at: Positions = None) -> Row:
    """Return the mean distance of attended keys, without the part of a learnable sink."""
    xp = namespace(maps)
    far = xp.sum(maps * xp.astype(distance(maps, at=at), maps.dtype), axis=-1)
    return far / xp.sum(maps, axis=-1)


def induction_mass(
    maps: Maps,
    tokens: Int[Array, "*#rows key"],
    *,
    visible: Bool[Array, "*#rows query key"] | None = None,
    at: Positions = None,
    start: Any = 0,
) -> Row:
    """Return the attention to keys after an earlier occurrence of the query's token, minus chance.

    Chance is what even attention to the visible keys would give them. NaN where there is none.
    """
    target = followers(tokens, _positions(maps, at), start=start)
    return _above_chance(maps, target, visible, at)


def duplicate_mass(
    maps: Maps,
    tokens: Int[Array, "*#rows key"],
    *,
    visible: Bool[Array, "*#rows query key"] | None = None,
    at: Positions = None,
    start: Any = 0,
) -> Row:
    """Return the attention to earlier occurrences of the query's token, minus chance.

    Chance is what even attention to the visible keys would give them. NaN where there is none.
    """
    target = occurrences(tokens, _positions(maps, at), start=start)
    return _above_chance(maps, target, visible, at)


def mass_on(maps: Maps, keys: Bool[Array, "*#rows #query key"]) -> Row:
    """Return the attention to the keys that are True."""
    xp = namespace(maps)
    return xp.sum(xp.where(keys, maps, 0.0), axis=-1)


def followers(
    tokens: Int[Array, "*#rows key"], at: Int[Array, "*#rows query"], *, start: Any = 0
) -> Bool[Array, "*rows query key"]:
    """Return which keys follow an earlier occurrence of the token of each query."""
    xp = namespace(tokens)
    key = _keys(tokens)
    before = tokens[..., xp.clip(key - 1, 0, None)]  # the first follows nothing: see start
    start = (same_kind(tokens, 0) + start)[..., None]
    return _same(before, tokens, at) & (key - 1 >= start)


def occurrences(
    tokens: Int[Array, "*#rows key"], at: Int[Array, "*#rows query"], *, start: Any = 0
) -> Bool[Array, "*rows query key"]:
    """Return which keys are earlier occurrences of the token of each query."""
    key = _keys(tokens)
    start = (same_kind(tokens, 0) + start)[..., None]
    return _same(tokens, tokens, at) & (key >= start)


def chance(
    target: Bool[Array, "*#rows query key"], visible: Bool[Array, "*#rows query key"], kind: Any
) -> Row:
    """Return what even attention to the visible keys gives the targets; NaN if none is visible.

    kind: the dtype of the result.
    """
    xp = namespace(target)
    shown = (target & visible, visible)
    targets, seen = (xp.sum(xp.astype(one, kind), axis=-1) for one in shown)
    return xp.where(targets > 0, targets / seen, xp.nan)


def distance(maps: Maps, *, at: Positions = None) -> Int[Array, "*#rows query key"]:
    """Return the distance of each key from each query."""
    return abs(_positions(maps, at)[..., None] - _keys(maps))


def _same(matched: Any, tokens: Any, at: Any) -> Any:
    """Return the earlier keys whose matched token is that of the query."""
    xp = namespace(tokens)
    key = _keys(tokens)
    lead = tokens.shape[:-1]
    asked = xp.take_along_axis(
        tokens, xp.broadcast_to(at, (*lead, at.shape[-1])), axis=-1
    )  # the queries' own tokens
    return (matched[..., None, :] == asked[..., None]) & (key < at[..., None])


def _above_chance(maps: Maps, target: Any, visible: Any, at: Positions) -> Row:
    if visible is None:
        visible = _keys(maps) <= _positions(maps, at)[..., None]
    xp = namespace(maps)
    mass = xp.sum(xp.where(target & visible, maps, 0.0), axis=-1)
    return mass - chance(target, visible, maps.dtype)


def _mass_at(maps: Maps, key: Any) -> Row:
    """Return the attention to one key for each query; 0 where the key does not exist."""
    xp = namespace(maps)
    keys = maps.shape[-1]
    key = xp.broadcast_to(key, maps.shape[:-1])[..., None]
    there = (key >= 0) & (key < keys)
    found = xp.take_along_axis(maps, xp.clip(key, 0, keys - 1), axis=-1)
    return xp.where(there, found, 0.0)[..., 0]


def _keys(array: Array) -> Any:
    return arange_like(array, 0, array.shape[-1])


def _positions(maps: Maps, at: Positions) -> Any:
    if at is not None:
        return at
    queries, keys = maps.shape[-2:]
    return arange_like(maps, keys - queries, keys)


# -- why a first position is a sink: its logit, its value, its residual stream ---------------------


def sink_logit(logits: Float[Array, "*rows query key"]) -> Float[Array, "*rows query"]:
    """Return the first key's logit minus the mean of the other keys' up to the query's position.

    The last query is the last key. Later keys do not count, whatever their logits. NaN where the
    query sees no other key.
    """
    xp = namespace(logits)
    key = _keys(logits)
    others = (key >= 1) & (key <= _positions(logits, None)[..., None])
    count = xp.sum(xp.astype(others, logits.dtype), axis=-1)
    total = xp.sum(xp.where(others, logits, 0.0), axis=-1)
    mean = total / xp.where(count > 0, count, 1.0)
    return xp.where(count > 0, logits[..., 0] - mean, xp.nan)


def first_ratio(
    norms: Float[Array, "*rows position"], keys: Float[Array, "*#rows position"] | None = None
) -> Float[Array, "*rows"]:
    """Return the first position's norm over the mean of the others.

    Of values, below 1 it is a value drain; of the residual stream, above 1 it is a residual peak.

    Parameters
    ----------
    norms : array, (..., position)
        The norm of each position.
    keys : array, (..., position), optional
        1 for positions that count, 0 for padding; all count by default. NaN where one counts alone.
    """
    xp = namespace(norms)
    keys = xp.ones_like(norms) if keys is None else xp.astype(keys, norms.dtype)
    first = keys * xp.astype(xp.cumulative_sum(keys, axis=-1) == 1, norms.dtype)
    others = keys - first
    number = xp.sum(others, axis=-1)
    rest = xp.sum(norms * others, axis=-1) / xp.where(number > 0, number, xp.nan)
    return xp.sum(norms * first, axis=-1) / rest


# -- a graph of positions --------------------------------------------------------------------------


def parent_attention(maps: Maps, parents: Any) -> Float[Array, "*rows child"]:
    """Return the attention of each position with a parent to that parent, by position.

    Parameters
    ----------
    maps : array, (..., query, key)
        Attention weights.
    parents : array_like of int
        The parent of each position; -1 where it has none.
    """
    children, above = _children(parents)
    return maps[..., children, above]


def parent_recovery(maps: Maps, parents: Any) -> Float[Array, "*rows"]:
    """Return the fraction of positions with a parent that attend to it most.

    Parameters
    ----------
    maps : array, (..., query, key)
        Attention weights.
    parents : array_like of int
        The parent of each position; -1 where it has none.
    """
    xp = namespace(maps)
    children, above = _children(parents)
    hit = xp.argmax(maps[..., children, :], axis=-1) == xp.asarray(above)
    return xp.mean(xp.astype(hit, maps.dtype), axis=-1)


def _children(parents: Any) -> tuple[np.ndarray, np.ndarray]:
    above = np.asarray(parents)
    children = np.flatnonzero(above >= 0)
    if not children.size:
        raise InputError("parents: no position has a parent; give at least one that is 0 or more")
    return children, above[children]
