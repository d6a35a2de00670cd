"""The transformer: embedding, causal self-attention, feed-forward, decoder.

The architecture of the paper's runs on text (Figs. 7 and 10): an encoder under a causal mask that
predicts the next token. Parameters are a tree of arrays, the model pure functions on it. At the
ends of lines: B sequences of T tokens, d dimensions, H heads of h = d / H, vocabulary V.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.files.errors import InputError, require_whole

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu", "linear"]
Positions = Literal["sinusoidal", "none", "learned", "alibi"]
Params = dict[str, Any]
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "linear": lambda hidden: hidden,
}

NORM_EPSILON = 1e-5
INIT_SCALE = 0.1  # embedding and decoder start uniform in +-0.1


@dataclass(frozen=True)
class TransformerSpec:
    """A transformer; the defaults are the paper's 1-layer model on text.

    Parameters
    ----------
    layers : int, optional
        How many.
    heads : int, optional
        Of each layer.
    dim : int, optional
        Width.
    feed_forward : int, optional
        Hidden units of the MLP.
    activation : str, optional
        Of the hidden units; "linear" leaves them as they are, a control.
    norm : str, optional
        "post" normalises after each residual sum, "pre" before each block and at the end.
    positions : str, optional
        "sinusoidal" or "learned" vectors added to the embedding, "alibi", a bias of the attention
        logits that falls with distance, or "none".
    dropout : float, optional
        Of the embedding, the attention weights, the hidden units and both blocks' outputs.
    tied : bool, optional
        Let the embedding be the decoder too.
    context : int, optional
        T, tokens in a training sequence.
    """

    layers: int = 1
    heads: int = 1
    dim: int = 200
    feed_forward: int = 200
    activation: Activation = "relu"
    norm: Norm = "post"
    positions: Positions = "sinusoidal"
    dropout: float = 0.2
    tied: bool = False
    context: int = 35

    def __post_init__(self) -> None:
        for name, least in (
            ("layers", 1), ("heads", 1), ("dim", 1), ("feed_forward", 1), ("context", 2),
        ):  # fmt: skip
            require_whole(name, getattr(self, name), least)
        for name, kind in (
            ("norm", Norm), ("positions", Positions), ("activation", Activation),
        ):  # fmt: skip
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
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout: expected a number in [0, 1), got {self.dropout}")


def init(spec: TransformerSpec, vocab_size: int, key: jax.Array) -> Params:
    """Parameters at the start; those of the layers are stacked along a leading axis.

    Embedding and decoder are uniform in +-0.1, the decoder's bias is 0. Linear layers are uniform
    in +-1/sqrt(inputs); queries, keys and values in +-sqrt(6 / (d + 3 d)) (Glorot, the three as
    one layer), the biases of the attention 0.
    """
    d, hidden, L = spec.dim, spec.feed_forward, spec.layers
    bounds = {"embedding": ((vocab_size, d), INIT_SCALE)}
    if not spec.tied:
        bounds["decoder"] = ((vocab_size, d), INIT_SCALE)
    if spec.positions == "learned":
        bounds["positions"] = ((spec.context, d), INIT_SCALE)
    layer_bounds = {
        "qkv": ((L, d, 3 * d), (6 / (4 * d)) ** 0.5),
        "out": ((L, d, d), d**-0.5),
        "up": ((L, d, hidden), d**-0.5),
        "up_bias": ((L, hidden), d**-0.5),
        "down": ((L, hidden, d), hidden**-0.5),
        "down_bias": ((L, d), hidden**-0.5),
    }
    drawn = _uniform(key, bounds | layer_bounds)
    params: Params = {name: drawn[name] for name in bounds}
    params["decoder_bias"] = jnp.zeros(vocab_size)
    params["layers"] = {
        **{name: drawn[name] for name in layer_bounds},
        "qkv_bias": jnp.zeros((L, 3 * d)),
        "out_bias": jnp.zeros((L, d)),
        "attention_norm": _unit_norm(L, d),
        "feed_forward_norm": _unit_norm(L, d),
    }
    if spec.norm == "pre":
        params["final_norm"] = _unit_norm(d)
    return params


def forward(
    params: Params, spec: TransformerSpec, tokens: jax.Array, key: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Logits of the next token (B, T, V) and attention maps (layer, B, H, query, key).

    `key` draws the dropout; without it nothing is dropped. Maps are before dropout. A compiled
    caller that ignores one of the two does not compute it.
    """
    x, maps = encode(params, spec, tokens, key)
    return x @ decoder(params).T + params["decoder_bias"], maps


def decoder(params: Params) -> jax.Array:
    """The decoder's weights (V, d): its own, or the embedding's where they are tied."""
    weights: jax.Array = params["decoder" if "decoder" in params else "embedding"]
    return weights


