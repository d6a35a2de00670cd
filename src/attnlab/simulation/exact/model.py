"""Sequence-class models on the layout of their classes: Pairwise, Embedded and Extended.

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
from jax.nn import logsumexp
from numpy.typing import NDArray

from attnlab.models.sequence import Embedded, Extended, is_random
from attnlab.simulation.exact import gradient
from attnlab.simulation.exact.gradient import Block, Parameters, Rows
from attnlab.simulation.exact.layout import Layout, Sizes, TokenMap, dense_layout, sparse_layout
from attnlab.simulation.exact.rows import log_position_mass
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
    functions of arrays that are compiled; `fixed` are the constants that `begin` returns.
    """

    of: Any  # a subclass names the type of its settings

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.of.heads

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

    # -- what is recorded in addition to the logits -------------------------------------------

    def extras(self, layout: Layout, trained: Parameters, fixed: Any) -> dict[str, Any]:
        """Return more to record, by name: arrays, or a `Block` where the last dim is the token."""
        return {}

    # -- what a run costs, roughly ------------------------------------------------------------

    def numbers(self, sizes: Sizes) -> dict[str, int]:
        """Return the numbers that are trained or kept fixed, by the field that asks for them."""
        Y, z = sizes.outputs * sizes.tokens, sizes.queries * sizes.tokens
        return {"classes": Y, "heads": (self.blocks - 1) * Y + self.heads * z}

    def decoder_numbers(self, sizes: Sizes) -> int:
        """Return the size of the decoder."""
        return self.blocks * sizes.outputs * sizes.tokens

    def products(self, sizes: Sizes, rows: int) -> int:
        """Return the terms of the products in a gradient over `rows` rows."""
        return self.heads * rows * sizes.tokens * sizes.outputs


@dataclass(frozen=True)
class ExactPairwise(ExactModel):
    """Y and Z, trained as they are, with the gradient in closed form."""

    def outputs(self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any) -> jax.Array:
        """Return the decoder's logits Y^T f of each row."""
        return gradient.decode(layout, rows, trained)

    def loss_and_gradient(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Any
    ) -> tuple[jax.Array, Parameters]:
        """Return the loss and its gradient in closed form (Lemma 1)."""
        return gradient.loss_and_gradient(layout, rows, trained)

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


class Embedding(NamedTuple):
    """Rows of U: of every output, of the tokens in play and of the queries in use."""

    outputs: Float[Any, "M d"]
    tokens: Float[Any, "A d"]
    queries: Float[Any, "Q d"]


@dataclass(frozen=True)
class ExactEmbedded(ExactModel):
    """U, W_Q, W_K and W_V."""

    of: Embedded

    def matrices(self, layout: Layout, trained: Parameters, fixed: Embedding) -> Parameters:
        """Return Y and Z in the dense layout's blocks."""
        W_V, (W_Q, W_K) = trained
        return gradient.dense_parameters(layout, *self.of.matrices(fixed, W_V, W_Q, W_K))

    def outputs(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Embedding
    ) -> jax.Array:
        """Return the decoder's logits Y^T f of each row."""
        return gradient.decode(layout, rows, self.matrices(layout, trained, fixed))

    def loss_and_gradient(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: Embedding
    ) -> tuple[jax.Array, Parameters]:
        """Return the loss and its gradient: Lemma 1 pulled back through Y and Z."""
        matrices, pull_back = jax.vjp(lambda w: self.matrices(layout, w, fixed), trained)
        value, slope = gradient.loss_and_gradient(layout, rows, matrices)
        return value, pull_back(slope)[0]

    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Embedding) -> Block:
        """Return z in the layout's blocks."""
        return self.matrices(layout, trained, fixed).Z

    def numbers(self, sizes: Sizes) -> dict[str, int]:
        """Return the numbers of U, W_V, W_Q and W_K, and of the Y and Z that they make."""
        d = self.of.dim
        return super().numbers(sizes) | {"dim": 5 * d**2 + d * sizes.vocab_size}

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
        return embedding, Parameters(W_V, (W_Q, W_K))


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
    """Y, z and perhaps a bias by distance."""

    of: Extended

    @property
    def blocks(self) -> int:
        """Blocks of the decoder Y."""
        return self.of.blocks

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
        return self.of.start_bias(distances)

    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Given) -> Block:
        """Return z as (head, query, token); without the head axis where there is one head."""
        return self._seen(layout, trained.Z.z)

    def class_attention(self, layout: Layout, trained: Parameters, fixed: Given) -> Block:
        """Return c_{l|m,n} of each head: X^T b at the expected mass of a class's sequences.

        Tokens have one distribution at all distances, so that a position bias cancels in the mean
        (Eq. 5 holds), but for the weight of all contextual tokens against the query's own.
        """
        rows = gradient.class_rows(layout, layout.prior)
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
        x_T = self._is_query_token(layout, rows, fixed).astype(x.dtype)
        M = jnp.sum(layout.output_multiplicity)
        return self.of.decode(x, x_T, trained.Y, M, layout.count_shared)

    def _attend(self, layout: Layout, rows: Rows, logits: Logits, given: Given) -> jax.Array:
        """Return X^T b of each head, (H, N, A): softmax over tokens of log mass plus z."""
        z = jax.vmap(lambda z: gradient.pick(z, rows.query).T)(logits.z)
        log_mass, places = rows.shared_log_mass, rows.places
        if places is not None:
            log_mass = jax.vmap(lambda p: log_position_mass(places, p, z.shape[-1]))(logits.bias)
        if self.of.attend_self:
            is_query = self._is_query_token(layout, rows, given)
            log_mass = jnp.where(is_query, jnp.logaddexp(log_mass, 0.0), log_mass)
        return jax.nn.softmax(log_mass + z, axis=-1)

    def _is_query_token(self, layout: Layout, rows: Rows, given: Given) -> jax.Array:
        """Return whether each token is the row's query, (N, A)."""
        tokens = jnp.arange(layout.num_shared)
        return given.query_place[rows.query][:, None] == tokens

    def _seen(self, layout: Layout, per_head: jax.Array) -> Block:
        """Return a block of the layout, without the head axis where there is one head."""
        return gradient.dense_block(layout, per_head if self.heads > 1 else per_head[0])
