"""Why a first position is an attention sink: its logit, its value, its residual stream.

Functions of plain arrays, as those of `attnlab.measures.places`, whose `sink_mass` is the attention
itself. The first position is the first of the last axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnlab.measures.arrays import Array, beside, namespace

if TYPE_CHECKING:
    from jaxtyping import Float


def sink_logit(logits: Float[Array, "*rows query key"]) -> Float[Array, "*rows query"]:
    """The logit of the first key above the mean of the other keys up to the query's own position.

    The last query is the last key. Later keys do not count, whatever their logits. NaN where the
    query sees no other key.
    """
    xp = namespace(logits)
    queries, keys = logits.shape[-2:]
    at = beside(logits, np.arange(queries) + (keys - queries))
    key = beside(logits, np.arange(keys))
    others = (key >= 1) & (key <= at[..., None])
    count = xp.sum(xp.astype(others, logits.dtype), axis=-1)
    total = xp.sum(xp.where(others, logits, 0.0), axis=-1)
    mean = total / xp.where(count > 0, count, 1.0)
    return xp.where(count > 0, logits[..., 0] - mean, xp.nan)


def first_ratio(norms: Float[Array, "*rows position"]) -> Float[Array, "*rows"]:
    """The first position's norm over the mean of the others.

    Of values, below 1 it is a value drain; of the residual stream, above 1 it is a residual peak.
    """
    xp = namespace(norms)
    return norms[..., 0] / xp.mean(norms[..., 1:], axis=-1)