def encode(
    params: Params, spec: TransformerSpec, tokens: jax.Array, key: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """What the decoder reads (B, T, d), and attention maps (layer, B, H, query, key)."""
    B, T = tokens.shape
    rate = 0.0 if key is None else spec.dropout
    first_salt, salts = _salts(spec, key)
    activate = ACTIVATIONS[spec.activation]
    x = params["embedding"][tokens] * spec.dim**0.5  # B T d
    if spec.positions == "sinusoidal":
        x = x + _sinusoids(T, spec.dim)
    elif spec.positions == "learned":
        x = x + params["positions"][:T]
    # Rows of one matrix from here on: gradients of the weights are plain products then.
    x = _drop(x.reshape(B * T, spec.dim), rate, first_salt)  # BT d

    def block(x: jax.Array, layer_and_salts: tuple[Params, Any]) -> tuple[jax.Array, jax.Array]:
        layer, (weight_salt, mixed_salt, hidden_salt, out_salt) = layer_and_salts
        pre = spec.norm == "pre"
        seen = _normalise(layer["attention_norm"], x) if pre else x
        mixed, weights = _attend(layer, spec, seen, T, rate, weight_salt)
        x = x + _drop(mixed, rate, mixed_salt)
        x = x if pre else _normalise(layer["attention_norm"], x)
        seen = _normalise(layer["feed_forward_norm"], x) if pre else x
        hidden = activate(seen @ layer["up"] + layer["up_bias"])  # BT hidden
        out = _drop(hidden, rate, hidden_salt) @ layer["down"] + layer["down_bias"]
        x = x + _drop(out, rate, out_salt)
        x = x if pre else _normalise(layer["feed_forward_norm"], x)
        return x, weights

    # A loop over the layers, so that depth adds little to compile time.
    x, maps = jax.lax.scan(block, x, (params["layers"], salts))
    x = _normalise(params["final_norm"], x) if spec.norm == "pre" else x
    return x.reshape(B, T, spec.dim), maps


def _attend(
    layer: Params, spec: TransformerSpec, x: jax.Array, T: int, rate: float, salt: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Causal self-attention of x (BT, d): its output (BT, d) and its weights (B, H, T, T)."""
    d, H, h = spec.dim, spec.heads, spec.dim // spec.heads
    qkv = (x @ layer["qkv"] + layer["qkv_bias"]).reshape(-1, T, 3, H, h)
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]  # B T H h
    logits = jnp.einsum("bqhe,bkhe->bhqk", q, k) * h**-0.5
    distance = np.arange(T)[:, None] - np.arange(T)  # of a key behind its query
    if spec.positions == "alibi":
        slopes = 2.0 ** (-8.0 * np.arange(1, H + 1) / H)
        logits = logits - jnp.asarray(slopes[:, None, None] * distance, x.dtype)
    weights = jax.nn.softmax(jnp.where(distance >= 0, logits, -jnp.inf))  # B H T T
    mixed = jnp.einsum("bhqk,bkhe->bqhe", _drop(weights, rate, salt), v).reshape(-1, d)
    return mixed @ layer["out"] + layer["out_bias"], weights


def _normalise(norm: Params, x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + NORM_EPSILON) * norm["scale"] + norm["shift"]


def _unit_norm(*shape: int) -> Params:
    return {"scale": jnp.ones(shape), "shift": jnp.zeros(shape)}


def _uniform(
    key: jax.Array, bounds: Mapping[str, tuple[tuple[int, ...], float]]
) -> dict[str, jax.Array]:
    """Arrays uniform within +-bound, by name, shape and bound.

    One draw for all of them: a generator takes longer to compile than to run.
    """
    ends = np.cumsum([np.prod(shape) for shape, _ in bounds.values()])
    parts = jnp.split(jax.random.uniform(key, (int(ends[-1]),), minval=-1.0), ends[:-1])
    return {
        name: bound * part.reshape(shape)
        for (name, (shape, bound)), part in zip(bounds.items(), parts, strict=True)
    }


def _sinusoids(length: int, dim: int) -> jax.Array:
    """sin and cos of the place at falling frequencies, in turn."""
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, dim)
    return jnp.asarray(table, jnp.float32)


def _salts(spec: TransformerSpec, key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """What tells the draws of dropout apart: one for the embedding and four for each layer."""
    if key is None:
        key = jax.random.key(0)  # nothing is dropped
    salts = jax.random.bits(key, (1 + 4 * spec.layers, 2), jnp.uint32)
    return salts[0], salts[1:].reshape(spec.layers, 4, 2)


def _drop(x: jax.Array, rate: float, salt: jax.Array) -> jax.Array:
    """Set entries to zero with a fixed chance and scale the others up."""
    if rate == 0:
        return x
    kept = _hash(x.shape, salt) >= np.uint32(rate * 2**32)
    return jnp.where(kept, x / (1 - rate), 0.0)


def _hash(shape: tuple[int, ...], salt: jax.Array) -> jax.Array:
    """Random 32-bit words: each place, hashed with two salts by MurmurHash3's finaliser.

    A mask needs no better, and a few operations on the place are made where the mask is used: the
    words are never in memory, and there is nothing to compile but them.
    """
    size = int(np.prod(shape))
    words = jax.lax.iota(jnp.uint32, size).reshape(shape)
    for word in salt:
        words = words * np.uint32(0x9E3779B1) + word
        words = (words ^ (words >> 16)) * np.uint32(0x85EBCA6B)
        words = (words ^ (words >> 13)) * np.uint32(0xC2B2AE35)
        words = words ^ (words >> 16)
    return words
