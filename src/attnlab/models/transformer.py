"""Transformer: embedding, attention with or without an MLP, decoder; one option for each variant.

At the ends of lines: B sequences of T positions, d dimensions, H heads, h dimensions of a head,
L layers, vocabulary V, D distances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.files.errors import InputError, require_whole
from attnlab.models.base import Model, Params
from attnlab.tasks import Task

Activation = Literal["relu", "gelu", "linear"]
Norm = Literal["none", "pre", "post"]
Positions = Literal["none", "learned", "sinusoidal", "alibi", "relative", "rotary"]
Attention = Literal["softmax", "linear", "relu", "sigmoid"]
Embedding = Literal["trained", "orthonormal", "one-hot"]
Scheme = Literal["normal", "lecun", "uniform", "zeros"]
Readout = Literal["every", "last"]
CHOICES = {
    "activation": Activation, "norm": Norm, "positions": Positions, "attention": Attention,
    "embedding": Embedding, "scheme": Scheme, "readout": Readout,
}  # fmt: skip
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "linear": lambda hidden: hidden,
}
NORM_EPSILON = 1e-5
BASE = 10_000.0  # of the frequencies of sinusoidal and rotary positions


@dataclass(frozen=True)
class Transformer(Model):
    """A transformer. Inputs are tokens (B, T), or vectors (B, T, V) in place of one-hot tokens.

    Parameters
    ----------
    layers, heads, dim : int, optional
        Layers, heads of each layer, and width d of the residual stream.
    mlp : int, optional
        Hidden units; 0 leaves the MLP out.
    activation : str, optional
        Of the hidden units.
    norm : str, optional
        "pre" normalises before each block and at the end, "post" after each residual sum.
    positions : str, optional
        "learned" and "sinusoidal" vectors are added to the embedding; "alibi" lowers logits with
        distance, "relative" adds q_i . r_{i-j} with a learned vector r for each distance and layer,
        "rotary" turns queries and keys.
    attention : str, optional
        What makes weights of logits: "softmax"; "linear" and "relu" over the number of visible
        keys n; "sigmoid" of the logit minus ln n.
    embedding : str, optional
        "trained", or fixed: "orthonormal" rows, or "one-hot" (then dim is vocab_size).
    merged : bool, optional
        Use one d x d matrix for each head in place of query and key: q = x A, k = x.
    tied : bool, optional
        Use the embedding as the decoder.
    biases : bool, optional
        Of all linear maps and norms; they start at 0.
    logit_scale : float, optional
        Factor of q . k; by default 1 / sqrt of their width.
    scheme : str, optional
        Start of the matrices: "normal" with standard deviation `scale`; "lecun", normal with
        scale / sqrt(inputs); "uniform" within scale / sqrt(inputs); "zeros".
    scale : float, optional
        Of the start.
    dropout : float, optional
        Of embedding, attention weights, and the output of each block.
    causal : bool, optional
        Let a query see only keys up to its own position.
    readout : str, optional
        Predict at "every" position, (B, T, outputs), or at the "last", (B, outputs).
    """

    layers: int = 2
    heads: int = 1
    dim: int = 16
    mlp: int = 0
    activation: Activation = "relu"
    norm: Norm = "pre"
    positions: Positions = "relative"
    attention: Attention = "softmax"
    embedding: Embedding = "trained"
    merged: bool = False
    tied: bool = False
    biases: bool = False
    logit_scale: float | None = None
    scheme: Scheme = "lecun"
    scale: float = 1.0
    dropout: float = 0.0
    causal: bool = True
    readout: Readout = "every"

    def __post_init__(self) -> None:
        for name, least in (("layers", 1), ("heads", 1), ("dim", 1), ("mlp", 0)):
            require_whole(name, getattr(self, name), least)
        for name, kind in CHOICES.items():
            if getattr(self, name) not in get_args(kind):
                raise InputError(
                    f"{name}: expected one of {get_args(kind)}, got {getattr(self, name)!r}"
                )
        if self.dim % self.heads:
            raise InputError(
                f"heads: {self.heads} heads do not divide dim {self.dim}; choose a divisor of it"
            )
        if self.positions == "sinusoidal" and self.dim % 2:
            raise InputError(f"dim: sinusoidal positions need an even number, got {self.dim}")
        if self.positions == "rotary" and self.key_dim % 2:
            raise InputError(f"dim: rotary positions need heads of even width, got {self.key_dim}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout: expected a number in [0, 1), got {self.dropout}")

    @property
    def key_dim(self) -> int:
        """Width of a query and of a key."""
        return self.dim if self.merged else self.dim // self.heads

    @property
    def dims(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of attention weights, attention logits and norms of the residual stream."""
        maps = ("layer", "sequence", "head", "query", "key")
        return {
            "attention": maps, "attention_logits": maps,
            "residual_norm": ("layer", "sequence", "position"),
        }  # fmt: skip

    @property
    def fixed(self) -> tuple[str, ...]:
        """The embedding, where it is not trained."""
        return ("embedding",) if self.embedding == "orthonormal" else ()

    def init(self, key: jax.Array, task: Task, data: Any) -> Params:
        """Return the parameters at the start; those of layers have a leading axis (L, ...)."""
        V, T, out = task.vocab_size, task.length, task.outputs
        d, L, H, h, hidden = self.dim, self.layers, self.heads, self.key_dim, self.mlp
        self._require_fit(V, out)
        shapes: dict[str, dict[str, tuple[int, ...]]] = {"attention": {}}
        if self.embedding == "trained":
            shapes["embedding"] = {"tokens": (V, d)}
        if self.positions == "learned":
            shapes["positions"] = {"vectors": (T, d)}
        if self.positions == "relative":
            shapes["positions"] = {"vectors": (L, T if self.causal else 2 * T - 1, h)}
        if self.merged:
            shapes["attention"]["merged"] = (L, H, d, d)
        else:
            shapes["attention"] |= {"query": (L, d, d), "key": (L, d, d)}
        shapes["attention"] |= {"value": (L, d, d), "out": (L, d, d)}
        if hidden:
            shapes["mlp"] = {"up": (L, d, hidden), "down": (L, hidden, d)}
        if not self.tied:
            shapes["decoder"] = {"weights": (d, out)}
        params: Params = {}
        for i, (group, arrays) in enumerate(shapes.items()):
            keys = jax.random.split(jax.random.fold_in(key, i), len(arrays))
            params[group] = {
                name: self._drawn(of, shape)
                for of, (name, shape) in zip(keys, arrays.items(), strict=True)
            }
            if self.biases and group in ("attention", "mlp", "decoder"):
                params[group] |= {
                    f"{name}_bias": jnp.zeros(shape[:-2] + shape[-1:])
                    for name, shape in arrays.items()
                    if name != "merged"
                }
        if self.embedding == "orthonormal":
            q, _ = jnp.linalg.qr(jax.random.normal(jax.random.fold_in(key, 99), (max(V, d),) * 2))
            params["embedding"] = {"tokens": q[:V, :d]}
        if self.norm != "none":
            names = ["attention", *(["mlp"] if hidden else [])]
            params["norm"] = {name: self._unit_norm(L, d) for name in names}
            if self.norm == "pre":
                params["norm"]["final"] = self._unit_norm(d)
        return params

    def apply(
        self, params: Params, inputs: Any, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return predictions (B, T, outputs) or (B, outputs), and attention, logits and norms."""
        keys = None
        if key is not None and self.dropout > 0:
            keys = jax.random.split(key, 1 + 3 * self.layers)
        drop = partial(self._drop, keys)
        x = self._embed(params, inputs)  # B T d
        if self.positions == "learned":
            x = x + params["positions"]["vectors"][: x.shape[1]]
        elif self.positions == "sinusoidal":
            angles = _angles(x.shape[1], self.dim)  # T d/2
            x = x + np.stack([np.sin(angles), np.cos(angles)], -1).reshape(-1, self.dim).astype(
                x.dtype
            )
        x = drop(x, 0)
        captured: dict[str, list[jax.Array]] = {name: [] for name in self.dims}
        for i in range(self.layers):
            layer = jax.tree.map(itemgetter(i), self._of_layers(params))
            norm = layer.get("norm", {})
            seen = _normalise(norm["attention"], x) if self.norm == "pre" else x
            mixed, weights, logits = self._attend(layer, seen, partial(drop, index=3 * i + 1))
            x = x + drop(mixed, 3 * i + 2)
            x = _normalise(norm["attention"], x) if self.norm == "post" else x
            if self.mlp:
                seen = _normalise(norm["mlp"], x) if self.norm == "pre" else x
                hidden = ACTIVATIONS[self.activation](_linear(layer["mlp"], "up", seen))  # B T hid
                x = x + drop(_linear(layer["mlp"], "down", hidden), 3 * i + 3)
                x = _normalise(norm["mlp"], x) if self.norm == "post" else x
            of_layer = weights, logits, jnp.linalg.norm(jax.lax.stop_gradient(x), axis=-1)
            for name, value in zip(self.dims, of_layer, strict=True):
                captured[name].append(value)
        x = x[:, -1] if self.readout == "last" else x
        x = _normalise(params["norm"]["final"], x) if self.norm == "pre" else x
        if self.tied:
            outputs = x @ params["embedding"]["tokens"].T if self.embedding != "one-hot" else x
        else:
            outputs = _linear(params["decoder"], "weights", x)  # B T outputs
        return outputs, {name: jnp.stack(values) for name, values in captured.items()}

    def _attend(
        self, layer: Params, x: jax.Array, drop: Callable[[jax.Array], jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the output (B, T, d), weights and logits (B, H, T, T) of a layer's attention."""
        B, T, d = x.shape
        H, of = self.heads, layer["attention"]
        if self.merged:
            q = jnp.einsum("btd,hde->bthe", x, of["merged"])  # B T H d
            k = jnp.broadcast_to(x[:, :, None], q.shape)
        else:
            q, k = (_linear(of, name, x).reshape(B, T, H, -1) for name in ("query", "key"))
        if self.positions == "rotary":
            q, k = _turn(q), _turn(k)
        logits = jnp.einsum("bqhe,bkhe->bhqk", q, k)  # B H T T
        if self.positions == "relative":
            r = layer["positions"]["vectors"]  # D h
            r = r[:T] if self.causal else r[(len(r) + 1) // 2 - T : (len(r) - 1) // 2 + T]
            logits = logits + _by_distance(jnp.einsum("bqhe,de->bhqd", q, r), self.causal)
        logits = logits * (self.key_dim**-0.5 if self.logit_scale is None else self.logit_scale)
        distance = np.arange(T)[:, None] - np.arange(T)
        if self.positions == "alibi":
            slopes = 2.0 ** (-8.0 * np.arange(1, H + 1) / H)
            logits = logits - jnp.asarray(slopes[:, None, None] * abs(distance), x.dtype)
        visible = distance >= 0 if self.causal else np.ones((T, T), bool)
        weights = self._weights(logits, visible)
        v = _linear(of, "value", x).reshape(B, T, H, -1)
        mixed = jnp.einsum("bhqk,bkhe->bqhe", drop(weights), v).reshape(B, T, d)
        return _linear(of, "out", mixed), weights, jnp.where(visible, logits, -jnp.inf)

    def _weights(self, logits: jax.Array, visible: np.ndarray[Any, Any]) -> jax.Array:
        if self.attention == "softmax":
            # a large finite number: the gradient of -inf is NaN where a row has no other
            return jax.nn.softmax(jnp.where(visible, logits, -1e30))
        seen = visible.sum(-1, keepdims=True).astype(logits.dtype)
        if self.attention == "sigmoid":
            weights = jax.nn.sigmoid(logits - np.log(seen))
        else:
            weights = (jax.nn.relu(logits) if self.attention == "relu" else logits) / seen
        return jnp.where(visible, weights, 0.0)

    def _embed(self, params: Params, inputs: Any) -> jax.Array:
        """Tokens (B, T) or vectors (B, T, V) as (B, T, d)."""
        tokens = jnp.issubdtype(inputs.dtype, jnp.integer)
        if self.embedding == "one-hot":
            return jax.nn.one_hot(inputs, self.dim) if tokens else inputs
        table = params["embedding"]["tokens"]
        return table[inputs] if tokens else inputs @ table

    def _of_layers(self, params: Params) -> Params:
        """The parameters that have an axis of layers."""
        names = ["attention", "mlp", *(["positions"] if self.positions == "relative" else [])]
        found = {name: params[name] for name in names if name in params}
        if "norm" in params:
            found["norm"] = {
                name: value for name, value in params["norm"].items() if name != "final"
            }
        return found

    def _drawn(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        inputs = shape[-2]
        if self.scheme == "zeros":
            return jnp.zeros(shape)
        if self.scheme == "uniform":
            return self.scale * inputs**-0.5 * jax.random.uniform(key, shape, minval=-1.0)
        factor = self.scale if self.scheme == "normal" else self.scale * inputs**-0.5
        return factor * jax.random.normal(key, shape)

    def _unit_norm(self, *shape: int) -> Params:
        shift = {"shift": jnp.zeros(shape)} if self.biases else {}
        return {"gain": jnp.ones(shape), **shift}

    def _drop(self, keys: Any, x: jax.Array, index: int) -> jax.Array:
        if keys is None:
            return x
        kept = jax.random.bernoulli(keys[index], 1 - self.dropout, x.shape)
        return jnp.where(kept, x / (1 - self.dropout), 0.0)

    def _require_fit(self, vocab_size: int, outputs: int) -> None:
        if self.embedding == "one-hot" and self.dim != vocab_size:
            raise InputError(f"dim: one-hot embeddings need dim = {vocab_size}, got {self.dim}")
        if self.embedding == "orthonormal" and self.dim < vocab_size:
            raise InputError(
                f"dim: {vocab_size} orthonormal embeddings need as many dimensions, got {self.dim}"
            )
        if self.tied and outputs != vocab_size:
            raise InputError(
                f"tied: expected as many outputs as tokens ({vocab_size}), got {outputs}; untie"
            )


def _linear(of: Params, name: str, x: jax.Array) -> jax.Array:
    product = x @ of[name]
    return product + of[f"{name}_bias"] if f"{name}_bias" in of else product


def _normalise(norm: Params, x: jax.Array) -> jax.Array:
    """LayerNorm."""
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + NORM_EPSILON)
    return scaled * norm["gain"] + norm.get("shift", 0.0)


def _angles(length: int, dim: int) -> np.ndarray[Any, Any]:
    """Return position times frequency, (length, dim / 2)."""
    return np.arange(length)[:, None] * BASE ** (-np.arange(0, dim, 2) / dim)


def _turn(x: jax.Array) -> jax.Array:
    """Rotary positions: turn the pairs (e, e + h/2) of x (B, T, H, h) by position x frequency."""
    angles = _angles(x.shape[1], x.shape[-1])[:, None]  # T 1 h/2
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def _by_distance(x: jax.Array, causal: bool) -> jax.Array:
    """Move entries (..., query, distance) to (..., query, key), by padding and reshaping.

    Causal: T distances i - j from 0 on; entries of keys after the query mean nothing. Otherwise
    2T - 1 distances from -(T - 1) on. A gather would do the same; its gradient is slow.
    """
    *lead, T, D = x.shape
    x = x[..., ::-1]  # by falling distance
    if causal:  # key j = T - 1 - i + column of row i
        padded = jnp.pad(x, [(0, 0)] * (len(lead) + 1) + [(1, 0)])
        return padded.reshape(*lead, T + 1, T)[..., 1:, :]
    flat = jnp.pad(x, [(0, 0)] * (len(lead) + 1) + [(0, 1)]).reshape(*lead, T * (D + 1))
    flat = jnp.pad(flat, [(0, 0)] * len(lead) + [(0, T - 1)])
    return flat.reshape(*lead, T + 1, D)[..., :T, T - 1 :]
