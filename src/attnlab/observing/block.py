"""Some rows of heads as maps: logits, what is visible, the softmax over just that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.measures import maps
from attnlab.measures.arrays import (
    Array,
    beside,
    counting,
    log_softmax,
    namespace,
    on_processor,
    precise,
    softmax,
    taken,
)
from attnlab.observing.call import AttentionCall
from attnlab.observing.heads import Heads

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

# The logit of a key that is not visible. Not minus infinity: times a map's 0 it has to be 0.
LOW = -1e30
# Bytes of a block for each entry of its maps: three arrays at a time, and what is small beside.
BYTES_OF_AN_ENTRY = 16
# Maps are put in their order by some heads at a time on an accelerator, which makes indices too;
# and of rows of more keys than this in another way, that needs yet more room.
LONG, BYTES_OF_A_LONG_ENTRY = 4096, 18
TURNS, LONG_TURNS = 2, 4
# Of rows of which nothing but their maps is wanted.
BYTES_OF_A_MAP = 12
# Of rows of which nothing but the largest logit is wanted: logits twice, and what is visible.
BYTES_OF_A_LOGIT = 10
# What a block takes at most on a processor: larger ones would not stay near it from one operation
# to the next.
NEAR_BYTES = 16 * 2**20


@dataclass(frozen=True, eq=False)
class Seen:
    """Some queries of each sequence, and which keys they may see.

    blind: those that see none; None where there are none of them.
    """

    index: Int[Array, "batch row"]
    visible: Bool[Array, "#batch #head row key"]
    blind: Bool[Array, "#batch #head row 1"] | None


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of some sequences. maps sum to 1 - sink over the keys; 0 where nothing is visible.

    logits: what their logits say of each row, as BASIC has it.
    sink: ln of what the learnable sink takes; None where there is none.
    """

    maps: Float[Array, "batch head row key"]
    logits: Sequence[Float[Array, "batch head row"]]
    sink: Float[Array, "batch head row"] | None


# sum p ln p; the mean of ln p over visible keys, and the norm about it; the largest visible logit,
# with softcap and bias
BASIC = ("entropy", "mean_log", "logit_norm", "largest_logit")


