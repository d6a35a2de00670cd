"""An attention call, and attention weights of some of its rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import NDArray

from attnlab.files.errors import InputError, require_whole
from attnlab.measures import arrays, maps
from attnlab.measures.arrays import Array, namespace

DIMS = ("batch", "head", "query", "key")
# An additive mask hides the keys below a drop of this much; biases of positions fall gradually.
DROP = 50.0
# A row of an additive mask with no larger entry sees no key.
HIDDEN = -9e3
FLOOR_BYTES, BYTES_OF_A_MASK = 2**24, 16  # of masks that are sorted at a time, and of an entry
# Logit of a key that is not visible. Not minus infinity: times an attention weight of 0 it is 0.
LOW = -1e30
# Bytes of a block for each attention weight: three arrays at a time, and small ones beside.
BYTES_OF_AN_ENTRY = 16
# On an accelerator, which also makes indices, some heads at a time are sorted; rows of more keys
# than LONG are sorted in another way, which needs more memory.
LONG, BYTES_OF_A_LONG_ENTRY = 4096, 18
TURNS, LONG_TURNS = 2, 4
BYTES_OF_A_MAP = 12  # of rows of which only the attention weights are computed
BYTES_OF_A_LOGIT = 10  # of rows of which only the largest logit is computed
NEAR_BYTES = 16 * 2**20  # of a block on a processor: larger ones fall out of its caches
# sum p ln p; the mean of ln p over visible keys, and the norm about it; the largest visible logit,
# with softcap and bias
BASIC = ("entropy", "mean_log", "logit_norm", "largest_logit")


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """Attention call: everything that its softmax depends on.

    Arrays are torch tensors, JAX arrays or numpy arrays, all of one kind. The query at index i
    stands at position i + (keys - queries) among the keys, so that the last query is the last key;
    `torch`'s `is_causal` counts from the first, which differs where there are more keys.

    Parameters
    ----------
    query, key
        After rotary embedding and QK norm; the number of KV heads divides that of heads.
    value : array (batch kv_head key value_width), optional
        For errors of the output and norms of values; None leaves those out.
    scale : float
        Factor of the products of queries and keys.
    mask : Shaped[Any, '*broadcast'], optional
        Bool (True: may attend) or additive floats (such as the biases of T5 and ALiBi). In a row of
        these, sorted from the largest, the first drop of 50 or more hides all keys after it: models
        add -100 (Swin), -10,000 or the lowest number of their dtype, and exp(-50) is 2e-22. A bias
        that falls from key to key hides none. A row whose largest is -9,000 sees nothing.
    causal : bool, optional
        A query sees only the keys up to its own position.
    window : int, optional
        A query sees only keys nearer than this, in either direction.
    softcap : float, optional
        Softcap * tanh(logits / softcap), before the mask.
    sinks : array (head), optional
        Learnable logits, one for each head, in the denominator of the softmax without a key.
    cross : bool, optional
        The keys belong to another sequence, so that positions of queries and keys do not compare.
    """

    query: Float[Any, "batch head query width"]
    key: Float[Any, "batch kv_head key width"]
    value: Float[Any, "batch kv_head key value_width"] | None
    scale: float
    layer: int
    mask: Shaped[Any, "*broadcast"] | None = None
    causal: bool = False
    window: int | None = None
    softcap: float | None = None
    sinks: Float[Any, " head"] | None = None
    cross: bool = False

    def __post_init__(self) -> None:
        _require_shape("query", self.query, "batch, head, query, width")
        _require_shape("key", self.key, "batch, kv_head, key, width")
        (batch, head, queries, width), (_, kv_head, keys, _) = self.query.shape, self.key.shape
        if self.key.shape != (batch, kv_head, keys, width):
            raise InputError(
                f"key: expected batch {batch} and width {width} as the queries have, "
                f"got shape {tuple(self.key.shape)}"
            )
        if not (batch and head and queries and keys and kv_head):
            raise InputError("query: nothing to attend; give at least one sequence, query and key")
        if head % kv_head:
            raise InputError(
                f"key: {kv_head} heads do not divide the {head} heads of the queries; "
                "give batch, kv_head, key, width in this order"
            )
        if self.value is not None:
            _require_shape("value", self.value, "batch, kv_head, key, width")
            if tuple(self.value.shape[:3]) != (batch, kv_head, keys):
                raise InputError(
                    f"value: expected {(batch, kv_head, keys)} and a width, as the keys have, "
                    f"got shape {tuple(self.value.shape)}"
                )
        for field in ("key", "value", "mask", "sinks"):
            array = getattr(self, field)
            if array is not None and not _same_kind(array, self.query):
                raise InputError(
                    f"{field}: a {type(array).__name__} beside queries that are a "
                    f"{type(self.query).__name__}; give all of one kind"
                )
        _require_positive("scale", self.scale)
        require_whole("layer", self.layer, 0)
        if self.window is not None:
            require_whole("window", self.window, 1)
        if self.softcap is not None:
            _require_positive("softcap", self.softcap)
        if self.sinks is not None and tuple(self.sinks.shape) != (head,):
            raise InputError(
                f"sinks: expected one logit for each of the {head} heads, "
                f"got shape {tuple(self.sinks.shape)}"
            )
        if self.cross and (self.causal or self.window is not None):
            raise InputError(
                "cross: keys of another sequence have no position before a query; "
                "leave out causal and window, or give what is visible as mask"
            )
        if self.mask is not None:
            self._check_mask(self.mask)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Sizes of batch, head, query, key."""
        batch, head, queries, _ = self.query.shape
        return batch, head, queries, self.key.shape[2]

    @property
    def full_mask(self) -> Shaped[Any, "B H Q K"] | None:
        """The mask with all four dims; those over which it does not vary have size 1."""
        if self.mask is None:
            return None
        return self.mask.reshape((1,) * (4 - len(self.mask.shape)) + tuple(self.mask.shape))

    @cached_property
    def floor(self) -> Float[Any, "B H Q 1"] | None:
        """Value at and below which an additive mask hides a key, row by row."""
        mask = self.full_mask
        if mask is None or arrays.is_bool(mask):
            return None
        xp = namespace(mask)
        entries = mask.shape[0] * mask.shape[1] * mask.shape[3]
        each = max(1, FLOOR_BYTES // (entries * BYTES_OF_A_MASK))
        return xp.concat(
            [_floor(mask[:, :, i : i + each]) for i in range(0, mask.shape[2], each)], axis=2
        )

    def span(self, position: Int[Any, "*rows"]) -> tuple[Any, Any]:
        """Return the first and the last key that a query at this position may see without the mask;
        they may lie outside of the sequence."""
        first, last = position * 0, position * 0 + (self.shape[3] - 1)
        if self.window is not None:
            first, last = position - (self.window - 1), position + (self.window - 1)
        return first, position if self.causal else last

    def _check_mask(self, mask: Any) -> None:
        sizes, full = tuple(mask.shape), self.shape
        matches = len(sizes) <= 4 and all(
            size in (1, whole) for size, whole in zip(sizes[::-1], full[::-1], strict=False)
        )
        if not matches:
            raise InputError(
                f"mask: shape {sizes} does not broadcast to {', '.join(DIMS)} = {full}; "
                "a padding mask of batch, key becomes one with mask[:, None, None, :]"
            )
        if not (arrays.is_bool(mask) or arrays.is_floating(mask)):
            raise InputError(
                f"mask: expected bool (True: may attend) or additive floats, got {mask.dtype}; "
                "of zeros and ones give mask != 0"
            )


# Called with each call that model code gives to `record`; True where an observer takes it.
_listeners: list[Callable[[AttentionCall], bool]] = []


@contextmanager
def listening(listener: Callable[[AttentionCall], bool]) -> Iterator[None]:
    """Offer the calls given to `record` to a listener."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def is_taken(call: AttentionCall) -> bool:
    """Offer a call given to `record` to all listeners; return True if one takes it."""
    return any([listener(call) for listener in tuple(_listeners)])


def _floor(mask: Float[Any, "B H row key"]) -> Float[Any, "B H row 1"]:
    mask = arrays.precise(mask)
    xp = namespace(mask)
    top = xp.max(mask, axis=-1, keepdims=True)
    floor = top - DROP
    if bool(xp.any((mask <= floor) & (mask > HIDDEN))):  # a mask of -100, or a bias that goes far
        ordered = arrays.sort_descending(mask)
        drops = ordered[..., :-1] - ordered[..., 1:] >= DROP
        floor = xp.max(xp.where(drops, ordered[..., 1:], -xp.inf), axis=-1, keepdims=True)
    return xp.where(top <= HIDDEN, xp.inf, floor)


def _same_kind(array: Any, other: Any) -> bool:
    return hasattr(array, "shape") and namespace(array) is namespace(other)


def _require_positive(field: str, value: Any) -> None:
    if not (isinstance(value, Real) and 0 < float(value) < math.inf):
        raise InputError(f"{field}: expected a positive number, got {value!r}")


def _require_shape(field: str, array: Any, dims: str) -> None:
    shape = tuple(getattr(array, "shape", ()))
    if len(shape) != 4:
        one_head = f"; one head: {field}[:, None]" if len(shape) == 3 else ""
        raise InputError(f"{field}: expected an array of {dims}, got shape {shape}{one_head}")
    if not arrays.is_floating(array):
        raise InputError(f"{field}: expected floating-point numbers, got {array.dtype}")


@dataclass(frozen=True, eq=False)
class Heads:
    """Queries and keys of heads that are measured together: of one call, or of several like it.

    An accelerator takes its time to begin an operation, however small. So heads of several layers
    are concatenated, as if one layer had them all, and one operation serves them.

    query, key: in the model's precision; queries are those of the rows to measure. largest: where
    rows are sampled, the largest logit of each head over all rows. layers: number of calls.
    """

    query: Float[Array, "batch head row width"]
    key: Float[Array, "batch kv_head key width"]
    sinks: Float[Array, " head"] | None
    largest: Float[Array, "batch head"] | None
    layers: int = 1

    def precise(self, scale: float, begun: int = 0) -> Heads:
        """Return the rows from `begun` on, times the scale, and the keys, both in float32 (float64
        if they are)."""
        query = arrays.precise(self.query[:, :, begun:]) * scale
        return replace(self, query=query, key=arrays.precise(self.key))

    def of_sequences(self, some: slice) -> Heads:
        """Return the heads of these sequences."""
        largest = None if self.largest is None else self.largest[some]
        return replace(self, query=self.query[some], key=self.key[some], largest=largest)


def concat_heads(several: Sequence[Heads]) -> Heads:
    """Concatenate the heads of calls that are alike, in their order."""
    if len(several) == 1:
        return several[0]

    def whole(name: str, axis: int) -> Any:
        parts = [getattr(one, name) for one in several]
        return None if parts[0] is None else joined(parts, axis)

    layers = sum(one.layers for one in several)
    return Heads(whole("query", 1), whole("key", 1), whole("sinks", 0), whole("largest", 1), layers)


def split_layers(
    several: Sequence[Float[Array, "batch layers_and_heads *rest"]], layers: Sequence[int]
) -> Float[Array, "layer batch head *rest"]:
    """Split concatenated heads by layer again. layers: number of layers in each array."""
    xp = namespace(several[0])
    split = [
        array.reshape(array.shape[0], number, -1, *array.shape[2:])
        for array, number in zip(several, layers, strict=True)
    ]
    return joined([xp.moveaxis(one, 1, 0) for one in split])


def joined(several: Sequence[Array], axis: int = 0) -> Array:
    """Concatenate arrays; a single one is not copied."""
    return several[0] if len(several) == 1 else namespace(several[0]).concat(several, axis=axis)


@dataclass(frozen=True, eq=False)
class VisibleKeys:
    """Some queries of each sequence, and the keys that they may see.

    blind: queries that see no key; None where there are none.
    """

    index: Int[Array, "batch row"]
    visible: Bool[Array, "#batch #head row key"]
    blind: Bool[Array, "#batch #head row 1"] | None


@dataclass(frozen=True, eq=False)
class Block:
    """Attention weights of rows. maps sum to 1 - sink over the keys; 0 where no key is visible.

    logits: the statistics BASIC of each row.
    sink: ln of the attention to the learnable sink; None where there is none.
    """

    maps: Float[Array, "batch head row key"]
    logits: Sequence[Float[Array, "batch head row"]]
    sink: Float[Array, "batch head row"] | None


@dataclass(frozen=True, eq=False)
class CallPart:
    """Some sequences of a call: visible keys, logits and attention weights of their queries."""

    call: AttentionCall
    mask: Any  # batch head query key, each perhaps 1
    floor: Any  # of an additive mask, `AttentionCall.floor`

    @classmethod
    def of(cls, call: AttentionCall, sequences: slice) -> CallPart:
        mask, floor = (
            array if array is None or array.shape[0] == 1 else array[sequences]
            for array in (call.full_mask, call.floor)
        )
        return cls(call, mask, floor)

    def seen(
        self, index: Int[NDArray[Any], "batch row"], counts: Int[NDArray[Any], "#batch #head row"]
    ) -> VisibleKeys:
        """Return these queries with their visible keys. counts: number of keys that they see."""
        blind = (
            None if counts.all() else arrays.same_kind(self.call.query, (counts == 0)[..., None])
        )
        there = arrays.same_kind(self.call.query, index)
        return VisibleKeys(there, self.visible(there), blind)

    def visible(self, index: Int[Array, "batch row"]) -> Bool[Array, "#batch #head row key"]:
        """Return the keys that these rows may see."""
        _, _, queries, keys = self.call.shape
        key = arrays.arange_like(self.call.query, 0, keys)
        first, last = self.call.span((index + (keys - queries))[:, None, :, None])
        seen = (key >= first) & (key <= last)
        if self.mask is not None:
            rows = _rows_of(self.mask, index)
            if self.floor is not None:
                rows = arrays.precise(rows) > _rows_of(self.floor, index)
            seen = seen & rows
        return seen

    def block(
        self, heads: Heads, rows: slice, seen: VisibleKeys, number: Float[Array, "#batch #head row"]
    ) -> Block:
        """Return the attention weights of these rows, and statistics of their logits. number:
        visible keys, and 1 where there are none."""
        logits = self.logits(heads, rows, seen)
        xp, sink = namespace(logits), None
        largest = xp.max(logits, axis=-1)
        logits = _with_sinks(logits, heads)
        m, logs = arrays.softmax(logits), arrays.log_softmax(logits)
        del logits  # here and below, arrays are freed or replaced early, for larger blocks
        if heads.sinks is not None:
            m, logs, sink = m[..., :-1], logs[..., :-1], logs[..., -1]
        if seen.blind is not None:
            m = xp.where(seen.blind, 0.0, m)
        logs = xp.where(seen.visible, logs, 0.0)
        entropy, mean = xp.sum(m * logs, axis=-1), xp.sum(logs, axis=-1) / number
        logs = logs - mean[..., None]
        logs = logs * seen.visible
        norm = xp.linalg.vector_norm(logs, axis=-1)
        return Block(m, (entropy, mean, norm, largest), sink)

    def maps(
        self, logits: Float[Array, "batch head row key"], heads: Heads, blind: Any
    ) -> tuple[Float[Array, "batch head row key"], Float[Array, "batch head row"] | None]:
        """Return attention weights alone, and the attention to a learnable sink."""
        m, sink = arrays.softmax(_with_sinks(logits, heads)), None
        if heads.sinks is not None:
            m, sink = m[..., :-1], m[..., -1]
        return (m if blind is None else namespace(m).where(blind, 0.0, m)), sink

    def logits(
        self, heads: Heads, rows: slice, seen: VisibleKeys
    ) -> Float[Array, "batch head row key"]:
        """Return the logits of these rows of the heads; LOW at keys that are not visible."""
        logits = self._logits(heads.query[:, :, rows], heads.key, seen.index)
        return namespace(logits).where(seen.visible, logits, LOW)

    def largest_logit(
        self,
        query: Float[Array, "batch head row width"],
        key: Float[Array, "batch kv_head key width"],
        rows: slice,
        there: Bool[Array, "batch row"],
    ) -> Float[Array, "batch head"]:
        """Return the largest visible logit of each head in consecutive rows; minus infinity if
        they see no key.

        query: all queries, in the model's precision. there: rows that count.
        """
        queries, keys = self.call.shape[2:]
        index = arrays.arange_like(key, rows.start, rows.stop)[None]
        visible = self.visible(index)
        some = arrays.precise(query[:, :, rows]) * self.call.scale
        if self.mask is None:  # half of the products of causal attention are never seen
            first, last = self.call.span(np.arange(rows.start, rows.stop) + (keys - queries))
            ends = slice(max(0, int(first.min())), max(1, min(keys, int(last.max()) + 1)))
            key, visible = key[:, :, ends], visible[..., ends]
        logits = self._logits(some, key, index)
        xp = namespace(logits)
        visible = visible & there[:, None, :, None]
        return xp.max(xp.where(visible, logits, -xp.inf), axis=(2, 3))

    def _logits(self, query: Any, key: Any, index: Any) -> Float[Array, "batch head row key"]:
        """Return the logits of these rows, also for hidden keys."""
        xp, softcap = namespace(query), self.call.softcap
        batch, head, _, width = query.shape
        # rows of heads that share keys are multiplied together, so that keys are not repeated
        together = query.reshape(batch, key.shape[1], -1, width)
        logits = xp.matmul(together, xp.matrix_transpose(key))
        logits = logits.reshape(batch, head, -1, key.shape[2])
        if softcap is not None:
            logits = softcap * xp.tanh(logits / softcap)
        if self.floor is not None:
            logits = logits + arrays.precise(_rows_of(self.mask, index))
        return logits


def _rows_of(mask: Any, index: Int[Array, "#batch row"]) -> Any:
    """Return these rows of a mask."""
    if mask.shape[2] == 1:
        return mask
    batch = max(index.shape[0], mask.shape[0])  # 1 where rows are the same for all
    mask = namespace(mask).broadcast_to(mask, (batch, *mask.shape[1:]))
    return arrays.take_along(mask, index[:, None, :, None], 2)


def bytes_of_an_entry(call: AttentionCall) -> int:
    """Return the bytes needed for each attention weight of a block of this call."""
    short = call.shape[3] <= LONG or arrays.on_processor(call.query)
    return BYTES_OF_AN_ENTRY if short else BYTES_OF_A_LONG_ENTRY


def ranked_mass(m: Float[Array, "batch head row key"]) -> Float[Array, "batch head row key"]:
    """Return `attnlab.measures.maps.ranked_mass`, some heads at a time to bound memory."""
    if arrays.on_processor(m):
        return maps.ranked_mass(m)
    turns = TURNS if m.shape[-1] <= LONG else LONG_TURNS
    cuts = even_cuts(m.shape[1], -(-m.shape[1] // turns))
    return joined([maps.ranked_mass(m[:, cut]) for cut in cuts], 1)


def bytes_of_a_block(call: AttentionCall, budget_bytes: int) -> int:
    """Return the bytes that a block may take on the device of the call."""
    return min(budget_bytes, NEAR_BYTES) if arrays.on_processor(call.query) else budget_bytes


def even_cuts(number: int, most: int) -> Iterator[slice]:
    """Yield slices of 0 to number of nearly equal length, none longer than `most`."""
    ends = np.linspace(0, number, max(1, -(-number // most)) + 1).round().astype(int).tolist()
    yield from itertools.starmap(slice, itertools.pairwise(ends))


def _with_sinks(
    logits: Float[Array, "batch head row key"], heads: Heads
) -> Float[Array, "batch head row key_or_sink"]:
    """Append the logit of a learnable sink to the logits of keys."""
    if heads.sinks is None:
        return logits
    xp = namespace(logits)
    one = xp.broadcast_to(arrays.precise(heads.sinks)[:, None, None], (*logits.shape[:3], 1))
    return xp.concat([logits, one], axis=-1)
