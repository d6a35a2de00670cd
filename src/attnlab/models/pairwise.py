"""Pairwise: the reparameterisation of a 1-layer transformer in Y and Z."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from attnlab.models.base import Params
from attnlab.models.extended import Extended
from attnlab.models.sequence import SequenceModel

if TYPE_CHECKING:
    import jax

    from attnlab.tasks.base import Task


@dataclass(frozen=True)
class Pairwise(SequenceModel):
    """The reparameterisation of "Scan and Snap": Y and Z are trained as they are (Section 3.1)."""

    cancels: ClassVar[bool] = True
    exact: ClassVar[str] = "attnlab.simulation.exact.pairwise:ExactPairwise"
    dims: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "attention": ("sequence", "token"),
        "attention_logits": ("query", "token"),
    }

    def check(self, run: Any) -> None:
        """Accept any task, gradient and start."""

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return Y = 0, (token, output), and Z = 0, (query, token)."""
        import jax.numpy as jnp

        M = task.vocab_size
        return {"decoder": jnp.zeros((M, M)), "attention": jnp.zeros((M, M))}

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Return the decoder's logits (B, M), attention to tokens (B, M), and Z."""
        Y, Z = params["decoder"], params["attention"]
        of_extended = {"decoder": Y[None], "attention": {"z": Z[None], "bias": Z[:1, :0]}}
        outputs, found = Extended().apply(of_extended, inputs)
        return outputs, {"attention": found["attention"], "attention_logits": Z}
