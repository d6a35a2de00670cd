"""Query plan of a call: everything that does not depend on its queries and keys.

It holds the rows to measure, the keys that they see, and the weights of both. Most layers of a
model share one plan. *Rows* are queries of a sequence; *visible* keys are those that a query may
attend to.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError, require_whole
from attnlab.measures import arrays, positions
from attnlab.measures.arrays import Array, is_torch, namespace, same_kind, to_numpy
from attnlab.measures.received import token_counts
from attnlab.observing import call as calls
from attnlab.observing import kernels, kv_cache
from attnlab.observing.call import AttentionCall, CallPart, Heads, VisibleKeys, even_cuts
from attnlab.observing.layer_statistics import Labels

MAP_ROWS = 8  # rows of each sequence whose attention weights are kept, to measure their motion,
MAP_BYTES = 2**24  # or fewer, where those of all sequences would be larger than this
SINKS = max(positions.FIRST)
EXTRA_ROWS = ("later", "voters", "fixed", "short")  # measured beside the chosen rows, in this order
VISIBLE_BYTES = 16  # for each query and key while visible keys are counted,
CHANCE_BYTES = 48  # and while those that even attention would give are
MOST_COLUMNS = 24  # statistics of a row
PART = 2  # rows drawn from each part of a stratified sample


class TooShort(InputError):
    """No query of the sequences sees enough keys."""


@dataclass(frozen=True, eq=False)
class Visibility:
    """Visible keys of all queries of a call, in numpy.

    counts: number of visible keys. eligible: queries that count in means over rows. short: queries
    that see keys, but too few to count. starts: the first key of each query's own text. keys: keys
    that some query sees, padding left out. tokens: of the keys. later: whether some query sees a
    key after its own position.
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
        whole: dict[str, Any] = {n: v for n, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **{name: values[sequences] for name, values in whole.items()})

    def at(self, name: str, index: Int[Any, "batch row"]) -> NDArray[Any]:
        """Return `counts` or `starts` of these queries."""
        values = getattr(self, name)
        index = index if values.ndim == 2 else index[:, None, :]
        return np.take_along_axis(values, index, axis=-1)

    def counted(self, index: Int[Any, "batch row"]) -> Bool[Any, "batch heads row"]:
        """Check whether these queries see enough keys, head by head."""
        return self.at("counts", index) >= self.min_keys


def find_visibility(
    call: AttentionCall,
    *,
    min_keys: int,
    budget_bytes: int,
    tokens: Any = None,
    present: Any = None,
    starts: Any = None,
) -> Visibility:
    """Find the visible keys from masks and padding; arguments as for `statistics`."""
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
            # where all other queries see their own key, a key that no query sees is padding; so is
            # what `_before_the_text` finds
            there = ~padding
            counts, seen, later, _, _ = _by_mask(call, there, budget_bytes)
    eligible = there & (counts.max(axis=1) >= min_keys)
    if not eligible.any():
        raise TooShort(
            f"min_keys: no query sees {min_keys} keys (the most is {counts.max()}); "
            "give longer sequences or a smaller min_keys"
        )
    if starts is None:
        starts = np.broadcast_to(seen.argmax(axis=1)[:, None], (batch, queries))
    short = there & ~eligible & (counts.max(axis=1) > 0)
    return Visibility(counts, eligible, short, starts, seen, tokens, min_keys, later)


def _before_the_text(
    counts: Int[Any, "batch query"],
    itself: Bool[Any, "batch query"],
    first: Int[Any, "batch query"],
    tokens: Int[Any, "batch key"] | None,
) -> Bool[Any, "batch query"]:
    """Return positions of padding before the text whose queries see keys nevertheless.

    A softmax over nothing is not a number, so that models show such queries all keys, or only their
    own. No query of the text sees the keys of its padding. Where queries of padding see the keys
    before them, only the tokens distinguish it from a text of its own: they are all the same.
    """
    batch, length = counts.shape
    padding = np.zeros((batch, length), bool)
    for b in range(batch):
        position = np.arange(length)
        whole = (counts[b] == length) & (position < length - 1)
        odd = whole | (counts[b] == 0) | ((counts[b] == 1) & itself[b])
        same = odd if tokens is None else odd | (tokens[b] == tokens[b, 0])
        hidden = np.minimum.accumulate(first[b, ::-1])[::-1] >= position  # no later query sees it
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
    position = np.arange(queries) + (keys - queries)
    first, last = (np.clip(end, -1, keys) for end in call.span(position))
    first = np.maximum(first, 0)
    counts = np.maximum(0, np.minimum(last, keys - 1) + 1 - first)
    some = there & (counts > 0)
    seen = np.zeros((batch, keys), bool)
    for b in range(batch):
        seen[b] = coverage(keys, first[some[b]], (first + counts)[some[b]]) > 0
    later = bool((some & (first + counts - 1 > position)).any())
    return np.broadcast_to(counts, (batch, 1, queries)), seen, later


