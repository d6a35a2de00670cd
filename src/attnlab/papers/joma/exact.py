"""ExactJoint: the model of JoMA on a dense layout of sequence classes (see `Joint`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.simulation.exact.gradient import (
    PRECISION,
    Block,
    Parameters,
    Rows,
    class_rows,
    dense_block,
    pick,
)
from attnlab.simulation.exact.layout import Layout, Sizes, TokenMap, dense_layout
from attnlab.simulation.exact.model import ExactModel, Start
from attnlab.tasks.classes.classes import SequenceClasses

if TYPE_CHECKING:
    from jaxtyping import Float

    from attnlab.simulation.simulation import Simulation


@jax.custom_jvp
def gelu(x: jax.Array) -> jax.Array:
    """x Phi(x) by erf, which its slope Phi(x) + x phi(x) uses again.

    JAX's own is by erfc: small numbers far to the left of 0 are more accurate, where the error of
    this one is a rounding of x, but on a processor erfc takes five times as long as erf.
    """
    return x * _normal_cdf(x)


@gelu.defjvp
def _gelu_slope(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (x,), (dx,) = primals, tangents
    cdf = _normal_cdf(x)
    density = jnp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return x * cdf, (cdf + x * density) * dx


def _normal_cdf(x: jax.Array) -> jax.Array:
    return 0.5 + 0.5 * jax.lax.erf(x * math.sqrt(0.5))


@jax.custom_jvp
def softmax(scores: jax.Array) -> jax.Array:
    """Over the tokens of each row, (N, A), with the slope diag(b) - b b^T. JAX has that behind a
    switch for the whole program, and without it divides by the sum again."""
    return jax.nn.softmax(scores, axis=1)


@softmax.defjvp
def _softmax_slope(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (scores,), (moved,) = primals, tangents
    b = jax.nn.softmax(scores, axis=1)
    return b, b * (moved - jnp.sum(b * moved, axis=1, keepdims=True))


ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "linear": lambda pre: pre,
    "relu": jax.nn.relu,
    "gelu": gelu,
}


class Perceptron(NamedTuple):
    """Parameters with the learning rate eta_y."""

    lower: Float[Any, "H A"]  # v_k, by contextual token
    query: Float[Any, "H Q"]  # r_k, by query; none without the residual
    upper: Float[Any, "H J"]  # V, by label; none where it is not trained


@dataclass(frozen=True)
class ExactJoint(ExactModel):
    """The MLP's weights and z; `of` is a `Joint`."""

    def lay_out(self, classes: SequenceClasses, run: Simulation) -> tuple[Layout, TokenMap]:
        """Give every token in play an entry of its own; outputs are the labels alone."""
        layout, where = dense_layout(classes, symmetric_start=True)
        labels = np.ones(np.unique(classes.next_token).size)
        return replace(layout, output_multiplicity=labels, lumped_outputs=False), where

    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[jax.Array, Parameters]:
        """Return V where it stays as it is, and what is trained, at the start."""
        dtype = layout.prior.dtype
        labels, tokens, queries = layout.num_outputs, layout.num_shared, layout.num_queries
        hidden = self.of.hidden or labels
        above = labels if self.of.hidden else 0
        shapes = ((hidden, tokens), (hidden, queries), (hidden, above), (queries, tokens))
        sizes = [math.prod(shape) for shape in shapes]
        # one call of the generator for everything: it takes long to compile
        drawn = jnp.split(jax.random.normal(key, (sum(sizes),), dtype), np.cumsum(sizes)[:-1])
        lower, query, upper, noise = (
            part.reshape(shape) for part, shape in zip(drawn, shapes, strict=True)
        )
        none = jnp.zeros((hidden, 0), dtype)
        lower, upper = self.of.scale * lower, upper / np.sqrt(hidden)
        query = self.of.scale * query if self.of.residual else none
        z = start.logits.shared.astype(dtype)
        if random:
            z = z + self.of.scale * noise
        fixed, trained = (upper, none) if self.of.stationary else (none, upper)
        return fixed, Parameters(Perceptron(lower, query, trained), z)

    def outputs(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: jax.Array
    ) -> jax.Array:
        """Return the labels' logits, (N, J)."""
        lower, query, upper = trained.Y
        b = self._attended(rows, trained.Z)
        pre = jnp.einsum("na,ha->nh", b, lower, precision=PRECISION)
        if self.of.residual:
            pre = pre + pick(query.T, rows.query).T
        h = ACTIVATIONS[self.of.activation](pre)
        if self.of.hidden is None:
            return h
        return jnp.einsum(
            "nh,hj->nj", h, fixed if self.of.stationary else upper, precision=PRECISION
        )

    def loss_and_error(
        self, layout: Layout, rows: Rows, logits: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return cross entropy; or where the error is held, what has that error as its slope."""
        if not self.of.stationary:
            return super().loss_and_error(layout, rows, logits)
        is_target = rows.target[:, None] == jnp.arange(layout.num_outputs)
        error = 1 / layout.num_outputs - is_target.astype(logits.dtype)
        return jnp.sum(error * logits, axis=1), error * rows.weight[:, None]

    def attention_logits(self, layout: Layout, trained: Parameters, fixed: jax.Array) -> Block:
        """Return z in the layout's blocks."""
        return dense_block(layout, trained.Z)

    def class_attention(self, layout: Layout, trained: Parameters, fixed: jax.Array) -> Block:
        """Return |b| over its sum, for each class."""
        b = self._attended(class_rows(layout, layout.prior), trained.Z)
        shares = jnp.abs(b)
        return dense_block(layout, shares / jnp.sum(shares, axis=1, keepdims=True))

    def extras(self, layout: Layout, trained: Parameters, fixed: jax.Array) -> dict[str, Any]:
        """Return the MLP: v by token, r by query and V by label."""
        lower, query, upper = trained.Y
        found = {
            "mlp_weights": dense_block(layout, lower),
            "query_weights": query,
            "upper_weights": fixed if self.of.stationary else upper,
        }
        return {name: found[name] for name in self.of.extra_dims()}

    def numbers(self, sizes: Sizes) -> dict[str, int]:
        """Return the numbers of the MLP and of z."""
        return {"model": self.decoder_numbers(sizes), "classes": sizes.queries * sizes.tokens}

    def decoder_numbers(self, sizes: Sizes) -> int:
        """Return the numbers of W and V."""
        return (self.of.hidden or sizes.outputs) * (sizes.tokens + sizes.queries + sizes.outputs)

    def products(self, sizes: Sizes, rows: int) -> int:
        """Return the terms of W, and of V where it is there."""
        if self.of.hidden is None:
            return super().products(sizes, rows)
        return rows * self.of.hidden * (sizes.tokens + sizes.outputs)

    def _attended(self, rows: Rows, z: jax.Array) -> jax.Array:
        """Return b of each row, (N, A). A mass is counts or P: frequencies x are its shares."""
        logits = pick(z / self.of.temperature, rows.query).T
        if self.of.attention == "softmax":
            return softmax(rows.shared_log_mass + logits)
        if self.of.attention == "exp":
            return jnp.exp(jax.nn.log_softmax(rows.shared_log_mass, axis=1) + logits)
        return jax.nn.softmax(rows.shared_log_mass, axis=1) * logits
