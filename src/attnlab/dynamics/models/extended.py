"""Extended: the model beyond Section 3, one switch for each thing the paper leaves out.

A row's query m attends with head h to the tokens of mass w_l (counts, or P for T to infinity):

    (X^T b_h)_l = w_l exp(z_{h,ml}) / sum over l' of w_l' exp(z_{h,ml'})

N is the normalisation over all M coordinates. The decoder sees

    f = N(X^T b)                     without the residual,
    f = N(N(X^T b) + N(x_T))         with it (Section 7; for l2, N(x_T) is x_T itself),

where X^T b is the mean over heads ("average"), or each head has its own f and its own block of
the decoder ("concatenate"). The outputs are alpha = softmax(sum over blocks of Y^T f).

A position bias p makes w_l the sum of exp(p) over the positions of token l. Where the query
attends to itself, w_m has 1 added, for its own position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp

from attnlab.dynamics.engines import Engine, Sampled, require_whole
from attnlab.dynamics.gradient import (
    PRECISION,
    Block,
    Parameters,
    Rows,
    class_rows,
    pick,
    prediction,
)
from attnlab.dynamics.layout import Layout
from attnlab.dynamics.models.base import Model
from attnlab.dynamics.positions import (
    FixedPosition,
    LearnedPosition,
    Position,
    log_position_mass,
    position_from,
)
from attnlab.dynamics.start import Start
from attnlab.files.errors import InputError

Normalization = Literal["l2", "rms", "layer", "none"]
Combine = Literal["average", "concatenate"]


class Logits(NamedTuple):
    """What is trained at rate eta_z."""

    z: Any  # (H, Q, A)
    bias: Any  # (H, T - 1) by distance; (H, 0) where it is not learned


class Given(NamedTuple):
    """What stays as it is: where the queries' own tokens are, and the bias at the start."""

    query_place: Any  # (Q,) among the shared groups
    bias: Any  # (T - 1,) by distance; empty for T to infinity


