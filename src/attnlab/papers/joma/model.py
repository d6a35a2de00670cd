"""Joint: an MLP over attention with the query's residual, the model of JoMA.

"JoMA: Demystifying Multilayer Transformers via Joint Dynamics of MLP and Attention" (Tian, Wang,
Zhang, Chen and Du, ICLR 2024). A context with token frequencies x is attended from its query m:

    b = sigma(z_m / T) * x / A      (elementwise), where
        softmax:  sigma = exp, A = sum over l of exp(z_ml / T) x_l
        exp:      sigma = exp, A = 1
        linear:   sigma(z) = z, A = 1
    f = U_C b + u_m,    h_k = phi(w_k . f)

The embeddings U_C of contextual tokens and u_m of queries are orthonormal, so that w_k is known by
its coordinates v_k = U_C^T w_k and r_km = w_k . u_m, which are trained as they are:

    h_k = phi(v_k . b + r_km)

The loss is the cross entropy with the next token, among the labels: the next tokens that some class
has. With `hidden` units there is an upper layer, V^T h; without, the hidden units are the labels'
logits themselves, as in the paper's test of its invariants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
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
from attnlab.dynamics.start import Init, Start
from attnlab.files.errors import InputError, require_whole

if TYPE_CHECKING:
    from jaxtyping import Float

    from attnlab.dynamics.engines import Engine
    from attnlab.dynamics.simulation import Simulation

Activation = Literal["linear", "relu", "gelu"]
Attention = Literal["softmax", "exp", "linear"]


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


ACTIVATIONS: Mapping[Activation, Callable[[jax.Array], jax.Array]] = {
    "linear": lambda pre: pre,
    "relu": jax.nn.relu,
    "gelu": gelu,
}


class Perceptron(NamedTuple):
    """What is trained at rate eta_y."""

    lower: Float[Any, "H A"]  # v_k, by contextual token
    query: Float[Any, "H Q"]  # r_k, by query; none without the residual
    upper: Float[Any, "H J"]  # V, by label; none where it is not trained


@dataclass(frozen=True)
class Joint(Model):
    """An MLP over attention with the query's residual (JoMA), on sequence classes.

    Rates: W = (v, r) and V learn at eta_y, z at eta_z. With the flow, linear attention then keeps
    z_ml^2/eta_z - sum_k v_kl^2/eta_y constant, and exp attention keeps
    T z_ml/eta_z - sum_k v_kl^2/(2 eta_y), for one query.

    Start: v and r are `scale` times standard normal numbers, V those over sqrt(hidden). z is such
    that sigma(z/T) = 1 (0, or T for linear attention), or the logits that are given; with
    init="uniform", `scale` times standard normal numbers are added.

    There is one layer. Without positions a second could be defined (each token attends to the
    counts of its whole context), but nothing in sequence classes says what such a token, which is
    no query, should attend to, and what JoMA says of upper layers is about their own activations.

    Attention is recorded as shares, b over its sum, that an entropy can be taken of (|b| for linear
    attention, which may have either sign); b itself is P sigma(z/T) for exp and linear.

    Parameters
    ----------
    hidden : int, optional
        Units of the MLP, with an upper layer V above them; None for one unit for each label, which
        are the outputs themselves: then W and z are all there is.
    activation : str, optional
        "linear", "relu" or "gelu" (the exact one). The flow of a ReLU can come to slide along the
        place where a unit turns off, where `Flow` gives up; small steps go on.
    attention : str, optional
        "softmax", "exp" or "linear"; see the formulas of the module.
    temperature : float, optional
        T, by which logits are divided.
    residual : bool, optional
        Whether hidden units see the query. Its embedding is orthogonal to those of all contextual
        tokens, also where a class draws the query as a token.
    scale : float, optional
        Of the random numbers that a run starts from; the paper has N(0, 1)/100.
    stationary : bool, optional
        Hold the gradient that arrives at the hidden units where it is for equal outputs, as the
        paper assumes: the error at label j is 1/J - [j is the next token] for ever, and V stays as
        it starts. The loss is then linear in h and has no lower bound, so that exp attention
        reaches infinity in finite time, and linear attention grows exponentially.
    """

    hidden: int | None = None
    activation: Activation = "linear"
    attention: Attention = "softmax"
    temperature: float = 1.0
    residual: bool = True
    scale: float = 0.01
    stationary: bool = False

    groups: ClassVar[tuple[str, str]] = ("the MLP", "the attention logits Z")

    def __post_init__(self) -> None:
        for name, known in (("activation", Activation), ("attention", Attention)):
            if getattr(self, name) not in get_args(known):
                raise InputError(
                    f"{name}: expected one of {get_args(known)}, got {getattr(self, name)!r}"
                )
        for name in ("residual", "stationary"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name}: expected true or false, got {getattr(self, name)!r}")
        if self.hidden is not None:
            require_whole("hidden", self.hidden, 1)
        if not 0 < self.temperature < np.inf:
            raise InputError(f"temperature: expected a positive number, got {self.temperature}")
        if not 0 <= self.scale < np.inf:
            raise InputError(f"scale: expected a number of at least 0, got {self.scale}")
        if self.activation == "relu" and not self.scale:
            raise InputError("scale: ReLU has no slope at 0 and would never move; give a scale")

    def check(self, engine: Engine, init: Init) -> None:
        """Any engine and any start will do."""

    @property
    def neutral_logit(self) -> float:
        """The logit with sigma(z/T) = 1."""
        return self.temperature if self.attention == "linear" else 0.0

    def lay_out(self, classes: SequenceClasses, simulation: Simulation) -> tuple[Layout, TokenMap]:
        """Every token in play has a place of its own; outputs are the labels alone."""
        layout, where = dense_layout(classes, symmetric_start=True)
        labels = np.ones(np.unique(classes.next_token).size)
        return replace(layout, output_multiplicity=labels, lumped_outputs=False), where

    def begin(
        self, layout: Layout, start: Start, random: bool, key: jax.Array
    ) -> tuple[jax.Array, Parameters]:
        """V where it stays as it is, and what is trained, at the start."""
        dtype = layout.prior.dtype
        labels, tokens, queries = layout.num_outputs, layout.num_shared, layout.num_queries
        hidden = self.hidden or labels
        above = labels if self.hidden else 0
        shapes = ((hidden, tokens), (hidden, queries), (hidden, above), (queries, tokens))
        sizes = [math.prod(shape) for shape in shapes]
        # one call of the generator for everything: it takes long to compile
        drawn = jnp.split(jax.random.normal(key, (sum(sizes),), dtype), np.cumsum(sizes)[:-1])
        lower, query, upper, noise = (
            part.reshape(shape) for part, shape in zip(drawn, shapes, strict=True)
        )
        none = jnp.zeros((hidden, 0), dtype)
        lower, upper = self.scale * lower, upper / np.sqrt(hidden)
        query = self.scale * query if self.residual else none
        z = start.logits.shared.astype(dtype)
        if random:
            z = z + self.scale * noise
        fixed, trained = (upper, none) if self.stationary else (none, upper)
        return fixed, Parameters(Perceptron(lower, query, trained), z)

    def outputs(
        self, layout: Layout, rows: Rows, trained: Parameters, fixed: jax.Array
    ) -> jax.Array:
        """The labels' logits, (N, J)."""
        lower, query, upper = trained.Y
        b = self._attended(rows, trained.Z)
        pre = jnp.einsum("na,ha->nh", b, lower, precision=PRECISION)
        if self.residual:
            pre = pre + pick(query.T, rows.query).T
        h = ACTIVATIONS[self.activation](pre)
        if self.hidden is None:
            return h
        return jnp.einsum("nh,hj->nj", h, fixed if self.stationary else upper, precision=PRECISION)

    def loss_and_error(
        self, layout: Layout, rows: Rows, logits: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Cross entropy; or where the error is held, what has that error as its slope."""
        if not self.stationary:
            return super().loss_and_error(layout, rows, logits)
        is_target = rows.target[:, None] == jnp.arange(layout.num_outputs)
        error = 1 / layout.num_outputs - is_target.astype(logits.dtype)
        return jnp.sum(error * logits, axis=1), error * rows.weight[:, None]

    def attention_logits(self, layout: Layout, trained: Parameters, fixed: jax.Array) -> Block:
        """z in the layout's blocks."""
        return dense_block(layout, trained.Z)

    def class_attention(self, layout: Layout, trained: Parameters, fixed: jax.Array) -> Block:
        """|b| over its sum, for each class."""
        b = self._attended(class_rows(layout, layout.prior), trained.Z)
        shares = jnp.abs(b)
        return dense_block(layout, shares / jnp.sum(shares, axis=1, keepdims=True))

    def extras(self, layout: Layout, trained: Parameters, fixed: jax.Array) -> dict[str, Any]:
        """The MLP: v by token, r by query and V by label."""
        lower, query, upper = trained.Y
        found = {
            "mlp_weights": dense_block(layout, lower),
            "query_weights": query,
            "upper_weights": fixed if self.stationary else upper,
        }
        return {name: found[name] for name in self.extra_dims()}

    def extra_dims(self) -> dict[str, tuple[str, ...]]:
        """What there is of the MLP."""
        dims: dict[str, tuple[str, ...]] = {"mlp_weights": ("unit", "token")}
        if self.residual:
            dims["query_weights"] = ("unit", "query")
        if self.hidden:
            dims["upper_weights"] = ("unit", "label")
        return dims

    def extra_coords(self, sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        """Hidden units and labels by number; labels are in the order of their tokens."""
        return {dim: np.arange(size) for dim, size in sizes.items() if dim in ("unit", "label")}

    def extra_numbers(self, classes: SequenceClasses) -> int:
        """Numbers of the MLP, over the whole vocabulary."""
        labels = np.unique(classes.next_token).size
        upper = labels if self.hidden else 0
        return (self.hidden or labels) * (classes.vocab_size + classes.queries.size + upper)

    def decoder_numbers(self, sizes: Sizes) -> int:
        """Numbers of W and V."""
        return (self.hidden or sizes.outputs) * (sizes.tokens + sizes.queries + sizes.outputs)

    def products(self, sizes: Sizes, rows: int) -> int:
        """Those of W, and of V where it is there."""
        if self.hidden is None:
            return super().products(sizes, rows)
        return rows * self.hidden * (sizes.tokens + sizes.outputs)

    def _attended(self, rows: Rows, z: jax.Array) -> jax.Array:
        """b of each row, (N, A). A mass is counts or P: frequencies x are its shares."""
        logits = pick(z / self.temperature, rows.query).T
        if self.attention == "softmax":
            return softmax(rows.shared_log_mass + logits)
        if self.attention == "exp":
            return jnp.exp(jax.nn.log_softmax(rows.shared_log_mass, axis=1) + logits)
        return jax.nn.softmax(rows.shared_log_mass, axis=1) * logits
