"""ExactPairwise: Y and Z in the layout's blocks, with the gradient in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.simulation.exact.gradient import Block, Parameters, Rows, decode, loss_and_gradient
from attnlab.simulation.exact.layout import Layout, Sizes, TokenMap, dense_layout, sparse_layout
from attnlab.simulation.exact.model import ExactModel, Start
from attnlab.simulation.start import is_random
from attnlab.tasks.classes.classes import SequenceClasses

if TYPE_CHECKING:
    from attnlab.simulation.simulation import Simulation


@dataclass(frozen=True)
class ExactPairwise(ExactModel):
    """Y and Z, trained as they are; `of` is a `Pairwise`."""

    def outputs(self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any) -> jax.Array:
        """Return the decoder's logits Y^T f of each row."""
        return decode(layout, rows, trained)

    def loss_and_gradient(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any
    ) -> tuple[jax.Array, Parameters]:
        """Return the loss and its gradient in closed form (Lemma 1)."""
        return loss_and_gradient(layout, rows, trained)

    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Any) -> Block:
        """Return z in the layout's blocks."""
        return trained.Z

    def symmetric(self, run: Simulation) -> bool:
        """Return True for Y(0) = 0: outputs that are never a target stay identical."""
        return not is_random(run.init)

    def dense(self, run: Simulation) -> bool:
        """Return False where rows are whole classes, whose tokens are kept apart, and lumped."""
        return not run.task.infinite

    def lay_out(self, classes: SequenceClasses, run: Simulation) -> tuple[Layout, TokenMap]:
        """Return a layout as small as the rows of the task allow."""
        symmetric = self.symmetric(run)
        if self.dense(run):
            return dense_layout(classes, symmetric_start=symmetric, by_class=True)
        return sparse_layout(
            classes,
            symmetric_start=symmetric,
            lump=run.task.lump and symmetric,
            start_logits=None if isinstance(run.init, str) else run.start_logits(classes),
        )

    def numbers(self, sizes: Sizes) -> dict[str, int]:
        """Return the numbers of Y and of Z."""
        tokens = sizes.tokens
        return {"classes": sizes.outputs * tokens, "heads": sizes.queries * tokens}

    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[tuple[()], Parameters]:
        """Return nothing fixed, and Y(0), Z(0): each entry uniform in +-1/sqrt(M) if `random`."""
        dtype = layout.prior.dtype
        outputs, shared = layout.num_outputs, layout.num_shared
        tiles, width = layout.exclusive_multiplicity.shape
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
