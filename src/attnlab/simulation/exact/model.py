"""ExactModel: a sequence-class model on the layout of its classes.

Parameters are grouped in two: the decoder (eta_y) and the attention (eta_z).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from attnlab.simulation.exact import gradient
from attnlab.simulation.exact.gradient import Block, Parameters, Rows
from attnlab.simulation.exact.layout import Layout, Sizes, TokenMap, dense_layout
from attnlab.tasks.classes.classes import SequenceClasses

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from attnlab.simulation.simulation import Simulation


class Start(NamedTuple):
    """Arrays that a start is made from: given logits, and where tokens are in the layout."""

    logits: Any  # Z(0) as a Block in the layout; neutral unless given
    tokens: Int[Any, " L"]  # token ids by entry of the layout
    queries: Int[Any, " Q"]  # token ids
    query_place: Int[Any, " Q"]  # entries of the queries' own tokens, or -1
    bias: Float[Any, " distances"]  # position bias by distance; empty for T to infinity
    drawn: Int[Any, " A_drawn"]  # the shared groups' order in a random start


@dataclass(frozen=True)
class ExactModel(ABC):
    """The computations of a sequence-class model; `of` are its settings.

    A subclass says where it begins (`begin`), what it puts out for a row (`outputs`) and what its
    attention logits are; loss, gradient and attention follow from these. All of them are pure
    functions of arrays that are compiled; `fixed` is whatever `begin` keeps fixed.
    """

    of: Any

    @property
    def heads(self) -> int:
        """Number of heads."""
        heads: int = self.of.heads
        return heads

    # -- what is learnt ---------------------------------------------------------------------

    @abstractmethod
    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[Any, Parameters]:
        """Return constants and parameters at the start; `random` for init="uniform"."""

    @abstractmethod
    def outputs(self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any) -> jax.Array:
        """Return the decoder's logits of each row, (N, J)."""

    @abstractmethod
    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Any) -> Block:
        """Return z in the layout's blocks."""

    def class_attention(self, layout: Layout, trained: Parameters, fixed: Any) -> Block:
        """Return c_{l|m,n} for each class."""
        attend = partial(gradient.attention, layout)
        Z = self.attention_logits(layout, trained, fixed)
        return (jax.vmap(attend) if self.heads > 1 else attend)(Z)

    def loss(self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any) -> jax.Array:
        """Return the mean loss over rows."""
        logits = self.outputs(layout, rows, trained, fixed)
        return jnp.sum(rows.weight * self.loss_and_error(layout, rows, logits)[0])

    def loss_and_error(
        self, layout: Layout, rows: Rows, logits: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the loss of each row, (N,), and the slope of their mean for the outputs, (N, J).

        Cross entropy, and the error alpha - x_{T+1} in the form that does not cancel late in
        training.
        """
        _, cross_entropy, error = gradient.prediction(layout, rows, logits)
        return cross_entropy, error

    def loss_and_gradient(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any
    ) -> tuple[jax.Array, Parameters]:
        """Return the loss and its gradient: the error pulled back through the outputs."""
        logits, pull_back = jax.vjp(lambda w: self.outputs(layout, rows, w, fixed), trained)
        per_row, error = self.loss_and_error(layout, rows, logits)
        (slope,) = pull_back(layout.count_outputs(error))
        return jnp.sum(rows.weight * per_row), self.per_entry(layout, slope)

    def per_entry(self, layout: Layout, slope: Parameters) -> Parameters:
        """Return the slope, where an entry that stands for several equal ones has that of one."""
        return slope

    # -- how it is laid out -------------------------------------------------------------------

    def symmetric(self, run: Simulation) -> bool:
        """Return True if outputs that are never a target stay identical, so that one column may
        stand for all of them; `per_entry` then has to know."""
        return False

    def dense(self, run: Simulation) -> bool:
        """Return True if every token in play has an entry of its own."""
        return True

    def lay_out(self, classes: SequenceClasses, run: Simulation) -> tuple[Layout, TokenMap]:
        """Return which entries exist, and where."""
        return dense_layout(classes, symmetric_start=self.symmetric(run))

    @property
    def blocks(self) -> int:
        """Blocks of the decoder, each as large as Y."""
        return 1

    def start_bias(self, distances: int) -> NDArray[np.float64]:
        """Return the bias by distance at the start; empty where the model does not use it.

        Programs are compiled for shapes: a length that is not used stays out of them.
        """
        return np.zeros(0)

    # -- what is recorded with the logits, beside them ----------------------------------------

    def extras(self, layout: Layout, trained: Parameters, fixed: Any) -> dict[str, Any]:
        """Return more to record, by name: arrays, or a `Block` where the last dim is the token."""
        return {}

    # -- what a run costs, roughly ------------------------------------------------------------

    @abstractmethod
    def numbers(self, sizes: Sizes) -> dict[str, int]:
        """Return the numbers that are trained or kept fixed, by the field that asks for them."""

    def decoder_numbers(self, sizes: Sizes) -> int:
        """Return the size of the decoder."""
        return self.blocks * sizes.outputs * sizes.tokens

    def products(self, sizes: Sizes, rows: int) -> int:
        """Return the terms of the products in a gradient over `rows` rows."""
        return self.heads * rows * sizes.tokens * sizes.outputs
