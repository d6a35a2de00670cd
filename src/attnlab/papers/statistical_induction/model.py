"""The minimal model: two layers of attention without anything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from attnlab.files.errors import require_choice
from attnlab.models import Model
from attnlab.models.base import Params

if TYPE_CHECKING:
    import jax

    from attnlab.tasks import Task

First = Literal["softmax", "linear", "released"]


@dataclass(frozen=True)
class MinimalInduction(Model):
    """z_s = sum_{r<=s} softmax(v_{s-r}) e_r; logits_t = sum_{s<=t} (x_t^T W z_s) x_s.

    Group `first` is v, a number for each lag, and `second` is W (k, k), which has `scale` in all
    entries at the start; v starts at 0. The second layer has no softmax.

    Parameters
    ----------
    scale : float, optional
        Entries of W at the start.
    first : str, optional
        Weights of the first layer: "softmax" over visible positions; "linear", v itself; or
        "released", as in released code, which leaves future positions in with the logit of lag 0.
    """

    scale: float = 0.01
    first: First = "softmax"

    def __post_init__(self) -> None:
        require_choice("first", self.first, get_args(First))

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of the attention of layer 1 by lag, at the last position."""
        return {"lag_mass": ("lag",)}

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return W constant and v = 0."""
        import jax.numpy as jnp

        k, T = task.vocab_size, task.length
        return {"first": jnp.zeros(T), "second": jnp.full((k, k), self.scale)}

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return logits (B, T, k), attention by lag, and the diagonal of W and its other entries.

        The sum over s is a running sum of z_s x_s^T, so that no T x T array of scores is made.
        """
        import jax
        import jax.numpy as jnp

        v, W = params["first"], params["second"]
        k, T = len(W), inputs.shape[1]
        x = jax.nn.one_hot(inputs, k, dtype=W.dtype)
        lag = jnp.arange(T)[:, None] - jnp.arange(T)
        scores = v[jnp.maximum(lag, 0)]
        if self.first == "linear":
            weights = jnp.where(lag >= 0, scores, 0.0)
        elif self.first == "released":
            weights = jax.nn.softmax(scores)
        else:
            weights = jax.nn.softmax(jnp.where(lag >= 0, scores, -jnp.inf))
        z = jnp.einsum("sr,brk->bsk", weights, x)
        seen = jnp.cumsum(z[..., :, None] * x[..., None, :], axis=1)  # B T k k
        logits = jnp.einsum("bta,ac,btcy->bty", x, W, seen)
        diagonal = jnp.trace(W) / k
        return logits, {
            "lag_mass": weights[-1, ::-1],
            "diagonal": diagonal,
            "off_diagonal": (W.sum() / k - diagonal) / (k - 1),
        }
