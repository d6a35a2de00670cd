"""Attention by position: sinks, self, neighbours, distance, repeated tokens.

Functions of plain maps, (..., query, key), as those of `attnlab.measures.maps`. `places` says where
each query stands among the keys, (..., query); by default the last query is the last key. `start`
is the first key of a query's own text, where that is not 0: behind padding, in packed sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.measures.arrays import Array, beside, namespace

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    Maps = Float[Array, "*rows query key"]
    Row = Float[Array, "*rows query"]
    Places = Int[Array, "*#rows #query"] | None

FIRST = (1, 4)  # how many first keys count as the sink
SINK_RATE = 0.3
SINK_SEEN = 0.5  # a sink is a key that at least this share of the queries sees
LOCAL = 64


def sink_mass(maps: Maps, first: Sequence[int] = FIRST, *, start: Any = 0) -> Row:
    """The attention to the first keys, 1 and 4 of them; the counts are the last dim."""
    xp = namespace(maps)
    start = beside(maps, 0) + start
    sums, last = [], 0.0
    for i in range(max(first)):
        last = last + _mass_at(maps, start + i)
        sums.append(last)
    return xp.stack([sums[count - 1] for count in first], axis=-1)


def sink_rate(received: Float[Array, "*heads"], threshold: float = SINK_RATE) -> Any:
    """Tell whether the first key receives more than this on average (Gu et al. 2025).

    received: alpha_1, the mean over all queries of their attention to it. The mean over sequences
    and heads is the rate.
    """
    xp = namespace(received)
    return xp.where(xp.isnan(received), xp.nan, xp.astype(received > threshold, received.dtype))


def self_mass(maps: Maps, *, places: Places = None) -> Row:
    """The attention of a query to its own place."""
    return _mass_at(maps, _places(maps, places))


def previous_mass(maps: Maps, *, places: Places = None) -> Row:
    """The attention to the key just before."""
    return _mass_at(maps, _places(maps, places) - 1)


def local_mass(maps: Maps, reach: int = LOCAL, *, places: Places = None) -> Row:
    """The attention to keys nearer than `reach`, its own place among them."""
    xp = namespace(maps)
    return xp.sum(xp.where(distance(maps, places=places) < reach, maps, 0.0), axis=-1)


def mean_distance(maps: Maps, *, places: Places = None) -> Row:
    """The mean distance of what is attended to, in keys; a learnable sink's share is left out."""
    xp = namespace(maps)
    far = xp.sum(maps * xp.astype(distance(maps, places=places), maps.dtype), axis=-1)
    return far / xp.sum(maps, axis=-1)


def induction_mass(
    maps: Maps,
    tokens: Int[Array, "*#rows key"],
    *,
    visible: Bool[Array, "*#rows query key"] | None = None,
    places: Places = None,
    start: Any = 0,
) -> Row:
    """The attention to keys that follow an earlier occurrence of the query's token, minus chance.

    Chance is what even attention to the visible keys would give them. NaN where there is none.
    """
    target = followers(tokens, _places(maps, places), start=start)
    return _above_chance(maps, target, visible, places)


def duplicate_mass(
    maps: Maps,
    tokens: Int[Array, "*#rows key"],
    *,
    visible: Bool[Array, "*#rows query key"] | None = None,
    places: Places = None,
    start: Any = 0,
) -> Row:
    """The attention to earlier occurrences of the query's token, minus chance.

    Chance is what even attention to the visible keys would give them. NaN where there is none.
    """
    target = occurrences(tokens, _places(maps, places), start=start)
    return _above_chance(maps, target, visible, places)


def mass_on(maps: Maps, keys: Bool[Array, "*#rows #query key"]) -> Row:
    """The attention to these keys."""
    xp = namespace(maps)
    return xp.sum(xp.where(keys, maps, 0.0), axis=-1)


def followers(
    tokens: Int[Array, "*#rows key"], places: Int[Array, "*#rows query"], *, start: Any = 0
) -> Bool[Array, "*rows query key"]:
    """Return which keys follow an earlier occurrence of the token of each query."""
    xp = namespace(tokens)
    key = beside(tokens, np.arange(tokens.shape[-1]))
    before = tokens[..., xp.clip(key - 1, 0, None)]  # the first follows nothing: see start
    start = (beside(tokens, 0) + start)[..., None]
    return _same(before, tokens, places) & (key - 1 >= start)


def occurrences(
    tokens: Int[Array, "*#rows key"], places: Int[Array, "*#rows query"], *, start: Any = 0
) -> Bool[Array, "*rows query key"]:
    """Return which keys are earlier occurrences of the token of each query."""
    key = beside(tokens, np.arange(tokens.shape[-1]))
    start = (beside(tokens, 0) + start)[..., None]
    return _same(tokens, tokens, places) & (key >= start)


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


def distance(maps: Maps, *, places: Places = None) -> Int[Array, "*#rows query key"]:
    """Return the distance of each key from each query."""
    key = beside(maps, np.arange(maps.shape[-1]))
    return abs(_places(maps, places)[..., None] - key)


def _same(matched: Any, tokens: Any, places: Any) -> Any:
    """Earlier keys whose matched token is that of the query."""
    xp = namespace(tokens)
    key = beside(tokens, np.arange(tokens.shape[-1]))
    lead = tokens.shape[:-1]
    asked = xp.take_along_axis(
        tokens, xp.broadcast_to(places, (*lead, places.shape[-1])), axis=-1
    )  # the queries' own tokens
    return (matched[..., None, :] == asked[..., None]) & (key < places[..., None])


def _above_chance(maps: Maps, target: Any, visible: Any, places: Places) -> Row:
    if visible is None:
        key = beside(maps, np.arange(maps.shape[-1]))
        visible = key <= _places(maps, places)[..., None]
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


def _places(maps: Maps, places: Places) -> Any:
    if places is not None:
        return places
    queries, keys = maps.shape[-2:]
    return beside(maps, np.arange(queries) + (keys - queries))