@dataclass(frozen=True, eq=False)
class Part:
    """Some sequences of a call: which keys their queries see, and maps of them."""

    call: AttentionCall
    mask: Any  # batch head query key, each perhaps 1
    floor: Any  # of an additive mask, `AttentionCall.floor`

    @classmethod
    def of(cls, call: AttentionCall, sequences: slice) -> Part:
        mask, floor = (
            array if array is None or array.shape[0] == 1 else array[sequences]
            for array in (call.full_mask, call.floor)
        )
        return cls(call, mask, floor)

    def seen(
        self,
        index: Int[NDArray[Any], "batch row"],
        counts: Int[NDArray[Any], "#batch #head row"],
    ) -> Seen:
        """These queries, of which it is known how many keys they see."""
        blind = None if counts.all() else beside(self.call.query, (counts == 0)[..., None])
        there = beside(self.call.query, index)
        return Seen(there, self.visible(there), blind)

    def visible(self, index: Int[Array, "batch row"]) -> Bool[Array, "#batch #head row key"]:
        """Which keys these rows may see."""
        keys = self.call.shape[3]
        key = counting(self.call.query, 0, keys)
        first, last = self.call.span(self._place(index)[:, None, :, None])
        seen = (key >= first) & (key <= last)
        if self.mask is not None:
            rows = _rows_of(self.mask, index)
            if self.floor is not None:
                rows = precise(rows) > _rows_of(self.floor, index)
            seen = seen & rows
        return seen

    def block(
        self, heads: Heads, rows: slice, seen: Seen, number: Float[Array, "#batch #head row"]
    ) -> Block:
        """The maps of these rows of the heads, and what their logits say. number: visible keys,
        and 1 where there are none."""
        logits = self.logits(heads, rows, seen)
        xp, sink = namespace(logits), None
        largest = xp.max(logits, axis=-1)
        logits = _with_sinks(logits, heads)
        m, logs = softmax(logits), log_softmax(logits)
        del logits  # here and below: what is not needed any more leaves room for larger blocks
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
        """Maps alone, and what a learnable sink takes."""
        m, sink = softmax(_with_sinks(logits, heads)), None
        if heads.sinks is not None:
            m, sink = m[..., :-1], m[..., -1]
        return (m if blind is None else namespace(m).where(blind, 0.0, m)), sink

    def logits(self, heads: Heads, rows: slice, seen: Seen) -> Float[Array, "batch head row key"]:
        """Of these rows of the heads; LOW at keys that are not visible."""
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

        query: all queries, in the model's precision. there: which of these rows count.
        """
        queries, keys = self.call.shape[2:]
        index = counting(key, rows.start, rows.stop)[None]
        visible = self.visible(index)
        some = precise(query[:, :, rows]) * self.call.scale
        if self.mask is None:  # half of the products of causal attention are never seen
            place = np.arange(rows.start, rows.stop) + (keys - queries)
            first, last = self.call.span(place)
            ends = slice(max(0, int(first.min())), max(1, min(keys, int(last.max()) + 1)))
            key, visible = key[:, :, ends], visible[..., ends]
        logits = self._logits(some, key, index)
        xp = namespace(logits)
        visible = visible & there[:, None, :, None]
        return xp.max(xp.where(visible, logits, -xp.inf), axis=(2, 3))

    def _logits(self, query: Any, key: Any, index: Any) -> Float[Array, "batch head row key"]:
        """Return the logits of these rows, of keys that are hidden too."""
        xp, softcap = namespace(query), self.call.softcap
        batch, head, _, width = query.shape
        # rows of the heads that share keys go together, so that keys are not repeated
        together = query.reshape(batch, key.shape[1], -1, width)
        logits = xp.matmul(together, xp.matrix_transpose(key))
        logits = logits.reshape(batch, head, -1, key.shape[2])
        if softcap is not None:
            logits = softcap * xp.tanh(logits / softcap)
        if self.floor is not None:
            logits = logits + precise(_rows_of(self.mask, index))
        return logits

    def _place(self, index: Any) -> Any:
        _, _, queries, keys = self.call.shape
        return index + (keys - queries)


def _rows_of(mask: Any, index: Int[Array, "#batch row"]) -> Any:
    """Return these rows of a mask."""
    if mask.shape[2] == 1:
        return mask
    batch = max(index.shape[0], mask.shape[0])  # rows that are the same for all have 1
    mask = namespace(mask).broadcast_to(mask, (batch, *mask.shape[1:]))
    return taken(mask, index[:, None, :, None], 2)


def bytes_of_an_entry(call: AttentionCall) -> int:
    """Of a block of this call's rows."""
    short = call.shape[3] <= LONG or on_processor(call.query)
    return BYTES_OF_AN_ENTRY if short else BYTES_OF_A_LONG_ENTRY


def ranked_mass(m: Float[Array, "batch head row key"]) -> Float[Array, "batch head row key"]:
    """That of `attnlab.measures.maps`, some heads at a time where all need too much room."""
    if on_processor(m):
        return maps.ranked_mass(m)
    turns = TURNS if m.shape[-1] <= LONG else LONG_TURNS
    cuts = even_cuts(m.shape[1], -(-m.shape[1] // turns))
    parts = [maps.ranked_mass(m[:, cut]) for cut in cuts]
    return parts[0] if len(parts) == 1 else namespace(m).concat(parts, axis=1)


def bytes_of_a_block(call: AttentionCall, budget_bytes: int) -> int:
    """Bytes of a block of this budget, where the call is."""
    return min(budget_bytes, NEAR_BYTES) if on_processor(call.query) else budget_bytes


def even_cuts(number: int, most: int) -> Iterator[slice]:
    """0 to number in slices of nearly equal length, and no longer than `most`."""
    ends = np.linspace(0, number, max(1, -(-number // most)) + 1).round().astype(int).tolist()
    for start, stop in itertools.pairwise(ends):
        yield slice(start, stop)


def _with_sinks(
    logits: Float[Array, "batch head row key"], heads: Heads
) -> Float[Array, "batch head row key_or_sink"]:
    """The logits of keys, and behind them that of a learnable sink."""
    if heads.sinks is None:
        return logits
    xp = namespace(logits)
    one = xp.broadcast_to(precise(heads.sinks)[:, None, None], (*logits.shape[:3], 1))
    return xp.concat([logits, one], axis=-1)
