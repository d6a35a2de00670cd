"""Streams: a text cut into equal rows, read side by side, a window of tokens at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError

if TYPE_CHECKING:
    import jax

Part = Literal["training", "validation"]
REMEDY: dict[Part, str] = {
    "training": "longer text, a smaller batch or a shorter context",
    "validation": "longer text, a validation file or a shorter context",
}


def cut_streams(ids: NDArray[np.int32], count: int, context: int, part: Part) -> NDArray[np.int32]:
    """Return `count` contiguous rows of equal length; what is left over at the end is dropped.

    `part` names the text in the message when it is shorter than one batch.
    """
    length = len(ids) // count
    if length < context + 1:
        raise InputError(
            f"corpus: the {part} part has {len(ids):,} tokens, fewer than one batch of {count} "
            f"streams x {context + 1} tokens ({count * (context + 1):,}); give a "
            f"{REMEDY[part]}"
        )
    return ids[: length * count].reshape(count, length)


def window_count(streams: NDArray[np.int32] | jax.Array, context: int) -> int:
    """Return the windows of a pass over the streams; each needs one token more, the last target."""
    return (streams.shape[1] - 1) // context


def window(streams: jax.Array, index: jax.Array, context: int) -> tuple[jax.Array, jax.Array]:
    """Return tokens and next tokens (streams, context) of a window; passes follow each other."""
    import jax

    first = index % window_count(streams, context) * context
    both = jax.lax.dynamic_slice_in_dim(streams, first, context + 1, axis=1)
    return both[:, :-1], both[:, 1:]
