"""SinkFlow: the reparametrised head, whose sink logits and value of <s> follow closed equations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from attnlab.files.errors import require_whole
from attnlab.models.base import Params
from attnlab.simulation import Learner
from attnlab.tasks.markov import stationary

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class SinkFlow(Learner):
    """The reparametrised head at tokens that are not triggers; see `theory.sink`.

    Groups: `sink` (alpha) and `value` (beta), which start at 0. P has Dirichlet(1) rows, pi is its
    stationary distribution. Recorded are `sink_mass` and `value_size`, |beta|.

    Parameters
    ----------
    tokens : int, optional
        V.
    visible : int, optional
        N, the other tokens that a query sees; each has the value 1 at its own output.
    contexts : int, optional
        M draws of N tokens; 0 takes the single context N pi.
    """

    labels: ClassVar[Mapping[str, tuple[str, ...]]] = {"sink_mass": ("query",)}

    tokens: int = 8
    visible: int = 100
    contexts: int = 48

    def __post_init__(self) -> None:
        for name, least in (("tokens", 2), ("visible", 1), ("contexts", 0)):
            require_whole(name, getattr(self, name), least)

    def draw(self, key: jax.Array) -> dict[str, jax.Array]:
        """Draw P (V, V), pi (V,) and the sums W of visible values (M, V)."""
        import jax
        import jax.numpy as jnp

        V, N = self.tokens, self.visible
        of_rows, of_contexts = jax.random.split(key)
        P = jax.random.dirichlet(of_rows, jnp.ones(V), (V,))
        pi = stationary(P)
        if not self.contexts:
            return {"P": P, "pi": pi, "W": N * pi[None]}
        seen = jax.random.choice(of_contexts, V, (self.contexts, N), p=pi)
        return {"P": P, "pi": pi, "W": jax.nn.one_hot(seen, V).sum(1)}

    def init(self, key: jax.Array, data: Any) -> Params:
        """Return alpha = 0 and beta = 0."""
        import jax.numpy as jnp

        return {"sink": jnp.zeros(self.tokens), "value": jnp.zeros(self.tokens)}

    def loss(self, data: Any, params: Params, batch: Any, key: jax.Array | None) -> jax.Array:
        """Return the loss above its least value.

        It falls as e^{-2 alpha}: logits are centred before they are exponentiated.
        """
        import jax.numpy as jnp

        P, pi, W = data["P"], data["pi"], data["W"]
        e = jnp.exp(params["sink"])[:, None, None]
        delta = (e * params["value"] + W) / (e + self.visible)  # query context output
        delta = delta - jnp.einsum("vy,vmy->vm", P, delta)[..., None]
        excess = jnp.log1p(jnp.einsum("vy,vmy->vm", P, jnp.expm1(delta)))
        return pi @ excess.mean(-1)

    def capture(self, data: Any, params: Params, probe: Any) -> dict[str, jax.Array]:
        """Return the sink mass of each query and the norm of the value."""
        import jax.numpy as jnp

        e = jnp.exp(params["sink"])
        return {"sink_mass": e / (e + self.visible), "value_size": jnp.linalg.norm(params["value"])}
