"""ExactEmbedded: Y and Z made from an embedding and trained W_Q, W_K, W_V."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.simulation.exact.gradient import (
    PRECISION,
    Block,
    Parameters,
    Rows,
    decode,
    dense_parameters,
    loss_and_gradient,
)
from attnlab.simulation.exact.layout import Layout, Sizes
from attnlab.simulation.exact.model import ExactModel, Start

if TYPE_CHECKING:
    from jaxtyping import Float


class Embedding(NamedTuple):
    """Rows of U: of every output, of the tokens in play and of the queries in use."""

    outputs: Float[Any, "M d"]
    tokens: Float[Any, "A d"]
    queries: Float[Any, "Q d"]


class QueryKey(NamedTuple):
    """What makes the attention logits."""

    W_Q: Float[Any, "d 2*d"]
    W_K: Float[Any, "d 2*d"]


@dataclass(frozen=True)
class ExactEmbedded(ExactModel):
    """U, W_Q, W_K and W_V; `of` is an `Embedded`."""

    def matrices(self, layout: Layout, trained: Parameters, fixed: Embedding) -> Parameters:
        """Return Y and Z in the dense layout's blocks."""
        W_V, (W_Q, W_K) = trained
        d = fixed.outputs.shape[1]
        Y = _product(fixed.tokens, _product(fixed.outputs, W_V).T)
        Z = _product(_product(fixed.queries, W_Q), _product(fixed.tokens, W_K).T) / np.sqrt(d)
        return dense_parameters(layout, Y, Z.astype(Y.dtype))

    def outputs(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Embedding
    ) -> jax.Array:
        """Return the decoder's logits Y^T f of each row."""
        return decode(layout, rows, self.matrices(layout, trained, fixed))

    def loss_and_gradient(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Embedding
    ) -> tuple[jax.Array, Parameters]:
        """Return the loss and its gradient: Lemma 1 pulled back through Y and Z."""
        matrices, pull_back = jax.vjp(lambda w: self.matrices(layout, w, fixed), trained)
        value, gradient = loss_and_gradient(layout, rows, matrices)
        return value, pull_back(gradient)[0]

    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Embedding) -> Block:
        """Return z in the layout's blocks."""
        return self.matrices(layout, trained, fixed).Z

    def numbers(self, sizes: Sizes) -> dict[str, int]:
        """Return the numbers of U, W_V, W_Q and W_K, and of the Y and Z that they make."""
        d, tokens = self.of.dim, sizes.tokens
        return {
            "classes": sizes.outputs * tokens,
            "heads": sizes.queries * tokens,
            "dim": 5 * d**2 + d * sizes.vocab_size,
        }

    def products(self, sizes: Sizes, rows: int) -> int:
        """Return the terms of Y and Z, and of the products that make Y from W_V."""
        d = self.of.dim
        return super().products(sizes, rows) + d * sizes.vocab_size * (d + sizes.tokens)

    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[Embedding, Parameters]:
        """Return U, which stays as it is, and W_V, W_Q, W_K at the start."""
        vocab_size = layout.output_multiplicity.shape[0]
        U, W_V, W_Q, W_K = self.of.start(key, vocab_size, random, layout.prior.dtype)
        embedding = Embedding(U, U[start.tokens], U[start.queries])
        return embedding, Parameters(W_V, QueryKey(W_Q, W_K))


def _product(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision=PRECISION)
