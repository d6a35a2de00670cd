"""BackcopyTransformer: the transformer that learns Bigram-Backcopy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab.models import Transformer
from attnlab.models.base import Params
from attnlab.models.transformer import Positions, Scheme

if TYPE_CHECKING:
    import jax

    from attnlab.tasks import Task


@dataclass(frozen=True)
class BackcopyTransformer(Transformer):
    """A transformer with learned positions, LayerNorm before each block and no biases.

    Embedding and positions start as N(0, 1), linear maps uniform within 1 / sqrt(inputs). With
    `attention` "relu" weights are relu(q.k / sqrt(d)) over the number of visible tokens. The
    settings are the released code's, except the width: there 256, with 1024 hidden units.
    """

    layers: int = 1
    dim: int = 48
    mlp: int = 192
    positions: Positions = "learned"
    scheme: Scheme = "uniform"

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return the parameters at the start."""
        import jax

        params = super().init(key, task, data)
        keys = jax.random.split(jax.random.fold_in(key, 1))
        tables = (("embedding", "tokens"), ("positions", "vectors"))
        for of, (group, name) in zip(keys, tables, strict=True):
            params[group] = {name: jax.random.normal(of, params[group][name].shape)}
        return params


def without(params: Params, part: str, layers: Any = slice(None)) -> Params:
    """Return the parameters with the attention or the MLP of these layers adding nothing."""
    last = {"attention": "out", "mlp": "down"}[part]
    # not set to 0: XLA 0.10 on processors multiplies large arrays with a constant matrix wrongly
    kept = params[part][last].at[layers].multiply(0)
    return {**params, part: {**params[part], last: kept}}
