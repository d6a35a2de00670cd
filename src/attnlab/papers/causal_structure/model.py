"""Models: two layers of attention whose stream is never added up, and the one the theory treats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab.files.errors import refuse_if, require_whole
from attnlab.models import Model
from attnlab.models.base import Params
from attnlab.tasks import Task

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class Disentangled(Model):
    """Two layers that append what they read: h_l = [h_{l-1}, softmax(h A_l h^T) h_{l-1}].

    h_0 is the token and its position, both one-hot, d = S + T numbers; key and query are one
    matrix A_l, values are the stream itself, and the outputs are W^T h_2 at the last position. No
    scale, no bias, no norm. Groups: `first` (A_1, by head), `second` (A_2) and `output` (W).

    Parameters
    ----------
    heads : tuple of int, optional
        Heads of each layer.
    scale : float, optional
        Standard deviation of A_1 and A_2 at the start; W starts at 0.
    """

    heads: tuple[int, int] = (1, 1)
    scale: float = 0.0

    def __post_init__(self) -> None:
        for count in self.heads:
            require_whole("heads", count, 1)
        refuse_if(not 0 <= self.scale < float("inf"), "scale", "at least 0", self.scale)

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Attention of each head of layer 1, and of the last position in layer 2."""
        return {"first_attention": ("head", "query", "key"), "second_attention": ("reader", "key")}

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return A_1 and A_2, normal of standard deviation `scale`, and W = 0."""
        import jax
        import jax.numpy as jnp

        one, other = self.heads
        width = task.vocab_size + task.length
        wide = width * (1 + one)
        of_first, of_second = jax.random.split(key)
        return {
            "first": self.scale * jax.random.normal(of_first, (one, width, width)),
            "second": self.scale * jax.random.normal(of_second, (other, wide, wide)),
            "output": jnp.zeros((wide * (1 + other), task.outputs)),
        }

    def apply(
        self, params: Params, inputs: jax.Array, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return logits at the last position, (B, S), and attention, averaged over the batch."""
        import jax
        import jax.numpy as jnp

        A1, A2, W = params["first"], params["second"], params["output"]
        B, T = inputs.shape
        position = jnp.broadcast_to(jnp.eye(T), (B, T, T))
        h = jnp.concatenate([jax.nn.one_hot(inputs, A1.shape[-1] - T), position], -1)  # B T d
        scores = jnp.einsum("bid,hde,bje->bhij", h, A1, h)
        first = jax.nn.softmax(jnp.where(jnp.tri(T, dtype=bool), scores, -jnp.inf))
        read = jnp.einsum("bhij,bjd->bihd", first, h).reshape(B, T, -1)
        h = jnp.concatenate([h, read], -1)
        last = h[:, -1]  # the only position that is read, so that layer 2 computes no other
        second = jax.nn.softmax(jnp.einsum("bd,hde,bje->bhj", last, A2, h))
        read = jnp.einsum("bhj,bjd->bhd", second, h).reshape(B, -1)
        outputs = jnp.concatenate([last, read], -1) @ W
        return outputs, {"first_attention": first.mean(0), "second_attention": second.mean(0)}


@dataclass(frozen=True)
class Reduced(Model):
    """Layer 1 mixes positions, layer 2 compares tokens, and the output is a mixture of tokens.

    z_i = sum_{j<=i} softmax(A1_i)_j e_{s_j}; f = sum_i softmax_i(e_{s_T}^T A2 z_i) e_{s_i}. The
    test token is not masked. The outputs are ln(f + eps), whose softmax is (f + eps)/(1 + S eps): a
    distribution, so that losses compare with those of others; its gradient is that of ln(f + eps).
    Groups: `first` (A1 = 0 at the start) and `second` (A2 = beta0 I).

    Parameters
    ----------
    beta0 : float, optional
        Scale of A2 at the start.
    eps : float, optional
        Keeps the loss finite where a symbol is not in the context.
    """

    beta0: float = 1.0
    eps: float = 0.05

    def __post_init__(self) -> None:
        for name in ("beta0", "eps"):
            value = getattr(self, name)
            refuse_if(not 0 < value < float("inf"), name, "more than 0", value)

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Attention of layer 1 is the same in all sequences."""
        return {"first_attention": ("query", "key")}

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return A1 = 0 and A2 = beta0 I."""
        import jax.numpy as jnp

        T, S = task.length, task.vocab_size
        return {"first": jnp.zeros((T, T)), "second": self.beta0 * jnp.eye(S)}

    def apply(
        self, params: Params, inputs: jax.Array, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return ln(f + eps), (B, S), and softmax(A1)."""
        import jax
        import jax.numpy as jnp

        A1, A2 = params["first"], params["second"]
        e = jax.nn.one_hot(inputs, len(A2))  # B T S
        first = jax.nn.softmax(jnp.where(jnp.tri(len(A1), dtype=bool), A1, -jnp.inf))
        z = jnp.einsum("ij,bjs->bis", first, e)
        a = jax.nn.softmax(jnp.einsum("bs,sr,bir->bi", e[:, -1], A2, z))
        return jnp.log(jnp.einsum("bi,bis->bs", a, e) + self.eps), {"first_attention": first}
