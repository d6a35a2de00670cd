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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp
from numpy.typing import NDArray

from attnlab.data.classes import SequenceClasses
from attnlab.dynamics.gradient import (
    PRECISION,
    Block,
    Parameters,
    Rows,
    class_rows,
    dense_block,
    pick,
)
from attnlab.dynamics.layout import Layout, Sizes, TokenMap, dense_layout
from attnlab.dynamics.models.base import Model
from attnlab.dynamics.positions import Position, log_position_mass, position_from
from attnlab.dynamics.start import Init, Start, is_random
from attnlab.files.errors import InputError, require_whole

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from attnlab.dynamics.engines import Engine
    from attnlab.dynamics.simulation import Simulation

Normalization = Literal["l2", "rms", "layer", "none"]
Combine = Literal["average", "concatenate"]


class Logits(NamedTuple):
    """What is trained at rate eta_z."""

    z: Float[Any, "H Q A"]
    bias: Float[Any, "H learned_distances"]  # none where it is not learned


class Given(NamedTuple):
    """What stays as it is: where the queries' own tokens are, and the bias at the start."""

    query_place: Int[Any, " Q"]  # among the shared groups
    bias: Float[Any, " distances"]  # empty for T to infinity


@dataclass(frozen=True)
class Extended(Model):
    """The 1-layer transformer with what Section 7 leaves for later; `Extended()` is `Pairwise()`.

    Y and z are trained as in `Pairwise`, a learned bias at the rate of z.

    Parameters
    ----------
    residual : bool, optional
        Add the query's embedding to what it attends to (Section 7).
    normalization : str, optional
        "l2", x / |x|_2 (the paper's); "rms", x over its root mean square; "layer", the same after
        taking the mean away; "none". Over all M coordinates, without an epsilon: X^T b has the sum
        1, so that only LayerNorm of exactly uniform attention over the whole vocabulary is
        undefined.
    heads : int, optional
        How many, each with its own z. From the zero start they stay identical; they differ by
        init="uniform" or by logits given as (head, query, token).
    combine : str, optional
        "average" takes the mean of the heads' X^T b, and one decoder; "concatenate" gives each head
        its normalisation and its block of the decoder, and adds the outputs.
    position : Position or str, optional
        `LearnedPosition()`, `AlibiPosition(slope)`, `FixedPosition(bias)`, or its text ("learned",
        "alibi:0.1", "fixed:0,-1,-2"); needs the engine `Sampled`.
    attend_self : bool, optional
        The query's own token is one of those attended to; needs the engine `Sampled`.
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

    def check(self, engine: Engine, init: Init) -> None:
        """Refuse what has no meaning for T to infinity, and biases that do not fit the length."""
        if engine.distances:
            if self.distance_bias is not None:
                self.distance_bias.check(engine.distances)
        elif self.position is not None:
            raise InputError(
                "position: the engines for T to infinity train on mean attention, in which a bias "
                "by distance cancels because tokens are drawn alike at all distances; use the "
                "engine Sampled"
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
        trained_bias = jnp.tile(bias if self._learns_bias else bias[:0], (self.heads, 1))
        return Given(start.query_place, bias), Parameters(Y, Logits(z, trained_bias))

    def symmetric(self, init: Init) -> bool:
        """From Y(0) = 0 outputs that are never a target stay identical."""
        return not is_random(init)

    def lay_out(self, classes: SequenceClasses, simulation: Simulation) -> tuple[Layout, TokenMap]:
        """Dense, with the queries' own tokens where they are seen."""
        return dense_layout(
            classes,
            symmetric_start=self.symmetric(simulation.init),
            also=classes.queries if self.residual or self.attend_self else None,
            whole=self.normalization == "layer",  # the mean is taken away from all M coordinates
        )

    def per_entry(self, layout: Layout, slope: Parameters) -> Parameters:
        """An entry of Y stands for the outputs and the tokens of its groups."""
        stands_for = layout.output_multiplicity[:, None] * layout.shared_multiplicity
        return slope._replace(Y=slope.Y / stands_for)

    @property
    def distance_bias(self) -> Position | None:
        """How the distance to the query counts."""
        assert not isinstance(self.position, str)  # a text has become a Position when it was made
        return self.position

    def start_bias(self, distances: int) -> NDArray[np.float64]:
        """The bias by distance at the start; zero where there is none, as many as there are."""
        position = self.distance_bias
        return np.zeros(distances) if position is None else position.biases(distances)

    def numbers(self, sizes: Sizes) -> dict[str, int]:
        """Numbers of Y, of its further blocks, and of z."""
        Y, z = sizes.outputs * sizes.tokens, sizes.queries * sizes.tokens
        return {"classes": Y, "heads": (self.blocks - 1) * Y + self.heads * z}

    def attention_logits(self, layout: Layout, trained: Parameters, fixed: Given) -> Block:
        """z as (head, query, token); without the head axis where there is one head."""
        return self._seen(layout, trained.Z.z)

    def class_attention(self, layout: Layout, trained: Parameters, fixed: Given) -> Block:
        """c_{l|m,n} of each head: X^T b at the expected mass of a class's sequences.

        Tokens are drawn alike at all distances, so that a position bias cancels in the mean (Eq. 5
        stays as it is), but for the weight of all contextual tokens against the query's own.
        """
        rows = class_rows(layout, layout.prior)
        if self.attend_self:
            bias = trained.Z.bias if self._learns_bias else fixed.bias[None]
            context = logsumexp(bias, axis=1)[:, None, None]
            rows = rows._replace(shared_log_mass=rows.shared_log_mass + context)
        return self._seen(layout, self._attend(layout, rows, trained.Z, fixed))

    def extras(self, layout: Layout, trained: Parameters, fixed: Given) -> dict[str, jax.Array]:
        """The learned bias, without the head axis where there is one head."""
        bias = trained.Z.bias if self.heads > 1 else trained.Z.bias[0]
        return {"position_bias": bias} if self._learns_bias else {}

    def extra_dims(self) -> dict[str, tuple[str, ...]]:
        """The learned bias is (head, distance)."""
        dims = ("head", "distance")[self.heads == 1 :]
        return {"position_bias": dims} if self._learns_bias else {}

    def extra_coords(self, sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        """The token just before the query has distance 1."""
        return {dim: np.arange(1, size + 1) for dim, size in sizes.items() if dim == "distance"}

    @property
    def _learns_bias(self) -> bool:
        return self.distance_bias is not None and self.distance_bias.learned

    def outputs(self, layout: Layout, rows: Rows, trained: Parameters, fixed: Given) -> jax.Array:
        """The decoder's logits, (N, J)."""
        x = self._attend(layout, rows, trained.Z, fixed)  # (H, N, A)
        if self.combine == "average":
            x = jnp.mean(x, axis=0, keepdims=True)
        f = self._normalized(layout, x)
        if self.residual:
            x_T = self._is_query_token(layout, rows, fixed).astype(x.dtype)
            f = self._normalized(layout, f + self._normalized(layout, x_T))
        return jnp.einsum("hna,hja->nj", layout.count_shared(f), trained.Y, precision=PRECISION)

    def _attend(self, layout: Layout, rows: Rows, logits: Logits, given: Given) -> jax.Array:
        """X^T b of each head, (H, N, A): a softmax over tokens of the log of their mass plus z."""
        z = jax.vmap(lambda z: pick(z, rows.query).T)(logits.z)
        log_mass, places = rows.shared_log_mass, rows.places
        if places is not None:
            log_mass = jax.vmap(lambda p: log_position_mass(places, p, z.shape[-1]))(logits.bias)
        if self.attend_self:
            is_query = self._is_query_token(layout, rows, given)
            log_mass = jnp.where(is_query, jnp.logaddexp(log_mass, 0.0), log_mass)
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

    def _is_query_token(self, layout: Layout, rows: Rows, given: Given) -> jax.Array:
        """(N, A): whether the token is the row's query."""
        tokens = jnp.arange(layout.num_shared)
        return given.query_place[rows.query][:, None] == tokens

    def _seen(self, layout: Layout, per_head: jax.Array) -> Block:
        """As a block of the layout, without the head axis where there is one head."""
        return dense_block(layout, per_head if self.heads > 1 else per_head[0])
