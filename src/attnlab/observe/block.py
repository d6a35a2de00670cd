"""Some rows of a call as maps: logits, what is visible, the softmax over just that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.measures.arrays import (
    Array,
    beside,
    is_bool,
    log_softmax,
    namespace,
    on_processor,
    precise,
    softmax,
    taken,
)
from attnlab.observe.call import AttentionCall

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

# An additive mask hides a key with this or less. Model code adds the lowest number of its dtype,
# infinity or -1e9, and biases to them.
HIDDEN = -1e8
# The logit of a key that is not visible. Not minus infinity: times a map's 0 it has to be 0.
LOW = -1e30
# Bytes of a block for each entry of its maps: logits, maps, their order (with torch's indices),
# and what is computed from them.
BYTES_OF_AN_ENTRY = 48
# What a block takes at most on a processor: larger ones would not stay near it from one operation
# to the next.
NEAR_BYTES = 48 * 2**20


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

    logs: ln of the maps; LOW and less at keys that are not visible.
    largest: the largest logit of a visible key, with softcap and bias.
    sink: ln of what the learnable sink takes; None where there is none.
    """

    maps: Float[Array, "batch head row key"]
    logs: Float[Array, "batch head row key"]
    largest: Float[Array, "batch head row"]
    sink: Float[Array, "batch head row"] | None


@dataclass(frozen=True, eq=False)
class Part:
    """The arrays of some sequences of a call, in the precision that is computed in."""

    call: AttentionCall
    query: Float[Array, "batch kv_head group query width"]
    key: Float[Array, "batch kv_head width key"]
    mask: Any  # batch head query key, each perhaps 1

    @classmethod
    def of(cls, call: AttentionCall, sequences: slice) -> Part:
        xp = namespace(call.query)
        q, k = call.query[sequences], precise(call.key[sequences])
        mask = call.full_mask
        if mask is not None and mask.shape[0] > 1:
            mask = mask[sequences]
        batch, _, queries, width = q.shape
        return cls(
            call,
            q.reshape(batch, k.shape[1], -1, queries, width),
            xp.permute_dims(k, (0, 1, 3, 2)),
            mask,
        )

    def seen(
        self,
        index: Int[NDArray[Any], "batch row"],
        counts: Int[NDArray[Any], "#batch #head row"],
    ) -> Seen:
        """These queries, of which it is known how many keys they see."""
        blind = None if counts.all() else beside(self.query, (counts == 0)[..., None])
        there = beside(self.query, index)
        return Seen(there, self.visible(there), blind)

    def visible(self, index: Int[Array, "batch row"]) -> Bool[Array, "#batch #head row key"]:
        """Which keys these rows may see."""
        keys = self.call.shape[3]
        key = beside(self.query, np.arange(keys))
        first, last = self.call.span(self._place(index)[:, None, :, None])
        seen = (key >= first) & (key <= last)
        if self.mask is not None:
            rows = self._rows_of_mask(index)
            seen = seen & (rows if is_bool(rows) else rows > max(HIDDEN, _lowest(rows) / 2))
        return seen

    def block(self, rows: Seen) -> Block:
        """The maps of these rows."""
        xp, call, index = namespace(self.query), self.call, rows.index
        batch, kv_head, group, _, width = self.query.shape
        some = taken(self.query, index[:, None, None, :, None], 3)
        # rows of the heads that share keys go together, so that keys are not repeated
        q = precise(some).reshape(batch, kv_head, -1, width) * call.scale
        logits = xp.matmul(q, self.key)
        logits = logits.reshape(batch, kv_head * group, index.shape[1], self.key.shape[-1])
        if call.softcap is not None:
            logits = call.softcap * xp.tanh(logits / call.softcap)
        if self.mask is not None and not is_bool(self.mask):
            logits = logits + precise(self._rows_of_mask(index))
        logits = xp.where(rows.visible, logits, LOW)
        largest, sink = xp.max(logits, axis=-1), None
        if call.sinks is not None:
            one = xp.broadcast_to(precise(call.sinks)[:, None, None], (*logits.shape[:3], 1))
            logits = xp.concat([logits, one], axis=-1)
        maps, logs = softmax(logits), log_softmax(logits)
        if call.sinks is not None:
            maps, logs, sink = maps[..., :-1], logs[..., :-1], logs[..., -1]
        if rows.blind is not None:
            maps = xp.where(rows.blind, 0.0, maps)
        return Block(maps, logs, largest, sink)

    def _place(self, index: Any) -> Any:
        _, _, queries, keys = self.call.shape
        return index + (keys - queries)

    def _rows_of_mask(self, index: Any) -> Any:
        mask = self.mask
        if mask.shape[2] == 1:
            return mask
        mask = namespace(mask).broadcast_to(mask, (index.shape[0], *mask.shape[1:]))
        return taken(mask, index[:, None, :, None], 2)


def cuts_of(call: AttentionCall, budget_bytes: int) -> tuple[int, int]:
    """How many sequences, and how many rows of each, may be in a block of this budget."""
    batch, head, _, keys = call.shape
    most = min(budget_bytes, NEAR_BYTES) if on_processor(call.query) else budget_bytes
    fitting = max(1, most // (head * keys * BYTES_OF_AN_ENTRY))  # rows of all heads
    together = min(batch, fitting)
    return together, fitting // together


def even_cuts(number: int, most: int) -> Iterator[slice]:
    """0 to number in slices of nearly equal length, and no longer than `most`."""
    ends = np.linspace(0, number, max(1, -(-number // most)) + 1).round().astype(int).tolist()
    for start, stop in itertools.pairwise(ends):
        yield slice(start, stop)


def _lowest(mask: Array) -> float:
    return float(namespace(mask).finfo(mask.dtype).min)
