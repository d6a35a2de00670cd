"""ExactExtended: the extensions of the 1-layer model on a dense layout (see `Extended`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp
from numpy.typing import NDArray

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
from attnlab.simulation.exact.rows import log_position_mass
from attnlab.simulation.start import is_random
from attnlab.tasks.classes.classes import SequenceClasses

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from attnlab.simulation.simulation import Simulation


class Logits(NamedTuple):
    """Parameters with the learning rate eta_z."""

    z: Float[Any, "H Q A"]
    bias: Float[Any, "H learned_distances"]  # none where it is not learned


class Given(NamedTuple):
    """Constants: where the queries' own tokens are, and the bias at the start."""

    query_place: Int[Any, " Q"]  # among the shared groups
    bias: Float[Any, " distances"]  # empty for T to infinity


@dataclass(frozen=True)
class ExactExtended(ExactModel):
    """Y, z and perhaps a bias by distance; `of` is an `Extended`."""

    @property
    def blocks(self) -> int:
        """Blocks of the decoder Y."""
        blocks: int = self.of.blocks
        return blocks

    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[Given, Parameters]:
        """Return Y(0) as (block, J, A) and z(0); drawn as in `Pairwise` if `random`."""
        dtype = layout.prior.dtype
        outputs, tokens = layout.num_outputs, layout.num_shared
        y_shape = (self.blocks, outputs, tokens)
        z_shape = (self.heads, layout.num_queries, tokens)
        if random:
            bound, y_size = 1 / np.sqrt(outputs), int(np.prod(y_shape))
            drawn = jax.random.uniform(key, (y_size + int(np.prod(z_shape)),), dtype, -bound, bound)
            Y, z = drawn[:y_size].reshape(y_shape), drawn[y_size:].reshape(z_shape)
        else:
            Y = jnp.zeros(y_shape, dtype)
            z = jnp.broadcast_to(start.logits.shared.astype(dtype), z_shape)
        bias = jnp.asarray(start.bias, dtype)
        trained_bias = jnp.tile(bias if self.of.learns_bias else bias[:0], (self.heads, 1))
        return Given(start.query_place, bias), Parameters(Y, Logits(z, trained_bias))

    def symmetric(self, run: Simulation) -> bool:
        """Return True for Y(0) = 0: outputs that are never a target stay identical."""
        return not is_random(run.init)

    def lay_out(self, classes: SequenceClasses, run: Simulation) -> tuple[Layout, TokenMap]:
        """Return a dense layout, with the queries' own tokens where they are seen."""
        return dense_layout(
            classes,
            symmetric_start=self.symmetric(run),
            also=classes.queries if self.of.residual or self.of.attend_self else None,
            whole=self.of.normalization == "layer",  # the mean is taken away from all M coordinates
        )

    def per_entry(self, layout: Layout, slope: Parameters) -> Parameters:
        """Divide the slope of Y by the outputs and tokens that an entry stands for."""
        stands_for = layout.output_multiplicity[:, None] * layout.shared_multiplicity
        return slope._replace(Y=slope.Y / stands_for)

    def start_bias(self, distances: int) -> NDArray[np.float64]:
        """Return the bias by distance at the start; zero where there is none."""
        bias: NDArray[np.float64] = self.of.start_bias(distances)
        return bias

    def numbers(self, sizes: Sizes) -> dict[str, int]:
        """Return the numbers of Y, of its further blocks, and of z."""
        Y, z = sizes.outputs * sizes.tokens, sizes.queries * sizes.tokens
        return {"classes": Y, "heads": (self.blocks - 1) * Y + self.heads * z}

    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Given) -> Block:
        """Return z as (head, query, token); without the head axis where there is one head."""
        return self._seen(layout, trained.Z.z)

    def class_attention(self, layout: Layout, trained: Parameters, fixed: Given) -> Block:
        """Return c_{l|m,n} of each head: X^T b at the expected mass of a class's sequences.

        Tokens are drawn alike at all distances, so that a position bias cancels in the mean (Eq. 5
        stays as it is), but for the weight of all contextual tokens against the query's own.
        """
        rows = class_rows(layout, layout.prior)
        if self.of.attend_self:
            bias = trained.Z.bias if self.of.learns_bias else fixed.bias[None]
            context = logsumexp(bias, axis=1)[:, None, None]
            rows = rows._replace(shared_log_mass=rows.shared_log_mass + context)
        return self._seen(layout, self._attend(layout, rows, trained.Z, fixed))

    def extras(self, layout: Layout, trained: Parameters, fixed: Given) -> dict[str, jax.Array]:
        """Return the learned bias, without the head axis where there is one head."""
        bias = trained.Z.bias if self.heads > 1 else trained.Z.bias[0]
        return {"position_bias": bias} if self.of.learns_bias else {}

    def outputs(self, layout: Layout, rows: Rows, trained: Parameters, fixed: Given) -> jax.Array:
        """Return the decoder's logits, (N, J)."""
        x = self._attend(layout, rows, trained.Z, fixed)  # (H, N, A)
        if self.of.combine == "average":
            x = jnp.mean(x, axis=0, keepdims=True)
        f = self._normalized(layout, x)
        if self.of.residual:
            x_T = self._is_query_token(layout, rows, fixed).astype(x.dtype)
            f = self._normalized(layout, f + self._normalized(layout, x_T))
        return jnp.einsum("hna,hja->nj", layout.count_shared(f), trained.Y, precision=PRECISION)

    def _attend(self, layout: Layout, rows: Rows, logits: Logits, given: Given) -> jax.Array:
        """Return X^T b of each head, (H, N, A): softmax over tokens of log mass plus z."""
        z = jax.vmap(lambda z: pick(z, rows.query).T)(logits.z)
        log_mass, places = rows.shared_log_mass, rows.places
        if places is not None:
            log_mass = jax.vmap(lambda p: log_position_mass(places, p, z.shape[-1]))(logits.bias)
        if self.of.attend_self:
            is_query = self._is_query_token(layout, rows, given)
            log_mass = jnp.where(is_query, jnp.logaddexp(log_mass, 0.0), log_mass)
        return jax.nn.softmax(log_mass + z, axis=-1)

    def _normalized(self, layout: Layout, x: jax.Array) -> jax.Array:
        """Return N(x) over the M coordinates; an entry of the last axis may stand for several."""

        def total(per_token: jax.Array) -> jax.Array:
            return jnp.sum(layout.count_shared(per_token), axis=-1, keepdims=True)

        if self.of.normalization == "none":
            return x
        if self.of.normalization == "l2":
            return x * jax.lax.rsqrt(total(x**2))
        M = jnp.sum(layout.output_multiplicity)
        if self.of.normalization == "layer":
            x = x - total(x) / M
        return x * jax.lax.rsqrt(total(x**2) / M)

    def _is_query_token(self, layout: Layout, rows: Rows, given: Given) -> jax.Array:
        """Return whether each token is the row's query, (N, A)."""
        tokens = jnp.arange(layout.num_shared)
        return given.query_place[rows.query][:, None] == tokens

    def _seen(self, layout: Layout, per_head: jax.Array) -> Block:
        """Return a block of the layout, without the head axis where there is one head."""
        return dense_block(layout, per_head if self.heads > 1 else per_head[0])
