"""Pairwise: the paper's reparameterisation in Y and Z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.dynamics.gradient import (
    Block,
    Parameters,
    Rows,
    attention,
    loss,
    loss_and_gradient,
)
from attnlab.dynamics.layout import Layout
from attnlab.dynamics.models.base import Model
from attnlab.dynamics.start import Start


@dataclass(frozen=True)
class Pairwise(Model):
    """The paper's reparameterisation: Y and Z are trained as they are (Section 3.1)."""

    def loss(self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any) -> jax.Array:
        """The mean cross entropy over rows."""
        return loss(layout, rows, trained)

    def loss_and_gradient(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any
    ) -> tuple[jax.Array, Parameters]:
        """The loss and its gradient for what is trained."""
        return loss_and_gradient(layout, rows, trained)

    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Any) -> Block:
        """z in the layout's blocks."""
        return trained.Z

    def attention(self, layout: Layout, trained: Parameters, fixed: Any) -> Block:
        """c_{l|m,n} of Eq. 5 for each class."""
        return attention(layout, trained.Z)

    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[tuple[()], Parameters]:
        """Nothing fixed, and Y(0), Z(0): each entry uniform in +-1/sqrt(M) if `random`."""
        dtype = layout.prior.dtype
        outputs, shared = layout.output_multiplicity.shape[0], layout.shared_multiplicity.shape[0]
        tiles, width = layout.own_multiplicity.shape
        shapes = (
            ((outputs, shared), (tiles, outputs, width)),
            ((layout.num_queries, shared), (tiles, width)),
        )
        if not random:
            Y = Block(jnp.zeros((shared, outputs), dtype), jnp.zeros(shapes[0][1], dtype))
            return (), Parameters(Y, Block(*(z.astype(dtype) for z in start.logits)))
        # without lumping, which a random start rules out, there are as many columns as tokens
        bound = 1 / np.sqrt(outputs)
        sizes = [int(np.prod(shape)) for pair in shapes for shape in pair]
        drawn = jax.random.uniform(key, (sum(sizes),), dtype, -bound, bound)
        parts = iter(jnp.split(drawn, np.cumsum(sizes)[:-1]))
        Y, Z = (Block(*(next(parts).reshape(shape) for shape in pair)) for pair in shapes)
        Y, Z = (block._replace(shared=block.shared[:, start.drawn]) for block in (Y, Z))
        return (), Parameters(Y._replace(shared=Y.shared.T), Z)
