"""Some rows of a call as maps: logits, what is visible, the softmax over just that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.measures.arrays import Array, beside, is_bool, namespace, precise
from attnlab.observe.call import AttentionCall
from attnlab.observe.sample import Rows

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

# An additive mask hides a key with this or less. Model code adds the lowest number of its dtype,
# infinity or -1e9, and biases to them.
HIDDEN = -1e8
# Bytes of a block for each entry of its maps: logits, maps, their order (with torch's indices),
# and what is computed from them.
BYTES_OF_AN_ENTRY = 48


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of some sequences. maps sum to 1 - sink over the keys; 0 where nothing is visible.

    logits: with softcap and bias; -inf at keys that are not visible.
    sink: what the learnable sink takes, and sink_logit; None where there is none.
    index: the queries, and place: where they stand among the keys.
    """

    maps: Float[Array, "batch head row key"]
    logits: Float[Array, "batch head row key"]
    visible: Bool[Array, "#batch #head row key"]
    sink: Float[Array, "batch head row"] | None
    sink_logit: Float[Array, "head 1"] | None
    index: Int[Array, "batch row"]
    place: Int[Array, "batch row"]


@dataclass(frozen=True, eq=False)
class Part:
    """The arrays of some sequences of a call, in the precision that is computed in."""

    call: AttentionCall
    query: Float[Array, "batch kv_head group query width"]
    key: Float[Array, "batch kv_head width key"]
    value: Float[Array, "batch kv_head key width"] | None
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
            None if call.value is None else precise(call.value[sequences]),
            mask,
        )

    def visible(self, index: Int[Array, "batch row"]) -> Bool[Array, "#batch #head row key"]:
        """Which keys these rows may see."""
        keys = self.call.shape[3]
        seen = beside(self.query, np.ones((1, 1, index.shape[1], keys), bool))
        key = beside(self.query, np.arange(keys))
        first, last = self.call.span(self._place(index)[:, None, :, None])
        seen = seen & (key >= first) & (key <= last)
        if self.mask is not None:
            rows = self._rows_of_mask(index)
            seen = seen & (rows if is_bool(rows) else rows > max(HIDDEN, _lowest(rows) / 2))
        return seen

    def block(self, rows: Rows) -> Block:
        """The maps of these rows."""
        xp, call = namespace(self.query), self.call
        index = beside(self.query, rows.index)
        batch, kv_head, group, _, width = self.query.shape
        taken = xp.take_along_axis(self.query, index[:, None, None, :, None], axis=3)
        # rows of the heads that share keys go together, so that keys are not repeated
        q = precise(taken).reshape(batch, kv_head, -1, width) * call.scale
        logits = xp.matmul(q, self.key)
        logits = logits.reshape(batch, kv_head * group, len(rows), self.key.shape[-1])
        if call.softcap is not None:
            logits = call.softcap * xp.tanh(logits / call.softcap)
        visible = self.visible(index)
        if self.mask is not None and not is_bool(self.mask):
            logits = logits + precise(self._rows_of_mask(index))
        logits = xp.where(visible, logits, -xp.inf)
        most = xp.max(logits, axis=-1, keepdims=True)
        sink_logit = None if call.sinks is None else precise(call.sinks)[:, None]
        if sink_logit is not None:
            most = xp.maximum(most, sink_logit[..., None])
        most = xp.where(xp.isfinite(most), most, 0.0)  # rows that see nothing
        weights = xp.exp(logits - most)
        total = xp.sum(weights, axis=-1, keepdims=True)
        sink = None
        if sink_logit is not None:
            of_sink = xp.exp(sink_logit[..., None] - most)
            total = total + of_sink
            sink = (of_sink / total)[..., 0]
        maps = weights / xp.where(total > 0, total, 1.0)
        return Block(maps, logits, visible, sink, sink_logit, index, self._place(index))

    def output(self, maps: Float[Array, "batch head row key"]) -> Float[Array, "batch head row w"]:
        """What these maps make of the values."""
        xp = namespace(maps)
        batch, head, rows, keys = maps.shape
        merged = maps.reshape(batch, self.key.shape[1], -1, keys)
        return xp.matmul(merged, self.value).reshape(batch, head, rows, -1)

    def _place(self, index: Any) -> Any:
        _, _, queries, keys = self.call.shape
        return index + (keys - queries)

    def _rows_of_mask(self, index: Any) -> Any:
        mask = self.mask
        if mask.shape[2] == 1:
            return mask
        xp = namespace(mask)
        mask = xp.broadcast_to(mask, (index.shape[0], *mask.shape[1:]))
        return xp.take_along_axis(mask, index[:, None, :, None], axis=2)


def cuts_of(call: AttentionCall, budget_bytes: int) -> tuple[int, int]:
    """How many sequences, and how many rows of each, may be in a block of this budget."""
    batch, head, _, keys = call.shape
    fitting = max(1, budget_bytes // (head * keys * BYTES_OF_AN_ENTRY))  # rows of all heads
    together = min(batch, fitting)
    return together, fitting // together


def even_cuts(number: int, most: int) -> Iterator[slice]:
    """0 to number in slices of nearly equal length, and no longer than `most`."""
    ends = np.linspace(0, number, max(1, -(-number // most)) + 1).round().astype(int).tolist()
    for start, stop in itertools.pairwise(ends):
        yield slice(start, stop)


def _lowest(mask: Array) -> float:
    return float(namespace(mask).finfo(mask.dtype).min)
