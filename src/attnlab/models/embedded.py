"""Embedded: the original parameterisation, an embedding and trained W_Q, W_K, W_V."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from attnlab.files.errors import InputError, require_whole
from attnlab.models.base import Params
from attnlab.models.extended import Extended
from attnlab.models.sequence import SequenceModel

if TYPE_CHECKING:
    import jax

    from attnlab.tasks.base import Task


@dataclass(frozen=True)
class Embedded(SequenceModel):
    """The original parameterisation: an embedding U and trained W_Q, W_K, W_V, single head.

    Y = U W_V^T U^T and Z = U W_Q W_K^T U^T / sqrt(d), with d = `dim`. U is kept as it starts:
    orthonormal rows when d is at least the vocabulary, random unit rows otherwise. With
    ``init="zero"``, W_V = 0 and W_Q, W_K are `scale` times isometries onto orthogonal halves of
    a head of width 2 d, so that Y(0) = Z(0) = 0 while both factors can move Z. With
    ``init="uniform"`` all entries are uniform in +-scale/sqrt(d).

    W_Q and W_K learn at eta_z d / (2 scale^2): Z then starts to move exactly as in `Pairwise`.
    For orthonormal U the whole trajectory approaches that of `Pairwise` as `scale` grows, with
    an error of order 1/scale^4: to first order the factors turn without changing their product.

    Parameters
    ----------
    dim : int, optional
        d, width of the embedding.
    scale : float, optional
        Factor of W_Q and W_K at the start.
    """

    exact: ClassVar[str] = "attnlab.simulation.exact.embedded:ExactEmbedded"
    fixed: ClassVar[tuple[str, ...]] = ("embedding",)
    dims: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "attention": ("sequence", "token"),
        "attention_logits": ("query", "token"),
    }

    dim: int = 64
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_whole("dim", self.dim, 1)
        if not self.scale > 0:
            raise InputError(f"scale: expected a positive number, got {self.scale}")

    def rate_factor(self, group: str) -> float:
        """Return the factor of a group's learning rate."""
        return self.dim / (2 * self.scale**2) if group == "attention" else 1.0

    def start(
        self, key: jax.Array, vocab_size: int, random: bool, dtype: Any
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Return U, which stays as it is, and W_V, W_Q, W_K at the start."""
        import jax
        import jax.numpy as jnp

        d = self.dim
        of_embedding, of_weights = jax.random.split(key)
        U = jax.random.normal(of_embedding, (vocab_size, d), dtype)
        if d >= vocab_size:
            U = jnp.linalg.qr(U.T)[0].T
        else:
            U = U / jnp.linalg.norm(U, axis=1, keepdims=True)
        if random:
            bound = self.scale / d**0.5
            shapes = ((d, d), (d, 2 * d), (d, 2 * d))
            W_V, W_Q, W_K = (
                jax.random.uniform(k, shape, dtype, -bound, bound)
                for k, shape in zip(jax.random.split(of_weights, 3), shapes, strict=True)
            )
            return U, W_V, W_Q, W_K
        turn = jnp.linalg.qr(jax.random.normal(of_weights, (2 * d, 2 * d), dtype))[0]
        return U, jnp.zeros((d, d), dtype), self.scale * turn[:d], self.scale * turn[d:]

    # -- the general path -------------------------------------------------------------------------

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return U, which is fixed, and W_V, W_Q, W_K."""
        import jax.numpy as jnp

        U, W_V, W_Q, W_K = self.start(key, task.vocab_size, False, jnp.result_type(float))
        return {"embedding": U, "decoder": W_V, "attention": {"W_Q": W_Q, "W_K": W_K}}

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Return the decoder's logits (B, M), attention to tokens (B, M), and Z."""
        U, W_V, attention = params["embedding"], params["decoder"], params["attention"]
        Y = U @ (U @ W_V).T  # token, output
        Z = (U @ attention["W_Q"]) @ (U @ attention["W_K"]).T / self.dim**0.5
        of_extended = {"decoder": Y[None], "attention": {"z": Z[None], "bias": Z[:1, :0]}}
        outputs, found = Extended().apply(of_extended, inputs)
        return outputs, {"attention": found["attention"], "attention_logits": Z}
