"""BackcopyTransformer: the transformer that learns Bigram-Backcopy, with norms of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnlab.files.errors import InputError
from attnlab.models import Transformer
from attnlab.models.base import Params
from attnlab.models.transformer import Embedding, Norm, Positions, Scheme

if TYPE_CHECKING:
    import jax

    from attnlab.tasks import Task

KEPT = {"norm": "pre", "positions": "learned", "embedding": "trained", "biases": False}
KEPT |= {"merged": False, "scale_embedding": False, "readout": "every"}


OUTPUTS = {"attention": "out", "mlp": "down"}  # the last matrix of each part of a layer


def without(params: Params, part: str, layers: Any = slice(None)) -> Params:
    """Return the parameters with the attention or the MLP of these layers adding nothing."""
    last = OUTPUTS[part]
    kept = params[part][last].at[layers].set(0)
    return {**params, part: {**params[part], last: kept}}


@dataclass(frozen=True)
class BackcopyTransformer(Transformer):
    """A transformer with LayerNorm before each block, learned positions and no biases.

    Embedding and positions start as N(0, 1), linear maps uniform within 1 / sqrt(inputs). With
    `attention` "relu" weights are relu(q.k / sqrt(d)) over the number of visible tokens. Captured
    besides what a `Transformer` captures: `value_norm`, |W_O W_V h| of each position's normalised
    state h. The settings are the released code's, but for the width: there 256, with 1024 hidden
    units.

    Parameters
    ----------
    layers, dim, mlp, attention : optional
        As of `Transformer`, whose other settings stay as they are here.
    """

    layers: int = 1
    dim: int = 48
    mlp: int = 192
    norm: Norm = "pre"
    positions: Positions = "learned"
    embedding: Embedding = "trained"
    scheme: Scheme = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in KEPT.items():
            if getattr(self, name) != value:
                raise InputError(
                    f"{name}: expected {value!r}, got {getattr(self, name)!r}; "
                    "take a Transformer for others"
                )

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of attention weights, attention logits, and norms by position."""
        return {**super().dims, "value_norm": ("layer", "sequence", "position")}

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return the parameters at the start."""
        import jax

        params = super().init(key, task, data)
        keys = jax.random.split(jax.random.fold_in(key, 1))
        tables = (("embedding", "tokens"), ("positions", "vectors"))
        for of, (group, name) in zip(keys, tables, strict=True):
            params[group] = {name: jax.random.normal(of, params[group][name].shape)}
        return params

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return predictions (B, T, outputs), attention, logits and norms."""
        import jax.numpy as jnp

        from attnlab.models.transformer_math import decode, encode

        x, captured = encode(self, params, inputs, key, what=tuple(super().dims))
        values = [self._values(params, inputs, layer) for layer in range(self.layers)]
        captured["value_norm"] = jnp.linalg.norm(jnp.stack(values), axis=-1)
        return decode(self, params, x), captured

    def _values(self, params: Params, inputs: Any, layer: int) -> jax.Array:
        """Return W_O W_V h of a layer, (B, T, d)."""
        import jax.numpy as jnp

        from attnlab.models.transformer_math import NORM_EPSILON

        gain = params["norm"]["attention"]["gain"][layer]
        if layer:
            h = self._before(params, inputs, layer, gain)
        else:
            x = params["embedding"]["tokens"][inputs]
            x = x + params["positions"]["vectors"][: inputs.shape[1]]
            centred = x - x.mean(-1, keepdims=True)
            h = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + NORM_EPSILON) * gain
        W_V = params["attention"]["qkv"][layer][:, -self.dim :]
        return h @ W_V @ params["attention"]["out"][layer]

    def _before(self, params: Params, inputs: Any, layers: int, gain: jax.Array) -> jax.Array:
        """Return what the first layers return, normalised by this gain in place of the last."""
        from attnlab.models.transformer_math import encode

        first: Params = {
            name: {of: array[:layers] for of, array in params[name].items()}
            for name in ("attention", "mlp")
            if name in params
        }
        norms = {
            of: {"gain": x["gain"][:layers]} for of, x in params["norm"].items() if of != "final"
        }
        norm = {**norms, "final": {"gain": gain}}
        h, _ = encode(replace(self, layers=layers), {**params, **first, "norm": norm}, inputs)
        return h
