"""Row sources: what draws the rows of a step.

A source first sets aside what a seed keeps for all its steps (`collect`), then draws the rows of
each step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.dynamics.gradient import Rows
from attnlab.dynamics.layout import Layout


class RowSource(ABC):
    """What draws the rows of a step, inside compiled code.

    Subclasses are frozen dataclasses registered as pytrees (`jax.tree_util.register_dataclass`):
    their arrays are stacked with those of other sets of classes, and have no other state.
    """

    def collect(self, layout: Layout, key: jax.Array) -> Any:
        """What a seed keeps for all its steps; nothing, where rows are drawn anew."""
        return None

    @abstractmethod
    def draw(self, layout: Layout, key: jax.Array, kept: Any) -> Rows:
        """The rows of a step, of which `key` is told by seed and step."""


def sequence_rows(
    layout: Layout,
    sequence_class: jax.Array,
    log_mass: jax.Array | None,
    places: jax.Array | None = None,
) -> Rows:
    """The rows of sequences of these classes, all of one weight.

    Parameters
    ----------
    layout : Layout
        Of the classes.
    sequence_class : jax.Array
        The class of each sequence, (N,).
    log_mass : jax.Array, optional
        The log of their token counts (N, A) by place in the layout; -inf where there is none.
    places : jax.Array, optional
        (N, T - 1) instead, where the order of tokens matters and its bias is trained.
    """
    size = sequence_class.shape[0]
    return Rows(
        shared_log_mass=log_mass,
        exclusive_log_mass=layout.exclusive_log_prob,
        query=layout.query[sequence_class],
        target=layout.target[sequence_class],
        weight=jnp.full((size,), 1.0 / size, layout.prior.dtype),
        places=places,
        first_exclusive=layout.first_exclusive[sequence_class] if layout.exclusive_each else None,
    )
