"""Models: weights times values, the tied model, and attention through a shared embedding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab.files.errors import refuse_if, require_choice, require_whole
from attnlab.models.base import Model, Params
from attnlab.tasks import Task

if TYPE_CHECKING:
    import jax


WEIGHTINGS = ("softmax", "l2", "sum", "l1", "relu", "square", "sigmoid")

BY_TOKEN: dict[str, tuple[str, ...]] = {
    "weights": ("token",),
    "value_norms": ("token",),
    "scores": ("sequence", "output", "token"),
}


@dataclass(frozen=True)
class ValueAttention(Model):
    """f = V alpha(a): trained values V (dim, tokens) and logits a, no inputs; returns X f.

    Parameters
    ----------
    tokens : int, optional
        n.
    weighting : str, optional
        Map from logits to weights: "softmax"; "l2", softmax over its Euclidean norm; "sum", "l1",
        "relu" and "square", h(a) / sum h(a); "sigmoid", which is not normalised.
    value_scale : float, optional
        Standard deviation of V at the start.
    logit_mean, logit_scale : float, optional
        Mean and standard deviation of a at the start.
    """

    tokens: int = 8
    weighting: str = "softmax"
    value_scale: float = 0.1
    logit_mean: float = 0.0
    logit_scale: float = 0.0

    def __post_init__(self) -> None:
        require_whole("tokens", self.tokens, 2)
        require_choice("weighting", self.weighting, WEIGHTINGS)
        _require_scales(value_scale=self.value_scale, logit_scale=self.logit_scale)

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of what is captured, and of the parameters."""
        own = {"parameters.attention": ("token",), "parameters.value": ("component", "token")}
        return BY_TOKEN | own

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Draw values and logits."""
        import jax

        of_values, of_logits = jax.random.split(key)
        V = self.value_scale * jax.random.normal(of_values, (data[0].shape[-1], self.tokens))
        a = self.logit_mean + self.logit_scale * jax.random.normal(of_logits, (self.tokens,))
        return {"value": V, "attention": a}

    def apply(
        self, params: Params, inputs: jax.Array, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return X V alpha."""
        return _read(inputs, params["value"], _weigh(params["attention"], self.weighting))


@dataclass(frozen=True)
class TiedAttention(Model):
    """f = U softmax(U a): one matrix U, the identity at the start, gives values and keys.

    The formula and the start of U are released code. The loss and the start of a are not known to
    us; the default start is that of the released comparison of weightings.

    Parameters
    ----------
    logit_mean, logit_scale : float, optional
        Mean and standard deviation of a at the start.
    """

    logit_mean: float = 1.0
    logit_scale: float = 0.1

    def __post_init__(self) -> None:
        _require_scales(logit_scale=self.logit_scale)

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of what is captured, and of the parameters."""
        own = {"parameters.query": ("component",), "parameters.embedding": ("component", "token")}
        return BY_TOKEN | own

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Draw a; as many tokens as the vector f has components."""
        import jax
        import jax.numpy as jnp

        D = data[0].shape[-1]
        a = self.logit_mean + self.logit_scale * jax.random.normal(key, (D,))
        return {"embedding": jnp.eye(D), "query": a}

    def apply(
        self, params: Params, inputs: jax.Array, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return X U softmax(U a)."""
        import jax

        U = params["embedding"]
        return _read(inputs, U, jax.nn.softmax(U @ params["query"]))


@dataclass(frozen=True)
class FactoredAttention(Model):
    """Attention over an infinite sequence, through an embedding that the decoder shares.

    Phi = W0 W_Q W_K^T W0^T; b_qk ~ pi_k exp(Phi_qk) for the query token q; logits b_q^T W0 W1.

    Parameters
    ----------
    width : int, optional
        m, of the embedding.
    scale : float, optional
        Standard deviation of all weights at the start.
    """

    width: int = 16
    scale: float = 0.01

    def __post_init__(self) -> None:
        require_whole("width", self.width, 1)
        _require_scales(scale=self.scale)

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of what is captured; a sequence is its last token."""
        return {"attention": ("sequence", "token"), "attention_logits": ("sequence", "token")}

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Draw all weights."""
        import jax

        d, m = task.outputs, self.width
        shapes = {"embedding": (d, m), "query": (m, m), "key": (m, m), "decoder": (m, d)}
        keys = jax.random.split(key, len(shapes))
        return {
            name: self.scale * jax.random.normal(of, shape)
            for of, (name, shape) in zip(keys, shapes.items(), strict=True)
        }

    def apply(
        self, params: Params, inputs: tuple[jax.Array, jax.Array], *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the output logits of each last token, its attention and its attention logits."""
        import jax
        import jax.numpy as jnp

        q, pi = inputs
        W0, W_Q, W_K, W1 = (params[name] for name in ("embedding", "query", "key", "decoder"))
        asked = jax.nn.one_hot(q, len(W0), dtype=W0.dtype) @ W0  # not by indexing: a scatter
        Phi = asked @ W_Q @ W_K.T @ W0.T
        b = jax.nn.softmax(jnp.log(pi) + Phi)
        return b @ W0 @ W1, {"attention": b, "attention_logits": Phi}


def _weigh(a: jax.Array, weighting: str) -> jax.Array:
    """Return the weights of logits a."""
    import jax
    import jax.numpy as jnp

    if weighting == "sigmoid":
        return jax.nn.sigmoid(a)
    if weighting in ("softmax", "l2"):
        sigma = jax.nn.softmax(a)
        return sigma if weighting == "softmax" else sigma / jnp.linalg.norm(sigma)
    h = {"sum": a, "l1": jnp.abs(a), "relu": jax.nn.relu(a), "square": a**2}[weighting]
    return h / h.sum()


def _read(X: jax.Array, V: jax.Array, alpha: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return X V alpha, and what is captured: weights, norms of the values, scores X V."""
    import jax.numpy as jnp

    norms = jnp.linalg.norm(V, axis=0)
    return X @ (V @ alpha), {"weights": alpha, "value_norms": norms, "scores": X @ V}


def _require_scales(**scales: float) -> None:
    for name, scale in scales.items():
        refuse_if(not 0 <= scale < math.inf, name, "a finite number of at least 0", scale)
