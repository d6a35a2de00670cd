"""What is known of a call before its maps are made: how many keys queries see, and from where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError, require_whole
from attnlab.measures.arrays import beside, is_torch, namespace, to_numpy
from attnlab.observing.block import Part, even_cuts
from attnlab.observing.call import AttentionCall

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

BYTES_OF_A_PLACE = 16  # bytes for each query and key while what is visible is counted


class TooShort(InputError):
    """No query of the sequences sees enough keys."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Of all queries of a call, in numpy.

    counts: visible keys. eligible: whether a query counts in means over rows. short: whether it
    sees keys, but too few to count. starts: the first key of its own text. keys: whether some query
    that is not padding sees the key. tokens: of the keys. later: whether some query sees a key
    after its own place.
    """

    counts: Int[Any, "batch heads query"]
    eligible: Bool[Any, "batch query"]
    short: Bool[Any, "batch query"]
    starts: Int[Any, "batch query"]
    keys: Bool[Any, "batch key"]
    tokens: Int[Any, "batch key"] | None
    min_keys: int
    later: bool

    def cut(self, sequences: slice) -> Plan:
        """Of these sequences."""
        fields = ("counts", "eligible", "short", "starts", "keys", "tokens")
        arrays = {name: getattr(self, name) for name in fields}
        cut = {name: array[sequences] for name, array in arrays.items() if array is not None}
        return replace(self, **cut)

    def at(self, name: str, index: Int[Any, "batch row"]) -> NDArray[Any]:
        """`counts` or `starts` of these queries."""
        values = getattr(self, name)
        index = index if values.ndim == 2 else index[:, None, :]
        return np.take_along_axis(values, index, axis=-1)

    def counted(self, index: Int[Any, "batch row"]) -> Bool[Any, "batch heads row"]:
        """Whether these queries see enough keys, head by head."""
        return self.at("counts", index) >= self.min_keys


def plan_of(
    call: AttentionCall, *, tokens: Any, present: Any, starts: Any, min_keys: int, budget_bytes: int
) -> Plan:
    """Look at masks and padding. The arguments are those of `statistics`."""
    require_whole("min_keys", min_keys, 1)
    batch, _, queries, keys = call.shape
    tokens = _given("tokens", tokens, (batch, keys))
    present = _given("present", present, (batch, queries))
    starts = _given("starts", starts, (batch, queries))
    there = np.ones((batch, queries), bool) if present is None else present.astype(bool)
    if call.full_mask is None:
        counts, seen, later = _by_span(call, there)
    else:
        counts, seen, later, itself, first = _by_mask(call, there, budget_bytes)
        padding = ~seen[:, keys - queries :] if keys >= queries else np.zeros_like(there)
        padding &= (itself | padding).all(axis=1, keepdims=True)
        if queries == keys:
            padding |= _before_the_text(counts.max(axis=1), itself, first, tokens)
        if present is None and not call.cross and padding.any():
            # a key that no query sees, not even its own, is padding, where all other queries see
            # their own; and so is what `_before_the_text` finds
            there = ~padding
            counts, seen, later, _, _ = _by_mask(call, there, budget_bytes)
    eligible = there & (counts.max(axis=1) >= min_keys)
    if not eligible.any():
        raise TooShort(
            f"min_keys: no query sees {min_keys} keys (the most is {counts.max()}); "
            "give longer sequences, or a smaller min_keys"
        )
    if starts is None:
        starts = np.broadcast_to(seen.argmax(axis=1)[:, None], (batch, queries))
    short = there & ~eligible & (counts.max(axis=1) > 0)
    return Plan(counts, eligible, short, starts, seen, tokens, min_keys, later)


def _before_the_text(
    counts: Int[Any, "batch query"], itself: Bool[Any, "batch query"],
    first: Int[Any, "batch query"], tokens: Int[Any, "batch key"] | None,
) -> Bool[Any, "batch query"]:  # fmt: skip
    """Return which positions are padding before the text whose queries see keys nevertheless.

    A softmax over nothing is not a number, so that models show such queries all keys, or their own
    alone. No query of the text sees the keys of its padding. Where queries of padding see what came
    before them, only the tokens tell it from a text of its own: they are all the same.
    """
    batch, length = counts.shape
    padding = np.zeros((batch, length), bool)
    for b in range(batch):
        position = np.arange(length)
        whole = (counts[b] == length) & (position < length - 1)
        odd = whole | (counts[b] == 0) | ((counts[b] == 1) & itself[b])
        same = odd if tokens is None else odd | (tokens[b] == tokens[b, 0])
        hidden = np.minimum.accumulate(first[b, ::-1])[::-1] >= position  # what is before, to all
        sees = np.logical_and.accumulate(itself[b, ::-1])[::-1]
        alike = np.logical_and.accumulate(odd) | np.logical_and.accumulate(same)
        ends = np.flatnonzero(hidden[1:] & sees[1:] & alike[:-1])
        if ends.size:
            padding[b, : ends[-1] + 1] = True
    return padding


def _by_span(
    call: AttentionCall, there: Bool[Any, "batch query"]
) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Without a mask a query sees a run of keys."""
    batch, _, queries, keys = call.shape
    place = np.arange(queries) + (keys - queries)
    first, last = (np.clip(end, -1, keys) for end in call.span(place))
    first = np.maximum(first, 0)
    counts = np.maximum(0, np.minimum(last, keys - 1) + 1 - first)
    some = there & (counts > 0)
    seen = np.zeros((batch, keys), bool)
    for b in range(batch):
        begun = np.bincount(first[some[b]], minlength=keys + 1)
        ended = np.bincount(first[some[b]] + counts[some[b]], minlength=keys + 1)
        seen[b] = np.cumsum(begun - ended)[:keys] > 0
    later = bool((some & (first + counts - 1 > place)).any())
    return np.broadcast_to(counts, (batch, 1, queries)), seen, later


