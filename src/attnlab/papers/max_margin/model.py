"""CrossAttention: one attention layer with fixed values, and normalised gradient descent.

    s_i = softmax(X_i W z_i),    f_i = v^T X_i^T s_i    or    f_i = sum_k relu(V^T X_i^T s_i)_k

W is trained, or its factors K, Q with W = K Q^T. Late in training almost all attention is on one
token, and the gradient must be computed with care: see `attention.attend`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from attnlab.files.errors import InputError, require_choice, require_whole
from attnlab.models import Model
from attnlab.models.base import Params
from attnlab.tasks import Task

if TYPE_CHECKING:
    import jax
    import optax

Arithmetic = Literal["usual", "accurate", "scaled"]
EPSILON = 2.2e-16  # of the released code


@dataclass(frozen=True)
class CrossAttention(Model):
    """Attention from a query vector with fixed values, on `TokenSelection`.

    Groups: `attention` (W), or `key` and `query` (K and Q); `value` (V) never moves. Recorded are
    `attention` (s), `log_attention`, `matrix`, which is W or K Q^T, and `direction`, which is that
    over its norm. The start is uniform in +-scale/sqrt(d); a run's `init` gives others, as Q = 0
    and K = 0.1 N(0, 1) of planar pictures.

    Parameters
    ----------
    width : int, optional
        m, columns of K and Q; None trains W itself.
    hidden : int, optional
        0 takes the task's values, f = v^T X^T s; else columns of V, Gaussian of Frobenius norm 1,
        and f is the sum of relu(V^T X^T s).
    scale : float, optional
        Factor of the start; 0 for W = 0.
    arithmetic : {"usual", "accurate", "scaled"}, optional
        How the slope of the attention weights is computed: by automatic differentiation of softmax;
        without cancellation (`attention.attend`); or like this and multiplied by the inverse of the
        largest weight that is not a selected token's, for `normalised` steps that go on where those
        weights underflow.
    """

    width: int | None = None
    hidden: int = 0
    scale: float = 1.0
    arithmetic: Arithmetic = "accurate"

    def __post_init__(self) -> None:
        require_choice("arithmetic", self.arithmetic, get_args(Arithmetic))
        require_whole("hidden", self.hidden, 0)
        if self.width is not None:
            require_whole("width", self.width, 1)
        if not 0 <= self.scale < np.inf:
            raise InputError(f"scale: expected a number of at least 0, got {self.scale}")
        if self.width is not None and not self.scale:
            raise InputError("scale: factors that are both 0 never move; give more than 0")

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of what is captured."""
        by_token = dict.fromkeys(("attention", "log_attention"), ("sequence", "token"))
        return {**by_token, **dict.fromkeys(("matrix", "direction"), ("key_dim", "query_dim"))}

    @property
    def fixed(self) -> tuple[str, ...]:
        """The values never move."""
        return ("value",) if self.hidden else ()

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return W, or K and Q, and V where there is one."""
        import jax
        import jax.numpy as jnp

        d, k = data["x"].shape[-1], data["z"].shape[-1]
        of_value, of_weights = jax.random.split(key)
        bound = self.scale / np.sqrt(d)
        # K above Q: one call of the generator, which takes long to compile
        shape = (d, k) if self.width is None else (d + k, self.width)
        drawn = jnp.zeros(shape)
        if self.scale:
            drawn = jax.random.uniform(of_weights, shape, minval=-bound, maxval=bound)
        params: Params = (
            {"attention": drawn} if self.width is None else {"key": drawn[:d], "query": drawn[d:]}
        )
        if self.hidden:
            V = jax.random.normal(of_value, (d, self.hidden))
            params["value"] = V / jnp.linalg.norm(V)
        return params

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return f, (n,), the attention weights and W."""
        import jax
        import jax.numpy as jnp

        from .attention import attend, largest_other

        x, z, values = inputs
        W = params["attention"] if self.width is None else params["key"] @ params["query"].T
        logits = jnp.einsum("ntd,dk,nk->nt", x, W, z)
        logs = jax.nn.log_softmax(logits)
        values = x @ params["value"] if self.hidden else values[..., None]
        if self.arithmetic == "usual":
            attended = jnp.einsum("nt,nth->nh", jax.nn.softmax(logits), values)
        else:
            scale = -largest_other(logs) if self.arithmetic == "scaled" else jnp.zeros_like(W[0, 0])
            attended = attend(logits, values, scale)
        outputs = jax.nn.relu(attended).sum(axis=-1) if self.hidden else attended[:, 0]
        size = jnp.linalg.norm(W)
        captured = {
            "attention": jnp.exp(logs),
            "log_attention": logs,
            "matrix": W,
            "direction": W / jnp.where(size > 0, size, 1.0),
        }
        return outputs, captured


def normalised(learning_rate: Any) -> optax.GradientTransformation:
    """Return the optimizer W <- W - learning_rate g / |g|, each group with its own norm.

    The gradient is divided by its largest entry first: squares of entries below 1e-154 underflow.
    A gradient of 0 makes no step.
    """
    import jax
    import jax.numpy as jnp
    import optax

    def update(
        gradient: Any, state: optax.OptState, params: Any = None
    ) -> tuple[Any, optax.OptState]:
        largest = optax.tree.norm(gradient, ord=jnp.inf)
        safe = jnp.where(largest > 0, largest, 1.0)
        unit = jax.tree.map(lambda leaf: leaf / safe, gradient)
        length = jnp.where(largest > 0, optax.tree.norm(unit), 1.0)
        return jax.tree.map(lambda leaf: -learning_rate * leaf / length, unit), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def released(learning_rate: Any) -> optax.GradientTransformation:
    """Return the released code's steps, W <- W - learning_rate g / (|g| + 2.2e-16).

    They end once |g| is that small: W stays where attention weights are about 1e-16.
    """
    import optax

    return optax.chain(optax.normalize_by_update_norm(eps=EPSILON), optax.scale(-learning_rate))


def released_factors(learning_rate: Any) -> optax.GradientTransformation:
    """Return the released code's steps for K and Q: `released` with the ridge 2.2e-16 |K|^2.

    Once the loss is as small as that, they minimise the two together, on the regularisation path.
    """
    import optax

    return optax.chain(optax.add_decayed_weights(2 * EPSILON), released(learning_rate))