@dataclass(frozen=True)
class Extended(Model):
    """The 1-layer transformer with what Section 7 leaves for later; `Extended()` is `Pairwise()`.

    residual: add the query's embedding to what it attends to (Section 7).
    normalization: "l2", x / |x|_2 (the paper's); "rms", x over its root mean square; "layer",
        the same after taking the mean away; "none". Over all M coordinates, without an epsilon:
        X^T b has the sum 1, so that only LayerNorm of exactly uniform attention over the whole
        vocabulary is undefined.
    heads: how many, each with its own z. From the zero start they stay identical; they differ by
        init="uniform" or by logits given as (head, query, token).
    combine: "average" takes the mean of the heads' X^T b, and one decoder; "concatenate" gives
        each head its normalisation and its block of the decoder, and adds the outputs.
    position: `LearnedPosition()`, `AlibiPosition(slope)`, `FixedPosition(bias)`, or its text
        ("learned", "alibi:0.1", "fixed:0,-1,-2"); needs the engine `Sampled`.
    attend_self: the query's own token is one of those attended to; needs the engine `Sampled`.

    Y and z are trained as in `Pairwise`, a learned bias at the rate of z.
    """

    residual: bool = False
    normalization: Normalization = "l2"
    heads: int = 1
    combine: Combine = "average"
    position: Position | str | None = None
    attend_self: bool = False

    def __post_init__(self) -> None:
        for name, known in (("normalization", Normalization), ("combine", Combine)):
            if getattr(self, name) not in get_args(known):
                raise InputError(
                    f"{name}: expected one of {get_args(known)}, got {getattr(self, name)!r}"
                )
        for name in ("residual", "attend_self"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name}: expected true or false, got {getattr(self, name)!r}")
        require_whole("heads", self.heads, 1)
        if isinstance(self.position, str):
            object.__setattr__(self, "position", position_from(self.position))
        if not isinstance(self.position, Position | None):
            raise InputError(
                "position: expected LearnedPosition, AlibiPosition or FixedPosition, "
                f"got {self.position!r}"
            )

    def require_length(self, engine: Engine) -> None:
        """Refuse what has no meaning for T to infinity, and biases that do not fit the length."""
        if isinstance(engine, Sampled):
            if isinstance(self.position, FixedPosition):
                self.position.biases(engine.length - 1)
        elif self.position is not None:
            raise InputError(
                "position: for T to infinity a bias by distance cancels, because tokens are drawn "
                "alike at all distances; use the engine Sampled"
            )
        elif self.attend_self:
            raise InputError(
                "attend_self: for T to infinity the query's own token is one of infinitely many "
                "and has no weight; use the engine Sampled"
            )

    @property
    def blocks(self) -> int:
        """Blocks of the decoder Y."""
        return self.heads if self.combine == "concatenate" else 1

    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[Given, Parameters]:
        """Y(0) as (block, J, A) and z(0); drawn as in `Pairwise` if `random`."""
        dtype = layout.prior.dtype
        outputs, tokens = layout.output_multiplicity.shape[0], layout.shared_multiplicity.shape[0]
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
        trained_bias = jnp.tile(bias if self._learns_bias else bias[:0], (self.heads, 1))
        return Given(start.query_place, bias), Parameters(Y, Logits(z, trained_bias))

    def loss(self, layout: Layout, rows: Rows, trained: Parameters, given: Given) -> jax.Array:
        """The mean cross entropy over rows."""
        outputs = self._outputs(layout, rows, trained, given)
        return jnp.sum(rows.weight * prediction(layout, rows, outputs)[1])

    def loss_and_gradient(
        self, layout: Layout, rows: Rows, trained: Parameters, given: Given
    ) -> tuple[jax.Array, Parameters]:
        """The loss and its gradient: the error alpha - x_{T+1}, in the form that does not cancel
        late in training, pulled back through the outputs."""
        outputs, pull_back = jax.vjp(
            lambda trained: self._outputs(layout, rows, trained, given), trained
        )
        _, cross_entropy, error = prediction(layout, rows, outputs)
        (slope,) = pull_back(layout.count_outputs(error))
        # an entry that stands for several equal ones moves with the slope of one of them
        stands_for = layout.output_multiplicity[:, None] * layout.shared_multiplicity
        return jnp.sum(rows.weight * cross_entropy), slope._replace(Y=slope.Y / stands_for)

    def attention_logits(self, layout: Layout, trained: Parameters, given: Given) -> Block:
        """z as (head, query, token); without the head axis where there is one head."""
        return self._seen(layout, trained.Z.z)

    def attention(self, layout: Layout, trained: Parameters, given: Given) -> Block:
        """c_{l|m,n} of each head: X^T b at the expected mass of a class's sequences.

        Tokens are drawn alike at all distances, so that a position bias cancels (Eq. 5 stays as
        it is), but for the weight of all contextual tokens together against the query's own.
        """
        rows = class_rows(layout, layout.prior)
        if self.attend_self:
            bias = trained.Z.bias if self._learns_bias else given.bias[None]
            context = logsumexp(bias, axis=1)[:, None, None]
            rows = rows._replace(shared_log_mass=rows.shared_log_mass + context)
        return self._seen(layout, self._attend(layout, rows, trained.Z, given))

    def position_bias(self, trained: Parameters) -> jax.Array | None:
        """The learned bias as (head, distance), without the head axis where there is one."""
        if not self._learns_bias:
            return None
        return trained.Z.bias if self.heads > 1 else trained.Z.bias[0]

    @property
    def _learns_bias(self) -> bool:
        return isinstance(self.position, LearnedPosition)

    def _outputs(self, layout: Layout, rows: Rows, trained: Parameters, given: Given) -> jax.Array:
        """The decoder's logits, (N, J)."""
        x = self._attend(layout, rows, trained.Z, given)  # (H, N, A)
        if self.combine == "average":
            x = jnp.mean(x, axis=0, keepdims=True)
        f = self._normalized(layout, x)
        if self.residual:
            x_T = self._is_own(layout, rows, given).astype(x.dtype)
            f = self._normalized(layout, f + self._normalized(layout, x_T))
        return jnp.einsum("hna,hja->nj", layout.count_shared(f), trained.Y, precision=PRECISION)

    def _attend(self, layout: Layout, rows: Rows, logits: Logits, given: Given) -> jax.Array:
        """X^T b of each head, (H, N, A): a softmax over tokens of the log of their mass plus z."""
        z = jax.vmap(lambda z: pick(z, rows.query).T)(logits.z)
        log_mass = rows.shared_log_mass
        if rows.places is not None:
            log_mass = jax.vmap(lambda p: log_position_mass(rows.places, p, z.shape[-1]))(
                logits.bias
            )
        if self.attend_self:
            own = self._is_own(layout, rows, given)
            log_mass = jnp.where(own, jnp.logaddexp(log_mass, 0.0), log_mass)
        return jax.nn.softmax(log_mass + z, axis=-1)

    def _normalized(self, layout: Layout, x: jax.Array) -> jax.Array:
        """N(x) over the M coordinates on the last axis, of which a group stands for several."""

        def total(per_token: jax.Array) -> jax.Array:
            return jnp.sum(layout.count_shared(per_token), axis=-1, keepdims=True)

        if self.normalization == "none":
            return x
        if self.normalization == "l2":
            return x * jax.lax.rsqrt(total(x**2))
        M = jnp.sum(layout.output_multiplicity)
        if self.normalization == "layer":
            x = x - total(x) / M
        return x * jax.lax.rsqrt(total(x**2) / M)

    def _is_own(self, layout: Layout, rows: Rows, given: Given) -> jax.Array:
        """(N, A): whether the token is the row's query."""
        tokens = jnp.arange(layout.shared_multiplicity.shape[0])
        return given.query_place[rows.query][:, None] == tokens

    def _seen(self, layout: Layout, per_head: jax.Array) -> Block:
        """As a block of the layout, which has no own tokens here."""
        own = jnp.zeros((*per_head.shape[:-2], *layout.own_log_prob.shape), per_head.dtype)
        block = Block(per_head, own)
        return block if self.heads > 1 else Block(*(part[0] for part in block))
