"""Extended: the 1-layer model on sequence classes with one switch for each extension.

A row's query m attends with head h to the tokens of mass w_l (counts, or P for T to infinity):

    (X^T b_h)_l = w_l exp(z_{h,ml}) / sum over l' of w_l' exp(z_{h,ml'})

N is the normalisation over all M coordinates. The decoder sees

    f = N(X^T b)                     without the residual,
    f = N(N(X^T b) + N(x_T))         with it (for l2, N(x_T) is x_T itself),

where X^T b is the mean over heads ("average"), or each head has its own f and its own block of
the decoder ("concatenate"). The outputs are alpha = softmax(sum over blocks of Y^T f).

A position bias p makes w_l the sum of exp(p) over the positions of token l. Where the query
attends to itself, w_m has 1 added, for its own position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError, require_whole
from attnlab.models.base import Params
from attnlab.models.positions import Position, position_from
from attnlab.models.sequence import SequenceModel, token_mass
from attnlab.tasks.sequences import Mixture

if TYPE_CHECKING:
    import jax

    from attnlab.tasks.base import Task

Normalization = Literal["l2", "rms", "layer", "none"]
Combine = Literal["average", "concatenate"]


@dataclass(frozen=True)
class Extended(SequenceModel):
    """The 1-layer transformer with what Section 7 leaves for later; `Extended()` is `Pairwise()`.

    Y and z are trained as in `Pairwise`, a learned bias at the learning rate of z.

    Parameters
    ----------
    residual : bool, optional
        Add the query's embedding to what it attends to (Section 7).
    normalization : str, optional
        "l2", x / |x|_2 (as in "Scan and Snap"); "rms", x over its root mean square; "layer", the
        same after taking the mean away; "none". Over all M coordinates, without an epsilon: X^T b
        has the sum 1, so that only LayerNorm of exactly uniform attention over the whole vocabulary
        is undefined.
    heads : int, optional
        Number of heads, each with its own z. From the zero start they stay identical; they differ
        by init="uniform" or by logits given as (head, query, token).
    combine : str, optional
        "average" takes the mean over heads of X^T b, with one decoder; "concatenate" gives each
        head its normalisation and its block of the decoder, and adds the outputs.
    position : Position or str, optional
        Bias by distance, "learned", "alibi:0.1" or "fixed:0,-1,-2"; needs sequences of finite
        length. The same as values: `LearnedPosition()`, `AlibiPosition(slope)`,
        `FixedPosition(bias)`.
    attend_self : bool, optional
        Attend to the query's own token too; needs sequences of finite length.
    """

    exact: ClassVar[str] = "attnlab.simulation.exact.extended:ExactExtended"

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

    def check(self, run: Any) -> None:
        """Refuse what has no meaning for T to infinity, and biases that do not fit the length."""
        distances = getattr(run.task, "distances", 0)
        if distances:
            if self.distance_bias is not None:
                self.distance_bias.check(distances)
        elif self.position is not None:
            raise InputError(
                "position: for T to infinity the model trains on mean attention, in which a bias "
                "by distance cancels because tokens are drawn alike at all distances; give a length"
            )
        elif self.attend_self:
            raise InputError(
                "attend_self: for T to infinity the query's own token is one of infinitely many "
                "and has no weight; give a length"
            )

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of attention weights and logits."""
        head = ("head",) if self.heads > 1 else ()
        return {
            "attention": ("sequence", *head, "token"),
            "attention_logits": (*head, "query", "token"),
        }

    @property
    def blocks(self) -> int:
        """Blocks of the decoder Y."""
        return self.heads if self.combine == "concatenate" else 1

    @property
    def distance_bias(self) -> Position | None:
        """Bias by distance to the query."""
        assert not isinstance(self.position, str)  # a text has become a Position when it was made
        return self.position

    @property
    def learns_bias(self) -> bool:
        """True if the bias by distance is trained."""
        return self.distance_bias is not None and self.distance_bias.learned

    def start_bias(self, distances: int) -> NDArray[np.float64]:
        """Return the bias by distance at the start; zero where there is none."""
        position = self.distance_bias
        return np.zeros(distances) if position is None else position.biases(distances)

    def extra_dims(self) -> dict[str, tuple[str, ...]]:
        """Return the dims of the learned bias."""
        dims = ("head", "distance")[self.heads == 1 :]
        return {"position_bias": dims} if self.learns_bias else {}

    def extra_coords(self, sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        """Return distances; the token just before the query has distance 1."""
        return {dim: np.arange(1, size + 1) for dim, size in sizes.items() if dim == "distance"}

    # -- the general path -------------------------------------------------------------------------

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return Y = 0, (block, token, output), z = 0, (head, query, token), and the bias."""
        import jax.numpy as jnp

        M = task.vocab_size
        bias = jnp.asarray(self.start_bias(getattr(task, "distances", 0)), jnp.result_type(float))
        z = jnp.zeros((self.heads, M, M))
        attention = {"z": z, "bias": jnp.tile(bias, (self.heads, 1))}
        return {"decoder": jnp.zeros((self.blocks, M, M)), "attention": attention}

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Return the decoder's logits (B, M), attention to tokens, and z."""
        import jax
        import jax.numpy as jnp

        Y, z = params["decoder"], params["attention"]["z"]
        M = z.shape[-1]
        mass, query = token_mass(inputs, M)
        mass = jnp.broadcast_to(mass, (self.heads, *mass.shape))  # H B M
        if not isinstance(inputs, Mixture) and self.position is not None:
            bias = params["attention"]["bias"]
            if not self.learns_bias:
                bias = jax.lax.stop_gradient(bias)
            near_last = jnp.exp(bias)[:, None, ::-1, None]  # the first token is the farthest
            mass = jnp.sum(near_last * jax.nn.one_hot(inputs[:, :-1], M), axis=2)
        own = jax.nn.one_hot(query, M)
        if self.attend_self:
            mass = mass + own
        # the inner choice keeps the derivative of log 0 out of what is not there
        log_mass = jnp.where(mass > 0, jnp.log(jnp.where(mass > 0, mass, 1.0)), -jnp.inf)
        weights = jax.nn.softmax(log_mass + z[:, query], axis=-1)  # H B M
        x = weights
        if self.combine == "average":
            x = jnp.mean(x, axis=0, keepdims=True)
        f = self._normalized(x)
        if self.residual:
            f = self._normalized(f + self._normalized(own))
        outputs = jnp.einsum("hbl,hln->bn", f, Y, precision="highest")
        several = self.heads > 1
        seen = jnp.swapaxes(weights, 0, 1) if several else weights[0]
        return outputs, {"attention": seen, "attention_logits": z if several else z[0]}

    def _normalized(self, x: jax.Array) -> jax.Array:
        import jax
        import jax.numpy as jnp

        if self.normalization == "none":
            return x
        if self.normalization == "l2":
            return x * jax.lax.rsqrt(jnp.sum(x**2, axis=-1, keepdims=True))
        if self.normalization == "layer":
            x = x - jnp.mean(x, axis=-1, keepdims=True)
        return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True))