def coverage(
    keys: int, first: Int[Any, " query"], after: Int[Any, " query"], weight: Any = None
) -> NDArray[Any]:
    """Return the summed weight of the queries that see each key, from the runs that they see."""
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
        for rows in even_cuts(queries, max(1, budget_bytes // (heads * keys * VISIBLE_BYTES))):
            index = np.arange(queries)[rows]
            visible = part.visible(same_kind(call.query, index[None]))[0]  # head row key
            xp = namespace(visible)
            counts[b, :, rows] = to_numpy(xp.sum(xp.astype(visible, xp.int32), axis=-1))
            shown = xp.any(visible, axis=0) & same_kind(call.query, there[b, rows])[:, None]
            seen[b] |= to_numpy(xp.any(shown, axis=0))
            position = same_kind(call.query, index + (keys - queries))[:, None]
            key = same_kind(call.query, np.arange(keys))
            later |= bool(xp.any(shown & (key > position)))
            itself[b, rows] = to_numpy(xp.any(shown & (key == position), axis=-1))
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

    index: the queries. weight: number of rows of the sequence that each stands for; more than 1
    where it was sampled, and then the two rows of a part are neighbours here.
    """

    index: Int[Any, "batch row"]
    weight: Float[Any, "batch row"]

    def __len__(self) -> int:
        return self.index.shape[1]

    @property
    def factor(self) -> Float[Any, "batch part"]:
        """Factors of the squared difference of the two rows of each part.

        size^2 (1 - 2/size) s^2 / 2 with s^2 = (first - second)^2 / 2; 0 for a part of 2 rows or
        fewer, which is complete.
        """
        size = self.weight[:, 0::2] + self.weight[:, 1::2]
        return np.maximum(0.0, size * (size - PART) / 4)

    def cut(self, sequences: slice, rows: slice) -> Rows:
        """Return some rows of some sequences."""
        return Rows(self.index[sequences, rows], self.weight[sequences, rows])

    @classmethod
    def of(cls, chosen: Iterable[NDArray[Any]], weights: Sequence[NDArray[Any]] = ()) -> Rows:
        """Put the rows of sequences side by side, an even number of them. weights: 1 by default."""
        several = list(chosen)
        longest = max(index.size for index in several)
        shape = (len(several), longest + longest % PART)
        index, weight = np.zeros(shape, np.int64), np.zeros(shape)
        for b, rows in enumerate(several):
            index[b, : rows.size] = rows
            weight[b, : rows.size] = weights[b] if weights else 1.0
        return cls(index, weight)


def choose_rows(eligible: Bool[Any, "batch query"], rows: int | None, *, seed: int = 0) -> Rows:
    """Choose all eligible rows, or about `rows` of them in all, equally many of each sequence."""
    if rows is None:
        return Rows.of(map(np.flatnonzero, eligible))
    require_whole("rows", rows, PART)
    require_whole("seed", seed, 0)
    rng = np.random.default_rng(seed)  # the same rows at every step
    parts = max(1, rows // len(eligible) // PART)
    sampled = [_stratified(np.flatnonzero(one), parts, rng) for one in eligible]
    return Rows.of([index for index, _ in sampled], [weight for _, weight in sampled])


def _stratified(
    index: NDArray[Any], parts: int, rng: np.random.Generator
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Draw two rows of each part; return them and the number of rows that each stands for."""
    if index.size <= PART * parts:
        return index, np.ones(index.size)
    # each part has at least two rows
    ends = np.linspace(0, index.size, parts + 1).round().astype(int)
    sizes = np.diff(ends)
    first, second = rng.integers(0, sizes), rng.integers(0, sizes - 1)
    second += second >= first  # another one
    drawn = ends[:-1, None] + np.sort(np.stack([first, second], axis=1), axis=1)
    return index[drawn.ravel()], np.repeat(sizes / PART, PART)


def spread_rows(eligible: Bool[Any, "batch query"], rows: int) -> Rows:
    """Choose `rows` eligible rows of each sequence, evenly spread, the last among them."""

    def spread(index: NDArray[Any]) -> NDArray[Any]:
        at = np.linspace(0, index.size - 1, min(rows, index.size) + 1)[1:]
        return index[np.unique(at.round().astype(int))]

    return Rows.of(map(spread, map(np.flatnonzero, eligible)))


def last_rows(eligible: Bool[Any, "batch query"], rows: int, *, before: int = 0) -> Rows:
    """Choose the last eligible rows of each sequence, except for the last `before` of them."""

    def last(index: NDArray[Any]) -> NDArray[Any]:
        end = max(0, index.size - before)
        return index[max(0, end - rows) : end]

    return Rows.of(map(last, map(np.flatnonzero, eligible)))


def weighted_mean(
    number: Float[Array, "*layer batch head row statistic"],
    weight: Float[Array, "#batch #head row"],
    factor: Float[Array, "batch 1 part 1"] | None,
) -> tuple[
    Float[Array, "*layer batch head statistic"], Float[Array, "*layer batch head statistic"]
]:
    """Return the mean over a sequence's rows that these estimate, and its standard error.

    number: of any precision; sums are in float64. weight: number of rows that each stands for, 0
    where it does not count.
    factor: `Rows.factor`; None where all rows are here, and then the error is 0.
    Rows that do not count, and values that are NaN, are left out. The variance is that of a
    stratified sample without replacement (Cochran 1977, Eq. 5.14), linearised because the number
    of rows that count may be an estimate too.
    """
    xp = namespace(number)
    add = partial(xp.sum, axis=-2, dtype=xp.float64)
    weights = weight[..., None] * ~xp.isnan(number)
    number = xp.where(weights > 0, number, 0.0)  # rows that fill up may be inf
    total = add(weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = add(weights * number) / total  # NaN where no row counts
    if factor is None:
        return mean, mean * 0.0
    residual = xp.where(weights > 0, number - arrays.cast_like(number, mean)[..., None, :], 0.0)
    first, second = (residual[..., i::2, :] for i in range(PART))
    variance = add(factor * (first - second) ** 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return mean, xp.sqrt(variance) / total


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """Plan of the rows of one block.

    number: number of visible keys, and 1 where there are none.
    weight: number of rows that each stands for; and the same in the prompt alone, 0 after it.
    at: keys whose attention is kept (the first ones; the row's own, the one before), and
    there: 0 where there is no such key.
    targets: factors of the attention to each key for `QueryPlan.of_rows`; whole numbers, which take
    less memory. chance: values to subtract from the sums.
    """

    seen: VisibleKeys
    number: Float[Array, "#batch #head row"]
    weight: Float[Array, "batch 2 row"]
    at: Int[Array, "batch 1 row single"]
    there: Float[Array, "batch 1 row single"]
    targets: Int[Array, "batch row column key"] | None
    chance: Float[Array, "#batch #head row column"]


@dataclass(frozen=True, eq=False)
class QueryPlan:
    """Plan of one call, and of all calls like it.

    chosen: rows of which means are taken. mapped: those of them whose attention weights are
    computed, all unless a fused program (`attnlab.observing.kernels`) measures the others. fixed:
    rows whose attention weights are kept. later, voters: rows that measure caches; none where
    queries see later keys. short: rows that see too few keys to be chosen. counts: of tokens.
    refusal: why no fused program measures, None if one does.
    """

    call: AttentionCall
    visibility: Visibility
    chosen: Rows
    mapped: Rows
    fixed: Rows
    later: Rows
    voters: Rows
    short: Rows
    counts: tuple[NDArray[Any], NDArray[Any]] | None
    budget_bytes: int
    refusal: str | None
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, call: AttentionCall, *, rows: int | None, seed: int, budget_bytes: int, **given: Any
    ) -> QueryPlan:
        """Plan how to measure a call; arguments as for `statistics`."""
        visibility = find_visibility(call, budget_bytes=budget_bytes, **given)
        batch, head, _, keys = call.shape
        eligible, tokens = visibility.eligible, visibility.tokens
        caches = not (visibility.later or call.cross)
        later = max(kv_cache.LEAST_LATER, kv_cache.LATER // batch) if caches else 0
        map_rows = max(1, min(MAP_ROWS, MAP_BYTES // (4 * batch * head * keys)))
        chosen = mapped = choose_rows(eligible, rows, seed=seed)
        refusal = kernels.refusal(call)
        if refusal is None and rows is None:
            few = choose_rows(eligible, kernels.rows_by_torch(call), seed=seed)
            mapped = few if len(few) < len(chosen) else chosen
        return cls(
            _shadow(call),
            visibility,
            chosen=chosen,
            mapped=mapped,
            fixed=spread_rows(eligible, map_rows),
            later=last_rows(eligible, later),
            voters=last_rows(eligible, kv_cache.WINDOW if caches else 0, before=later),
            short=choose_rows(visibility.short, None),
            counts=None if tokens is None else token_counts(tokens, visibility.keys),
            budget_bytes=budget_bytes,
            refusal=refusal,
        )

    @property
    def fused(self) -> bool:
        """True if a fused program measures the chosen rows, and torch a few of them."""
        return self.mapped is not self.chosen

    @cached_property
    def by_torch(self) -> QueryPlan:
        """The same plan without a fused program."""
        return replace(self, mapped=self.chosen, _kept={})

    @property
    def caches(self) -> bool:
        """True if policies of KV caches can be measured."""
        return len(self.later) > 0

    def made(self, like: Array, name: str, make: Callable[[], ArrayLike]) -> Array:
        """Return values on the device of an array, floats in its precision; moved there once."""

        def there() -> Array:
            values = np.asarray(make())
            return (arrays.cast_like if values.dtype.kind == "f" else arrays.same_kind)(
                like, values
            )

        return self._once(name, there)

    def _once(self, key: Hashable, make: Callable[[], Any], *, keep: bool = True) -> Any:
        """Return the result of `make`, kept for the next layers and snapshots."""
        found = self._kept[key] if key in self._kept else make()
        if keep:
            self._kept[key] = found
        return found

    @cached_property
    def of_rows(self) -> tuple[str, ...]:
        """Names of sums over keys whose factors differ from row to row."""
        if self.call.cross:
            return ()
        tokens = () if self.counts is None else ("induction_mass", "duplicate_mass")
        return ("far", "local_mass", *tokens)

    @cached_property
    def of_all(self) -> tuple[str, ...]:
        """Names of sums over keys whose factors are the same for all rows of a sequence."""
        return ("whole", *(("common_mass", "distinct_mass") if self.counts is not None else ()))

    @property
    def sums(self) -> tuple[str, ...]:
        """Names of the statistics of a row that are sums over keys."""
        return self.of_rows + self.of_all

    def factors(self, like: Array, sequences: slice) -> Float[Array, "batch 1 column key"]:
        """Return the factors of `of_all`."""

        def make() -> NDArray[Any]:
            whole = np.ones(self.visibility.keys.shape)
            if self.counts is None:
                return whole[:, None, None]
            several = self.counts[1] > 1  # then in the order of `of_all`
            return np.stack([whole, several, ~several], axis=1)[:, None]

        return self.made(like, "factors", make)[sequences]

    @cached_property
    def together(self) -> int:
        """Number of layers to measure together: those that fit into a block with their keys."""
        batch, head, _, keys = self.call.shape
        mask = self.call.full_mask
        if mask is not None and mask.shape[1] > 1:  # another layer may have another
            return 1
        width = self.call.key.shape[1] * self.call.key.shape[3]
        held = 3 * 4 * batch * keys * width  # keys, twice while concatenated, and values
        one = batch * head * len(self.chosen) * keys * calls.bytes_of_an_entry(self.call)
        if self.fused:  # no attention weights, but queries and statistics
            one = batch * head * len(self.chosen) * 4 * (self.call.key.shape[3] + MOST_COLUMNS)
        return max(1, self._most // (one + held))

    @cached_property
    def cuts(self) -> tuple[tuple[slice, tuple[slice, ...]], ...]:
        """Sequences that are measured together, and the mapped rows of each block of them."""
        return self._cuts_of(len(self.mapped))

    def _cuts_of(self, rows: int) -> tuple[tuple[slice, tuple[slice, ...]], ...]:
        batch = self.call.shape[0]
        fitting = self._fitting(calls.bytes_of_an_entry(self.call))  # rows of all sequences
        together = min(batch, fitting)
        # on a processor, many rows of one sequence: its keys are read once for all of them
        if arrays.on_processor(self.call.query):
            together = min(batch, max(1, fitting // rows))
        cuts = tuple(even_cuts(rows, fitting // together))
        return tuple((some, cuts) for some in even_cuts(batch, together))

    @cached_property
    def extra_cuts(self) -> tuple[slice, ...]:
        """Blocks of the extra rows."""
        some, _ = self.cuts[0]
        number = sum(len(getattr(self, name)) for name in EXTRA_ROWS)
        fitting = self._fitting(calls.BYTES_OF_A_MAP) // (some.stop - some.start)
        return tuple(even_cuts(number, max(1, fitting)))

    def _fitting(self, of_an_entry: int) -> int:
        """Return the number of rows of all heads that fit into a block, with their factors."""
        _, head, _, keys = self.call.shape
        of_a_key = self.together * head * of_an_entry + 4 * len(self.sums)
        return max(1, self._most // (keys * of_a_key))

    @property
    def _most(self) -> int:
        """Bytes of a block, beside the plans that are kept."""
        kept = self.kept_bytes if self.keeps else 0
        return calls.bytes_of_a_block(self.call, self.budget_bytes - kept)

    def index(self, like: Array) -> Int[Array, "batch row"]:
        """Return all queries to measure: the chosen ones, the mapped ones if they are others, then
        the extra ones."""
        mapped = (self.mapped.index,) if self.fused else ()
        whole = (self.chosen.index, *mapped, self._extra_index)
        return self.made(like, "index", lambda: np.concatenate(whole, axis=1))

    def heads(self, call: AttentionCall) -> Heads:
        """Return the queries to measure, and the keys, of a call that is like this one."""
        index = self.index(call.query)[:, None, :, None]
        key = arrays.contiguous(call.key)
        largest = self._largest(call) if self.sampled else None
        return Heads(arrays.take_along(call.query, index, 2), key, call.sinks, largest)

    @property
    def sampled(self) -> bool:
        """True if rows are sampled, so that measured rows stand for others."""
        return bool((self.chosen.weight > 1).any())

    def _largest(self, call: AttentionCall) -> Float[Array, "batch head"]:
        """Return the largest logit of each head, over all queries that are not padding.

        One row decides about it, so that a sample of rows would miss it.
        """
        if self.refusal is None:
            from attnlab.observing.kernels import launch

            return launch.largest_logits(self, call)
        batch, head, queries, keys = call.shape
        query, key = call.query, arrays.contiguous(arrays.precise(call.key))
        visible, most = self.visibility, calls.bytes_of_a_block(call, self.budget_bytes)
        fitting = max(1, most // (head * keys * calls.BYTES_OF_A_LOGIT))  # rows of all sequences
        together = 1 if arrays.on_processor(query) else min(batch, fitting)
        counted = self.made(key, "counted", lambda: visible.eligible | visible.short)
        xp, found = namespace(key), []
        for some in even_cuts(batch, together):
            part = CallPart.of(self.call, some)
            blocks = [
                part.largest_logit(query[some], key[some], rows, counted[some, rows])
                for rows in even_cuts(queries, max(1, fitting // together))
            ]
            found.append(xp.max(xp.stack(blocks), axis=0))
        return xp.concat(found)

    @property
    def _extra_index(self) -> Int[NDArray[Any], "batch row"]:
        return np.concatenate([getattr(self, name).index for name in EXTRA_ROWS], axis=1)

    def block_plan(self, part: CallPart, sequences: slice, rows: slice) -> BlockPlan:
        """Return the plan of a block of mapped rows."""
        key = "block", sequences.start, rows.start
        make = partial(self._make_block_plan, part, sequences, self.mapped.cut(sequences, rows))
        return self._once(key, make, keep=self.keeps)

    def extra_rows(self, part: CallPart, sequences: slice, rows: slice) -> VisibleKeys:
        """Return the keys that a block of the extra rows sees."""

        def make() -> VisibleKeys:
            index = self._extra_index[sequences, rows]
            return part.seen(index, self.visibility.cut(sequences).at("counts", index))

        return self._once(("extra", sequences.start, rows.start), make, keep=self.keeps)

    def cache_limits(self, rows: slice) -> kv_cache.CacheLimits:
        """Return the limits of caches for some of the later rows."""

        def make() -> kv_cache.CacheLimits:
            index = self.later.index[:, rows]
            visible = CallPart.of(self.call, slice(None)).visible(
                arrays.same_kind(self.like, index)
            )
            start = arrays.same_kind(self.like, self.visibility.at("starts", index))
            return kv_cache.cache_limits(visible, start)

        return self._once(("limits", rows.start, rows.stop), make)

    @property
    def labels(self) -> Labels:
        """Labels of the results of such calls."""
        visible, kind = self.visibility, "cross" if self.call.cross else "self"
        queries = np.where(self.fixed.weight > 0, self.fixed.index, -1)
        return Labels(kind, visible.min_keys, visible.tokens, queries, kernels.note(self))

    @cached_property
    def seeing(self) -> Float[NDArray[Any], "#batch #head key"]:
        """Number of chosen rows that see a key, each with its weight."""
        if self.call.full_mask is None:
            return self._seeing_by_span()
        found = []
        for some, cuts in self._cuts_of(len(self.chosen)):
            part = CallPart.of(self.call, some)
            total: Any = 0.0
            for cut in cuts:
                rows = self.chosen.cut(some, cut)
                visible = part.visible(arrays.same_kind(self.like, rows.index))
                weight = arrays.cast_like(self.like, rows.weight)[:, None, None, :]
                xp = namespace(visible)
                shown = xp.matmul(weight, arrays.cast_like(self.like, visible))
                total = total + arrays.to_numpy(shown[:, :, 0, :]).astype(np.float64)
            found.append(np.broadcast_to(total, (rows.index.shape[0], *np.shape(total)[1:])))
        return np.concatenate(found)

    def _seeing_by_span(self) -> NDArray[Any]:
        """Return `seeing` without a mask, where a query sees a run of keys."""
        _, _, queries, keys = self.call.shape
        first, last = self.call.span(self.chosen.index + (keys - queries))
        first, after = np.clip(first, 0, keys), np.clip(last + 1, 0, keys)
        rows = zip(first, after, self.chosen.weight, strict=True)
        return np.stack([coverage(keys, *one) for one in rows])[:, None]

    def weights_of(
        self, rows: Rows, sequences: slice = slice(None)
    ) -> Float[NDArray[Any], "batch 2 row"]:
        """Return the weights of rows of these sequences, and those of rows in the prompt alone,
        which ends before the later rows."""
        later = self.later.cut(sequences, slice(None))
        most = later.index.max(initial=0)
        end = np.where(later.weight > 0, later.index, most).min(axis=1, initial=most)
        return np.stack([rows.weight, rows.weight * (rows.index < end[:, None])], axis=1)

    @property
    def chance(self) -> Float[Array, "#batch #head row sum"]:
        """Sums of all chosen rows under even attention; NaN where there is no target."""

        def make() -> Array:
            part = CallPart.of(self.call, slice(None))
            batch, _, _, keys = self.call.shape
            heads = self.visibility.counts.shape[1]
            most = max(1, self.budget_bytes // (batch * heads * keys * CHANCE_BYTES))
            blocks = [
                self._make_block_plan(part, slice(None), self.chosen.cut(slice(None), cut)).chance
                for cut in even_cuts(len(self.chosen), most)
            ]
            return calls.joined(blocks, 2)

        return self._once("chance", make)

    @cached_property
    def mapped_among_chosen(self) -> Int[NDArray[Any], "batch row"]:
        """Positions of the mapped rows among the chosen ones."""
        both = zip(self.chosen.index, self.chosen.weight, self.mapped.index, strict=True)
        found = [np.searchsorted(chosen[weight > 0], few) for chosen, weight, few in both]
        return np.minimum(np.stack(found), len(self.chosen) - 1)  # what fills up is anywhere

    @property
    def kept_bytes(self) -> int:
        """Bytes of all block plans together."""
        batch, _, _, keys = self.call.shape
        size = self._whole.itemsize * len(self.of_rows) + self.visibility.counts.shape[1]
        return batch * len(self.mapped) * keys * size

    @property
    def keeps(self) -> bool:
        """True if block plans are kept for the next layers and snapshots."""
        return self.kept_bytes <= self.budget_bytes // 2

    @property
    def _whole(self) -> np.dtype[Any]:
        """Dtype in which distances are kept."""
        farthest = self.call.shape[3] - 1
        return np.dtype(np.int16 if farthest <= np.iinfo(np.int16).max else np.int32)

    @cached_property
    def like(self) -> Array:
        """An array on the call's device, in the precision of the statistics."""
        return arrays.precise(self.call.key[:1, :1, :1, :1])

    def _make_block_plan(self, part: CallPart, sequences: slice, rows: Rows) -> BlockPlan:
        visibility, like = self.visibility.cut(sequences), self.like
        counts = visibility.at("counts", rows.index)
        seen = part.seen(rows.index, counts)
        xp = namespace(like)
        _, _, queries, keys = self.call.shape
        position = rows.index + (keys - queries)
        start = visibility.at("starts", rows.index)
        own = () if self.call.cross else (position, position - 1)
        at = np.stack([*(start + i for i in range(SINKS)), *own], axis=-1)[:, None]
        there = (at >= 0) & (at < keys)
        here, first = arrays.same_kind(like, position), arrays.same_kind(like, start)
        targets: dict[str, Any] = {}
        chance: dict[str, Any] = {}
        if not self.call.cross:
            far = positions.distance(seen.visible, at=here)
            targets = {"far": far, "local_mass": far < positions.LOCAL}
        if not self.call.cross and visibility.tokens is not None:
            tokens = arrays.same_kind(like, visibility.tokens)
            for name, find in (
                ("induction_mass", positions.followers),
                ("duplicate_mass", positions.occurrences),
            ):
                targets[name] = find(tokens, here, start=first)
                chance[name] = positions.chance(targets[name][:, None], seen.visible, like.dtype)
        heads = seen.visible.shape[1]
        zeros = arrays.cast_like(like, np.zeros((counts.shape[0], heads, counts.shape[2])))
        whole = getattr(xp, self._whole.name)
        columns = [xp.astype(targets[name], whole) for name in self.of_rows]
        return BlockPlan(
            seen=seen,
            number=arrays.cast_like(like, np.maximum(counts, 1)),
            weight=arrays.cast_like(like, self.weights_of(rows, sequences)),
            at=arrays.same_kind(like, np.clip(at, 0, keys - 1)),
            there=arrays.cast_like(like, there),
            targets=xp.stack(columns, axis=2) if columns else None,
            chance=xp.stack([chance.get(name, zeros) for name in self.sums], axis=-1),
        )

    def weights(self, values: Array, name: str) -> tuple[Array, Array | None]:
        """Return weight and factor of the chosen, mapped or later rows, for `weighted_mean`."""
        rows: Rows = getattr(self, name)
        counted = self.visibility.counted(rows.index)
        weight = self.made(values, f"weight of {name}", lambda: rows.weight[:, None, :] * counted)
        factor = rows.factor
        if not factor.any():
            return weight, None
        return weight, self.made(values, f"factor of {name}", lambda: factor[:, None, :, None])

    @cached_property
    def ranked(self) -> Bool[NDArray[Any], "batch key"]:
        """Keys whose attention is ranked: those that some chosen row sees."""
        return (self.seeing > 0).all(axis=1) & self.visibility.keys

    @cached_property
    def token_ranks(self) -> dict[str, Float[NDArray[Any], "batch key"]]:
        """Ranks of the keys' tokens by how often they occur and by idf, about their mean."""
        assert self.counts is not None
        often, in_sequences = self.counts
        middle = (self.ranked.sum(axis=1, keepdims=True) + 1) / 2
        found = {}
        # idf falls with the number of sequences; keys without a rank stand behind all others
        for name, score in (("frequency", often), ("idf", -in_sequences)):
            ranks = arrays.ranks(np.where(self.ranked, score, np.inf))
            found[name] = np.where(self.ranked, ranks - middle, 0.0)
        return found

    def pieces(self, rows: slice) -> Iterator[tuple[str, slice, slice]]:
        """Yield the pieces of a block of extra rows: kind, rows of the block, rows of the kind."""
        begun = 0
        for name in EXTRA_ROWS:
            end = begun + len(getattr(self, name))
            start, stop = max(begun, rows.start), min(end, rows.stop)
            if start < stop:
                inside = slice(start - rows.start, stop - rows.start)
                yield name, inside, slice(start - begun, stop - begun)
            begun = end


def _shadow(call: AttentionCall) -> AttentionCall:
    """Return a call of the same shape, without the arrays of the model."""

    def shadow(array: Array) -> Array:
        xp = namespace(array)
        return xp.broadcast_to(xp.zeros_like(array[:1, :1, :1, :1]), tuple(array.shape))

    return replace(call, query=shadow(call.query), key=shadow(call.key), value=None, sinks=None)
