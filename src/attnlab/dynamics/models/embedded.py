"""Embedded: the original parameterisation, an embedding and trained W_Q, W_K, W_V."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.dynamics.gradient import (
    PRECISION,
    Block,
    Parameters,
    Rows,
    decode,
    dense_parameters,
    loss_and_gradient,
)
from attnlab.dynamics.layout import Layout, Sizes
from attnlab.dynamics.models.base import Model
from attnlab.dynamics.start import Start
from attnlab.files.errors import InputError, require_whole

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
class Embedded(Model):
    """The original parameterisation: an embedding U and trained W_Q, W_K, W_V, single head.

    Y = U W_V^T U^T and Z = U W_Q W_K^T U^T / sqrt(d), with d = `dim`. U is kept as it starts:
    orthonormal rows when d is at least the vocabulary, random unit rows otherwise. With
    ``init="zero"``, W_V = 0 and W_Q, W_K are `scale` times isometries onto orthogonal halves of
    a head of width 2 d, so that Y(0) = Z(0) = 0 while both factors can move Z. With
    ``init="uniform"`` all entries are uniform in +-scale/sqrt(d).

    W_Q and W_K learn at eta_z d / (2 scale^2): Z then starts to move exactly as in `Pairwise`.
    For orthonormal U the whole trajectory approaches that of `Pairwise` as `scale` grows, with
    an error of order 1/scale^4: to first order the factors turn without changing their product.

    Parameters
    ----------
    dim : int
        d.
    scale : float, optional
        Of W_Q and W_K at the start.
    """

    dim: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_whole("dim", self.dim, 1)
        if not self.scale > 0:
            raise InputError(f"scale: expected a positive number, got {self.scale}")

    def rate_factors(self) -> tuple[float, float]:
        """Rates of the two groups over (eta_y, eta_z)."""
        return 1.0, self.dim / (2 * self.scale**2)

    def matrices(self, layout: Layout, trained: Parameters, fixed: Embedding) -> Parameters:
        """Y and Z in the dense layout's blocks."""
        W_V, (W_Q, W_K) = trained
        d = fixed.outputs.shape[1]
        Y = _product(fixed.tokens, _product(fixed.outputs, W_V).T)
        Z = _product(_product(fixed.queries, W_Q), _product(fixed.tokens, W_K).T) / np.sqrt(d)
        return dense_parameters(layout, Y, Z.astype(Y.dtype))

    def outputs(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Embedding
    ) -> jax.Array:
        """The decoder's logits Y^T f of each row."""
        return decode(layout, rows, self.matrices(layout, trained, fixed))

    def loss_and_gradient(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Embedding
    ) -> tuple[jax.Array, Parameters]:
        """The loss and its gradient: Lemma 1 pulled back through Y and Z."""
        matrices, pull_back = jax.vjp(lambda w: self.matrices(layout, w, fixed), trained)
        value, gradient = loss_and_gradient(layout, rows, matrices)
        return value, pull_back(gradient)[0]

    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Embedding) -> Block:
        """z in the layout's blocks."""
        return self.matrices(layout, trained, fixed).Z

    def numbers(self, sizes: Sizes) -> dict[str, int]:
        """Numbers of U, W_V, W_Q and W_K, and of the Y and Z that they make."""
        d, tokens = self.dim, sizes.tokens
        return {
            "classes": sizes.outputs * tokens,
            "heads": sizes.queries * tokens,
            "dim": 5 * d**2 + d * sizes.vocab_size,
        }

    def products(self, sizes: Sizes, rows: int) -> int:
        """Those of Y and Z, and those that make Y from W_V."""
        d = self.dim
        return super().products(sizes, rows) + d * sizes.vocab_size * (d + sizes.tokens)

    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[Embedding, Parameters]:
        """U, which stays as it is, and W_V, W_Q, W_K at the start."""
        dtype, d = layout.prior.dtype, self.dim
        vocab_size = layout.output_multiplicity.shape[0]
        u_key, w_key = jax.random.split(key)
        U = jax.random.normal(u_key, (vocab_size, d), dtype)
        if d >= vocab_size:
            U = jnp.linalg.qr(U.T)[0].T
        else:
            U = U / jnp.linalg.norm(U, axis=1, keepdims=True)
        embedding = Embedding(U, U[start.tokens], U[start.queries])
        if random:
            bound = self.scale / np.sqrt(d)
            shapes = ((d, d), (d, 2 * d), (d, 2 * d))
            W_V, W_Q, W_K = (
                jax.random.uniform(k, shape, dtype, -bound, bound)
                for k, shape in zip(jax.random.split(w_key, 3), shapes, strict=True)
            )
            return embedding, Parameters(W_V, QueryKey(W_Q, W_K))
        turn = jnp.linalg.qr(jax.random.normal(w_key, (2 * d, 2 * d), dtype))[0]
        W_Q, W_K = self.scale * turn[:d], self.scale * turn[d:]
        return embedding, Parameters(jnp.zeros((d, d), dtype), QueryKey(W_Q, W_K))


def _product(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision=PRECISION)