def _by_mask(
    call: AttentionCall, there: Bool[Any, "batch query"], budget_bytes: int
) -> tuple[NDArray[Any], NDArray[Any], bool, NDArray[Any], NDArray[Any]]:
    """What is visible is made, a block of queries at a time, and counted; last, which queries see
    their own key, and the first key that each sees."""
    batch, _, queries, keys = call.shape
    assert call.full_mask is not None
    heads = call.full_mask.shape[1]
    counts = np.zeros((batch, heads, queries), np.int64)
    seen, later, itself = np.zeros((batch, keys), bool), False, np.zeros((batch, queries), bool)
    first = np.full((batch, queries), keys)
    for b in range(batch):
        part = Part.of(call, slice(b, b + 1))
        for rows in even_cuts(queries, max(1, budget_bytes // (heads * keys * BYTES_OF_A_PLACE))):
            index = np.arange(queries)[rows]
            visible = part.visible(beside(call.query, index[None]))[0]  # head row key
            xp = namespace(visible)
            counts[b, :, rows] = to_numpy(xp.sum(xp.astype(visible, xp.int32), axis=-1))
            shown = xp.any(visible, axis=0) & beside(call.query, there[b, rows])[:, None]
            seen[b] |= to_numpy(xp.any(shown, axis=0))
            place = beside(call.query, index + (keys - queries))[:, None]
            key = beside(call.query, np.arange(keys))
            later |= bool(xp.any(shown & (key > place)))
            itself[b, rows] = to_numpy(xp.any(shown & (key == place), axis=-1))
            first[b, rows] = to_numpy(xp.min(xp.where(shown, key, keys), axis=-1))
    return counts, seen, later, itself, first


def _given(field: str, values: Any, shape: tuple[int, int]) -> NDArray[Any] | None:
    if values is None:
        return None
    array = to_numpy(values) if is_torch(values) else np.asarray(values)
    if array.shape != shape:
        raise InputError(f"{field}: expected shape {shape}, got {array.shape}")
    if field != "present" and array.dtype.kind not in "biu":
        raise InputError(f"{field}: expected whole numbers, got {array.dtype}")
    return array
