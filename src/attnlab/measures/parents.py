"""Attention to a given earlier position: does a layer follow a graph of positions?

Functions of plain maps, (..., query, key). `parents` has the parent of each of the first positions,
counted from 0; -1 for none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.files.errors import InputError
from attnlab.measures.arrays import Array, namespace

if TYPE_CHECKING:
    from jaxtyping import Float

    Maps = Float[Array, "*rows query key"]


def parent_attention(maps: Maps, parents: Any) -> Float[Array, "*rows child"]:
    """The attention of each position that has a parent to that parent, in the positions' order."""
    children, above = _children(parents)
    return maps[..., children, above]


def parent_recovery(maps: Maps, parents: Any) -> Float[Array, "*rows"]:
    """The share of the positions with a parent that attend to it most."""
    xp = namespace(maps)
    children, above = _children(parents)
    hit = xp.argmax(maps[..., children, :], axis=-1) == xp.asarray(above)
    return xp.mean(xp.astype(hit, maps.dtype), axis=-1)


def _children(parents: Any) -> tuple[np.ndarray, np.ndarray]:
    above = np.asarray(parents)
    children = np.flatnonzero(above >= 0)
    if not children.size:
        raise InputError("parents: no position has a parent; give at least one that is 0 or more")
    return children, above[children]
