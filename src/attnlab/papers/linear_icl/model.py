"""LinearAttention, merged or with separate key and query, and CubicPerceptron, its partner.

With tokens as the columns of X, (D + 1) x (N + 1), one layer of linear attention with a residual
predicts the label entry of the query,

    y_hat = [X + sum_i (1/N) W^V_i X X^T W^KQ_i X]_(D+1, N+1).

Only the last row of W^V_i, (v_i vector, v_i), and the first D columns of W^KQ_i, (U_i; u_i), count,
and the residual adds the query's label entry, 0. So y_hat is linear in the cubic features
(X X^T/N)_ab x_qc, with coefficients sum_i W^V_ia W^KQ_ibc.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab.files.errors import InputError, require_whole
from attnlab.models import Model
from attnlab.models.base import Params
from attnlab.tasks import Task

from .task import InContextRegression
from .theory import Merged, Separate

if TYPE_CHECKING:
    import jax

LABEL_BLOCKS = ("value_inputs", "key_labels")  # zero at the start


def factors(weights: Mapping[str, Any]) -> Merged | Separate:
    """Return weights by group as the theory takes them, without the blocks of labels."""
    if "key" in weights:
        return Separate(weights["value"], weights["key"], weights["query"])
    return Merged(weights["value"], weights["key_query"])


@dataclass(frozen=True)
class LinearAttention(Model):
    """One layer of linear attention for in-context regression.

    Groups: `value`, the scalars v_i, (H,); `key_query`, U_i, (H, D, D), or `key` and `query`,
    (H, R, D), with U_i = sum_r k_ir q_ir^T. Beside them the blocks that start at 0: `value_inputs`,
    the other entries of the last row of W^V_i, (H, D), and `key_labels`, the label row of W^KQ_i,
    (H, D), or the label entries of the keys, (H, R). A learning rate None holds a group.

    Parameters
    ----------
    heads : int, optional
        H.
    rank : int, optional
        R of separate key and query; None for one merged matrix.
    std : float, optional
        Standard deviation of every weight that does not start at 0.
    """

    heads: int = 8
    rank: int | None = None
    std: float = 1e-6

    def __post_init__(self) -> None:
        require_whole("heads", self.heads, 1)
        if self.rank is not None:
            require_whole("rank", self.rank, 1)
        if not 0 < self.std < float("inf"):
            raise InputError(f"std: expected a number above 0, got {self.std}")

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of the matrix A."""
        return {"matrix": ("context_input", "query_input")}

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Draw the weights; the same key gives the same v for every rank."""
        import jax
        import jax.numpy as jnp

        if not isinstance(task, InContextRegression):
            raise InputError(f"task: expected InContextRegression(...), got {type(task).__name__}")
        D, H, R = len(task.spectrum), self.heads, self.rank
        shapes: dict[str, tuple[int, ...]] = {"value": (H,)}
        shapes |= {"key_query": (H, D, D)} if R is None else {"key": (H, R, D), "query": (H, R, D)}
        keys = jax.random.split(key, 3)
        drawn = {
            name: self.std * jax.random.normal(of, shape)
            for of, (name, shape) in zip(keys, shapes.items(), strict=False)
        }
        blocks = {"value_inputs": jnp.zeros((H, D)), "key_labels": jnp.zeros((H, R or D))}
        return {**drawn, **blocks}

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return y_hat, (B,), of sequences (B, N + 1, D + 1), the matrix A and the leak."""
        import jax.numpy as jnp

        W, M = self.weights(params)
        N, D = inputs.shape[1] - 1, inputs.shape[2] - 1
        moments = jnp.einsum("bna,bnc->bac", inputs, inputs) / N
        read = jnp.einsum("ha,bac->bhc", W, moments)  # the last row of W^V X X^T / N
        y = jnp.einsum("bhc,hcd,bd->b", read, M, inputs[:, N, :D])
        return y, self.measures(params)

    def weights(self, params: Params) -> tuple[jax.Array, jax.Array]:
        """Return the last rows of W^V, (H, D + 1), and W^KQ as far as it counts, (H, D + 1, D)."""
        import jax.numpy as jnp

        W = jnp.concatenate([params["value_inputs"], params["value"][:, None]], axis=1)
        if self.rank is None:
            rows = params["key_query"], params["key_labels"][:, None]
            return W, jnp.concatenate(rows, axis=1)
        keys = jnp.concatenate([params["key"], params["key_labels"][..., None]], axis=2)
        return W, jnp.einsum("hra,hrd->had", keys, params["query"])

    def measures(self, params: Params) -> dict[str, jax.Array]:
        """Return A, the coefficients of beta x_q^T, and the longest vector in the blocks at 0."""
        import jax.numpy as jnp

        W, M = self.weights(params)
        D = M.shape[2]
        A = jnp.einsum("h,hcd->cd", W[:, D], M[:, :D]) + jnp.einsum("hc,hd->cd", W[:, :D], M[:, D])
        blocks = jnp.concatenate([W[:, :D], M[:, D]])
        return {"matrix": A, "leak": jnp.sqrt((blocks**2).sum(1).max())}


@dataclass(frozen=True)
class CubicPerceptron(Model):
    """Two linear layers on z = vec(beta x_q^T): y_hat = w_2^T W_1 z, beta = (1/N) sum_n y_n x_n.

    Groups: `upper`, w_2, (H,); `lower`, W_1, (H, D^2). The same key draws the same weights as
    `LinearAttention` does for v_i and U_i; while its blocks of labels are zero the two are one
    function.

    Parameters
    ----------
    width : int, optional
        H.
    std : float, optional
        Standard deviation of the start.
    """

    width: int = 8
    std: float = 1e-6

    def __post_init__(self) -> None:
        LinearAttention(self.width, std=self.std)  # which checks them

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Draw the weights."""
        drawn = LinearAttention(self.width, std=self.std).init(key, task, data)
        return {"upper": drawn["value"], "lower": drawn["key_query"].reshape(self.width, -1)}

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return y_hat, (B,), of sequences (B, N + 1, D + 1)."""
        x, y = inputs[:, :-1, :-1], inputs[:, :-1, -1]
        beta = (y[..., None] * x).mean(1)
        z = (beta[:, :, None] * inputs[:, -1, None, :-1]).reshape(len(beta), -1)
        return (z @ params["lower"].T) @ params["upper"], {}
