"""Visible keys of a call, and the rows (queries) that are measured.

Sampled rows are stratified: the rows of a sequence, in their order, are cut into parts of equal
length, and two are drawn from each. Two, because one alone would not say how rows of a part differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError, require_whole
from attnlab.measures.arrays import Array, beside, is_torch, namespace, to_numpy
from attnlab.observing.call import AttentionCall, CallPart, even_cuts

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

BYTES_OF_A_PLACE = 16  # bytes for each query and key while what is visible is counted
OF_EACH_PART = 2
ALL = slice(None)
_Chosen = tuple[NDArray[Any], NDArray[Any]]  # rows of one sequence, and how many each stands for


class TooShort(InputError):
    """No query of the sequences sees enough keys."""


@dataclass(frozen=True, eq=False)
class Visibility:
    """Visible keys of all queries of a call, in numpy.

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

    def cut(self, sequences: slice) -> Visibility:
        """Return the part of these sequences."""
        fields = ("counts", "eligible", "short", "starts", "keys", "tokens")
        arrays = {name: getattr(self, name) for name in fields}
        cut = {name: array[sequences] for name, array in arrays.items() if array is not None}
        return replace(self, **cut)

    def at(self, name: str, index: Int[Any, "batch row"]) -> NDArray[Any]:
        """Return `counts` or `starts` of these queries."""
        values = getattr(self, name)
        index = index if values.ndim == 2 else index[:, None, :]
        return np.take_along_axis(values, index, axis=-1)

    def counted(self, index: Int[Any, "batch row"]) -> Bool[Any, "batch heads row"]:
        """Check whether these queries see enough keys, head by head."""
        return self.at("counts", index) >= self.min_keys


def find_visibility(
    call: AttentionCall, *, min_keys: int, budget_bytes: int, tokens: Any = None,
    present: Any = None, starts: Any = None,
) -> Visibility:  # fmt: skip
    """Find the visible keys from masks and padding. The arguments are those of `statistics`."""
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
    return Visibility(counts, eligible, short, starts, seen, tokens, min_keys, later)


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
    """Count visible keys without a mask, where a query sees a run of keys."""
    batch, _, queries, keys = call.shape
    place = np.arange(queries) + (keys - queries)
    first, last = (np.clip(end, -1, keys) for end in call.span(place))
    first = np.maximum(first, 0)
    counts = np.maximum(0, np.minimum(last, keys - 1) + 1 - first)
    some = there & (counts > 0)
    seen = np.zeros((batch, keys), bool)
    for b in range(batch):
        seen[b] = coverage(keys, first[some[b]], (first + counts)[some[b]]) > 0
    later = bool((some & (first + counts - 1 > place)).any())
    return np.broadcast_to(counts, (batch, 1, queries)), seen, later


def coverage(
    keys: int, first: Int[Any, " query"], after: Int[Any, " query"], weight: Any = None
) -> NDArray[Any]:
    """Return how many queries, each with its weight, see a key, of the runs that they see."""
    begun, ended = (np.bincount(end, weight, keys + 1) for end in (first, after))
    return np.cumsum(begun - ended)[:keys]


