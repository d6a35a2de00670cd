"""Pairwise: the paper's reparameterisation in Y and Z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.classes import SequenceClasses
from attnlab.dynamics.gradient import Block, Parameters, Rows, decode, loss_and_gradient
from attnlab.dynamics.layout import Layout, Sizes, TokenMap, dense_layout, sparse_layout
from attnlab.dynamics.models.base import Model
from attnlab.dynamics.start import Init, Start, is_random

if TYPE_CHECKING:
    from attnlab.dynamics.engines import Engine
    from attnlab.dynamics.simulation import Simulation


@dataclass(frozen=True)
class Pairwise(Model):
    """The paper's reparameterisation: Y and Z are trained as they are (Section 3.1)."""

    cancels: ClassVar[bool] = True

    def outputs(self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any) -> jax.Array:
        """The decoder's logits Y^T f of each row."""
        return decode(layout, rows, trained)

    def loss_and_gradient(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any
    ) -> tuple[jax.Array, Parameters]:
        """The loss and its gradient in closed form (Lemma 1)."""
        return loss_and_gradient(layout, rows, trained)

    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Any) -> Block:
        """z in the layout's blocks."""
        return trained.Z

    def check(self, engine: Engine, init: Init) -> None:
        """Any engine and any start will do."""

    def symmetric(self, init: Init) -> bool:
        """From Y(0) = 0 outputs that are never a target stay identical."""
        return not is_random(init)

    def dense(self, engine: Engine) -> bool:
        """Where rows are whole classes, tokens of one class are kept apart, and lumped."""
        return engine.row_kind != "classes"

    def lay_out(self, classes: SequenceClasses, simulation: Simulation) -> tuple[Layout, TokenMap]:
        """As small as the rows of the engine allow."""
        engine, init = simulation.engine, simulation.init
        symmetric = self.symmetric(init)
        if self.dense(engine):
            by_class = engine.row_kind == "slots"
            return dense_layout(classes, symmetric_start=symmetric, by_class=by_class)
        return sparse_layout(
            classes,
            symmetric_start=symmetric,
            lump=simulation.lump and symmetric,
            start_logits=None if isinstance(init, str) else simulation.start_logits(classes),
        )

    def numbers(self, sizes: Sizes) -> dict[str, int]:
        """Numbers of Y and of Z."""
        tokens = sizes.tokens
        return {"classes": sizes.outputs * tokens, "heads": sizes.queries * tokens}

    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[tuple[()], Parameters]:
        """Nothing fixed, and Y(0), Z(0): each entry uniform in +-1/sqrt(M) if `random`."""
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