def _by_mask(
    call: AttentionCall, there: Bool[Any, "batch query"], budget_bytes: int
) -> tuple[NDArray[Any], NDArray[Any], bool, NDArray[Any], NDArray[Any]]:
    """Count visible keys, a block of queries at a time; return also which queries see their own
    key, and the first key that each sees."""
    batch, _, queries, keys = call.shape
    assert call.full_mask is not None
    heads = call.full_mask.shape[1]
    counts = np.zeros((batch, heads, queries), np.int64)
    seen, later, itself = np.zeros((batch, keys), bool), False, np.zeros((batch, queries), bool)
    first = np.full((batch, queries), keys)
    for b in range(batch):
        part = CallPart.of(call, slice(b, b + 1))
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


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of every sequence; sequences with fewer are filled up with rows of weight 0.

    index: the queries. weight: how many rows of the sequence each stands for; more than 1 where
    it was drawn, and then the two of a part are neighbours here.
    """

    index: Int[Any, "batch row"]
    weight: Float[Any, "batch row"]

    def __len__(self) -> int:
        return self.index.shape[1]

    @property
    def factor(self) -> Float[Any, "batch part"]:
        """Factors of the squared difference of the two rows of each part.

        size^2 (1 - 2/size) s^2 / 2 with s^2 = (first - second)^2 / 2; a part of 2 rows or fewer is
        all here.
        """
        size = self.weight[:, 0::2] + self.weight[:, 1::2]
        return np.maximum(0.0, size * (size - OF_EACH_PART) / 4)

    def cut(self, sequences: slice, rows: slice = ALL) -> Rows:
        """Return some of them."""
        return Rows(self.index[sequences, rows], self.weight[sequences, rows])


def choose_rows(eligible: Bool[Any, "batch query"], rows: int | None, *, seed: int = 0) -> Rows:
    """Choose all eligible rows, or about `rows` of them in all, as many of each sequence."""
    if rows is None:
        return _filled([_all_of(np.flatnonzero(one)) for one in eligible])
    require_whole("rows", rows, OF_EACH_PART)
    require_whole("seed", seed, 0)
    rng = np.random.default_rng(seed)  # the same rows at every step
    parts = max(1, rows // len(eligible) // OF_EACH_PART)
    return _filled([_stratified(np.flatnonzero(one), parts, rng) for one in eligible])


def spread_rows(eligible: Bool[Any, "batch query"], rows: int) -> Rows:
    """Choose `rows` eligible rows of each sequence, evenly spread, the last among them."""
    chosen = []
    for one in eligible:
        there = np.flatnonzero(one)
        at = np.linspace(0, there.size - 1, min(rows, there.size) + 1)[1:]
        chosen.append(_all_of(there[np.unique(at.round().astype(int))]))
    return _filled(chosen)


def last_rows(eligible: Bool[Any, "batch query"], rows: int, *, before: int = 0) -> Rows:
    """Choose the last eligible rows of each sequence, but for the last `before` of them."""
    chosen = []
    for one in eligible:
        there = np.flatnonzero(one)
        end = max(0, there.size - before)
        chosen.append(_all_of(there[max(0, end - rows) : end]))
    return _filled(chosen)


def weighted_mean(
    number: Float[Array, "*layer batch head row statistic"],
    weight: Float[Array, "#batch #head row"],
    factor: Float[Array, "batch 1 part 1"] | None,
) -> tuple[
    Float[Array, "*layer batch head statistic"], Float[Array, "*layer batch head statistic"]
]:
    """Return the mean over a sequence's rows that these estimate, and its standard error.

    number: in float64. weight: how many rows each stands for, 0 where it does not count. factor:
    `Rows.factor`; None where all rows are here, and then the error is 0.
    Rows that do not count, and values that are NaN, are in neither. The variance is that of a
    stratified sample without replacement (Cochran 1977, Eq. 5.14), linearised because the number
    of rows that count may be an estimate too.
    """
    xp = namespace(number)
    weights = weight[..., None] * ~xp.isnan(number)
    number = xp.where(weights > 0, number, 0.0)  # rows that fill up may be inf
    total = xp.sum(weights, axis=-2)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = xp.sum(weights * number, axis=-2) / total  # NaN where no row counts
    if factor is None:
        return mean, mean * 0.0
    residual = xp.where(weights > 0, number - mean[..., None, :], 0.0)
    first, second = (residual[..., i::2, :] for i in range(OF_EACH_PART))
    variance = xp.sum(factor * (first - second) ** 2, axis=-2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return mean, xp.sqrt(variance) / total


def _stratified(there: NDArray[Any], parts: int, rng: np.random.Generator) -> _Chosen:
    if there.size <= OF_EACH_PART * parts:
        return there, np.ones(there.size)
    # each part has at least two rows
    ends = np.linspace(0, there.size, parts + 1).round().astype(int)
    sizes = np.diff(ends)
    first, second = rng.integers(0, sizes), rng.integers(0, sizes - 1)
    second += second >= first  # another one
    drawn = ends[:-1, None] + np.sort(np.stack([first, second], axis=1), axis=1)
    return there[drawn.ravel()], np.repeat(sizes / OF_EACH_PART, OF_EACH_PART)


def _all_of(index: NDArray[Any]) -> _Chosen:
    return index, np.ones(index.size)


def _filled(chosen: list[_Chosen]) -> Rows:
    """Put sequences side by side, with an even number of rows."""
    longest = max(index.size for index, _ in chosen)
    shape = (len(chosen), longest + longest % OF_EACH_PART)
    index, weight = np.zeros(shape, np.int64), np.zeros(shape)
    for b, (at, stands_for) in enumerate(chosen):
        index[b, : at.size], weight[b, : at.size] = at, stands_for
    return Rows(index, weight)
