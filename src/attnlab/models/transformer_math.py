"""Mathematics of `Transformer`: its start, the forward pass, and the loss of its decoder.

At the ends of lines: B sequences of T positions, N = B T rows, d dimensions, H heads, h dimensions
of a head, L layers, vocabulary V, D distances.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.models import losses
from attnlab.models.base import Params, Precision

if TYPE_CHECKING:
    from attnlab.models.losses import OutputLoss
    from attnlab.models.transformer import Transformer
    from attnlab.tasks import Batch

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "linear": lambda hidden: hidden,
}
NORM_EPSILON = 1e-5
BASE = 10_000.0  # of the frequencies of sinusoidal and rotary positions
ROWS_PER_TOKEN = 2  # a pass over as many rows of a table takes as long as to read and write one
TABLE_BOUND = 0.1  # of embedding, decoder and positions in the scheme "torch"


def init(model: Transformer, key: jax.Array, vocab_size: int, length: int, outputs: int) -> Params:
    """Return the parameters at the start.

    All that is random is one draw, which is cut into arrays: a generator takes longer to compile
    than to run.
    """
    shapes = _shapes(model, vocab_size, length, outputs)
    spreads = {at: _spread(model, at[1], shape) for at, shape in shapes.items()}
    ends = np.cumsum([np.prod(shapes[at]) if spreads[at] else 0 for at in shapes])
    drawn = _draw(model, key, int(ends[-1]))
    params: Params = {}
    for at, part in zip(shapes, jnp.split(drawn, ends[:-1]), strict=True):
        group, name = at
        zeros = jnp.zeros(shapes[at])
        array = spreads[at] * part.reshape(shapes[at]) if spreads[at] else zeros
        params.setdefault(group, {})[name] = array
    if model.embedding == "orthonormal":
        n = max(vocab_size, model.dim)
        q, _ = jnp.linalg.qr(jax.random.normal(jax.random.fold_in(key, 1), (n, n)))
        params["embedding"] = {"tokens": q[:vocab_size, : model.dim]}
    if model.norm != "none":
        L, d = model.layers, model.dim
        params["norm"] = {"attention": _unit_norm(model, L, d)}
        if model.mlp:
            params["norm"]["mlp"] = _unit_norm(model, L, d)
        if model.norm == "pre":
            params["norm"]["final"] = _unit_norm(model, d)
    return params


def _shapes(
    model: Transformer, V: int, T: int, outputs: int
) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return the shapes of all but norms and fixed embeddings, by group and name."""
    d, L, H, hidden = model.dim, model.layers, model.heads, model.mlp
    found: dict[tuple[str, str], tuple[int, ...]] = {}
    if model.embedding == "trained":
        found["embedding", "tokens"] = (V, d)
    if not model.tied:
        found["decoder", "weights"] = (outputs, d)
    if model.biases:
        found["decoder", "bias"] = (outputs,)
    if model.positions == "learned":
        found["positions", "vectors"] = (T, d)
    if model.positions == "relative":
        found["positions", "vectors"] = (L, T if model.causal else 2 * T - 1, model.key_dim)
    linear = {"attention": {"qkv": (d, 3 * d), "out": (d, d)}}
    if model.merged:
        found["attention", "merged"] = (L, H, d, d)
        linear["attention"] = {"value": (d, d), "out": (d, d)}
    if hidden:
        linear["mlp"] = {"up": (d, hidden), "down": (hidden, d)}
    for group, maps in linear.items():
        for name, shape in maps.items():
            found[group, name] = (L, *shape)
            if model.biases:
                found[group, f"{name}_bias"] = (L, shape[1])
    return found


def _spread(model: Transformer, name: str, shape: tuple[int, ...]) -> float:
    """Return the standard deviation or the bound of an array at the start; 0 for one of zeros."""
    torch = model.scheme == "torch"
    drawn_bias = torch and name in ("up_bias", "down_bias")
    if model.scheme == "zeros" or (name.endswith("bias") and not drawn_bias):
        return 0.0
    if model.scheme == "normal":
        return model.scale
    if torch and name in ("tokens", "weights", "vectors"):
        return model.scale * TABLE_BOUND
    if torch and name == "qkv":
        return model.scale * (6 / sum(shape[-2:])) ** 0.5
    inputs = {"weights": model.dim, "up_bias": model.dim, "down_bias": model.mlp}
    return model.scale * (inputs[name] if name in inputs else shape[-2]) ** -0.5


def _draw(model: Transformer, key: jax.Array, size: int) -> jax.Array:
    if model.scheme in ("uniform", "torch"):
        return jax.random.uniform(key, (size,), minval=-1.0)
    return jax.random.normal(key, (size,))


def _unit_norm(model: Transformer, *shape: int) -> Params:
    shift = {"shift": jnp.zeros(shape)} if model.biases else {}
    return {"gain": jnp.ones(shape), **shift}


def encode(
    model: Transformer,
    params: Params,
    inputs: Any,
    key: jax.Array | None = None,
    *,
    what: tuple[str, ...] = (),
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return what the decoder reads, (B, T, d) or (B, d), and captured arrays (L, B, ...).

    what: the names of the arrays to capture, among those of `Transformer.dims`.
    """
    B, T = inputs.shape[:2]
    first_salt, layer_salts = _salts(model, key)
    x = _embed(model, params, inputs)  # B T d
    if model.scale_embedding:
        x = x * model.dim**0.5
    if model.positions == "learned":
        x = x + params["positions"]["vectors"][:T]
    elif model.positions == "sinusoidal":
        angles = _angles(T, model.dim)  # T d/2
        table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(T, model.dim)
        x = x + jnp.asarray(table, x.dtype)
    # Rows of one matrix from here on: gradients of the weights are plain products then.
    x = _drop(model, x.reshape(B * T, model.dim), first_salt)  # N d

    def block(x: jax.Array, of: tuple[Params, Any]) -> tuple[jax.Array, dict[str, jax.Array]]:
        layer, (weight_salt, mixed_salt, hidden_salt, out_salt) = of
        norm, pre, post = layer.get("norm", {}), model.norm == "pre", model.norm == "post"
        seen = _normalise(norm["attention"], x) if pre else x
        mixed, weights, logits, values = _attend(model, layer, seen, T, weight_salt)
        x = x + _drop(model, mixed, mixed_salt)
        x = _normalise(norm["attention"], x) if post else x
        if model.mlp:
            seen = _normalise(norm["mlp"], x) if pre else x
            hidden = ACTIVATIONS[model.activation](_linear(layer["mlp"], "up", seen))  # N hidden
            hidden = _drop(model, hidden, hidden_salt)
            x = x + _drop(model, _linear(layer["mlp"], "down", hidden), out_salt)
            x = _normalise(norm["mlp"], x) if post else x
        found = {"attention": weights, "attention_logits": logits}
        for name, rows in (("value_norm", values), ("residual_norm", x)):
            found[name] = jnp.linalg.norm(jax.lax.stop_gradient(rows), axis=-1).reshape(B, T)
        return x, {name: found[name] for name in what}

    # Inlined (unroll=0): a loop over layers takes a tenth longer to run, and saves no time in
    # compiling up to 4 layers.
    x, captured = jax.lax.scan(block, x, (_of_layers(model, params), layer_salts), unroll=0)
    x = x.reshape(B, T, model.dim)
    x = x[:, -1] if model.readout == "last" else x
    return _normalise(params["norm"]["final"], x) if model.norm == "pre" else x, captured


def decode(model: Transformer, params: Params, x: jax.Array) -> jax.Array:
    """Return the outputs (..., outputs) of what `encode` returned."""
    if model.tied and model.embedding == "one-hot":
        return x + params["decoder"]["bias"] if model.biases else x
    weights, bias = _decoder(model, params)
    return x @ weights.T + bias


def _decoder(model: Transformer, params: Params) -> tuple[jax.Array, jax.Array]:
    """Return the decoder's weights (outputs, d), its own or the embedding's, and its bias."""
    weights = params["embedding"]["tokens"] if model.tied else params["decoder"]["weights"]
    bias = params["decoder"]["bias"] if model.biases else jnp.zeros(len(weights), weights.dtype)
    return weights, bias


def is_fused(model: Transformer, params: Params, batch: Batch, loss: OutputLoss) -> bool:
    """Return True if the loss is the cross entropy of many labels of equal weight."""
    return (
        loss == "cross_entropy"
        and jnp.issubdtype(batch.target.dtype, jnp.integer)
        and batch.mask is None
        and batch.weight is None
        and batch.target.shape == batch.inputs.shape[: 1 if model.readout == "last" else 2]
        and not (model.tied and model.embedding == "one-hot")
        and len(_decoder(model, params)[0]) >= losses.VOCABULARY_TILE
    )


def cross_entropy(
    model: Transformer, params: Params, batch: Batch, key: jax.Array | None, precision: Precision
) -> jax.Array:
    """Return the mean cross entropy of labels, by the function that is quickest on the device."""
    x, _ = encode(model, params, batch.inputs, key)
    x, targets = x.reshape(-1, model.dim), batch.target.reshape(-1)
    weights, bias = _decoder(model, params)
    if precision == "bfloat16":
        return losses.aligned_cross_entropy(x, weights, bias, targets, "bfloat16")
    if jax.default_backend() != "cpu" and x.dtype == jnp.float32:
        return losses.aligned_cross_entropy(x, weights, bias, targets, "float32")
    return losses.decoder_cross_entropy(x, weights, bias, targets)


def gather_rows(model: Transformer, params: Params, batch: Batch) -> tuple[Params, Batch]:
    """Return the parameters with one row of the embedding for each token of the batch.

    A token becomes the index of the first row of the same word, which then has the gradient of
    all of them; the rows of later ones are not read.
    """
    if not _reads_rows(model, params, batch):
        return params, batch
    table, words = params["embedding"]["tokens"], batch.inputs.reshape(-1)
    first = _first(words, len(table)).reshape(batch.inputs.shape)
    return {**params, "embedding": {"tokens": table[words]}}, batch._replace(inputs=first)


def scatter_rows(model: Transformer, params: Params, gathered: Params, batch: Batch) -> Params:
    """Return `gathered` with the whole embedding, into which the rows of the batch are written."""
    if not _reads_rows(model, params, batch):
        return gathered
    table, words = params["embedding"]["tokens"], batch.inputs.reshape(-1)
    # a word that comes twice is written twice, with the same row
    rows = gathered["embedding"]["tokens"][_first(words, len(table))]
    return {**gathered, "embedding": {"tokens": table.at[words].set(rows)}}


def _reads_rows(model: Transformer, params: Params, batch: Batch) -> bool:
    """Return True if a batch reads few enough rows of an embedding that nothing else reads."""
    return (
        model.embedding == "trained"
        and not model.tied
        and jnp.issubdtype(batch.inputs.dtype, jnp.integer)
        and ROWS_PER_TOKEN * batch.inputs.size <= len(params["embedding"]["tokens"])
    )


def _first(words: jax.Array, vocab_size: int) -> jax.Array:
    """Return for each word the index at which it occurs first."""
    of_word = jnp.full(vocab_size, words.size).at[words].min(jnp.arange(words.size))
    return of_word[words]


def _embed(model: Transformer, params: Params, inputs: Any) -> jax.Array:
    """Return tokens (B, T) or vectors (B, T, V) as (B, T, d)."""
    tokens = jnp.issubdtype(inputs.dtype, jnp.integer)
    if model.embedding == "one-hot":
        return jax.nn.one_hot(inputs, model.dim) if tokens else inputs
    table = params["embedding"]["tokens"]
    return table[inputs] if tokens else inputs @ table


def _of_layers(model: Transformer, params: Params) -> Params:
    """Return the parameters that have an axis of layers."""
    names = ["attention", "mlp", *(["positions"] if model.positions == "relative" else [])]
    found = {name: params[name] for name in names if name in params}
    if "norm" in params:
        found["norm"] = {name: of for name, of in params["norm"].items() if name != "final"}
    return found


def _attend(
    model: Transformer, layer: Params, x: jax.Array, T: int, salt: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return a layer's output (N, d), weights and logits (B, H, T, T), and W_O W_V x (N, d)."""
    q, k, v = _queries_keys_values(model, layer["attention"], x, T)  # B H T h
    if model.positions == "rotary":
        q, k = _turn(q), _turn(k)
    q = q * (model.key_dim**-0.5 if model.logit_scale is None else model.logit_scale)
    logits = q @ k.swapaxes(-1, -2)  # B H T T
    if model.positions == "relative":
        logits = logits + _by_distance(q, layer["positions"]["vectors"], model.causal)
    distance = np.arange(T)[:, None] - np.arange(T)  # of a key behind its query
    if model.positions == "alibi":
        slopes = 2.0 ** (-8.0 * np.arange(1, model.heads + 1) / model.heads)
        logits = logits - jnp.asarray(slopes[:, None, None] * abs(distance), x.dtype)
    visible = distance >= 0 if model.causal else np.ones((T, T), bool)
    odds, total = _odds(model, logits, visible)
    # Divided after the product: that array is smaller, and the gradient sums over h, not over keys.
    mixed = (_drop(model, odds, salt) @ v) / total
    mixed, v = (heads.swapaxes(1, 2).reshape(x.shape) for heads in (mixed, v))
    out, values = _linear(layer["attention"], "out", mixed), v @ layer["attention"]["out"]
    return out, odds / total, jnp.where(visible, logits, -jnp.inf), values


def _queries_keys_values(
    model: Transformer, of: Params, x: jax.Array, T: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return queries, keys and values of rows x (N, d), (B, H, T, h) each.

    Sequence and head first: all that follows are products of matrices that lie in a row.
    """
    d, H = model.dim, model.heads
    if not model.merged:
        parts = jnp.split(_linear(of, "qkv", x), 3, axis=-1)
        q, k, v = (part.reshape(-1, T, H, d // H).swapaxes(1, 2) for part in parts)
        return q, k, v
    q = jnp.einsum("btd,hde->bhte", x.reshape(-1, T, d), of["merged"])
    k = jnp.broadcast_to(x.reshape(-1, 1, T, d), q.shape)
    return q, k, _linear(of, "value", x).reshape(-1, T, H, d // H).swapaxes(1, 2)


def _odds(
    model: Transformer, logits: jax.Array, visible: np.ndarray[Any, Any]
) -> tuple[jax.Array, Any]:
    """Return attention weights before they are normalised, 0 for hidden keys, and their divisor."""
    if model.attention == "softmax":
        # added, not chosen: hidden keys have odds of 0 and with them no gradient
        hidden = np.where(visible, 0.0, -1e30).astype(logits.dtype)
        logits = logits + hidden
        odds = jnp.exp(logits - jax.lax.stop_gradient(logits.max(-1, keepdims=True)))
        return odds, odds.sum(-1, keepdims=True)
    seen = visible.sum(-1, keepdims=True).astype(logits.dtype)
    if model.attention == "sigmoid":
        return jnp.where(visible, jax.nn.sigmoid(logits - np.log(seen)), 0.0), 1.0
    odds = jax.nn.relu(logits) if model.attention == "relu" else logits
    return jnp.where(visible, odds, 0.0), seen


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
    """Rotary positions: turn the pairs (e, e + h/2) of x (B, H, T, h) by position x frequency."""
    angles = _angles(*x.shape[-2:])  # T h/2
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def _by_distance(q: jax.Array, r: jax.Array, causal: bool) -> jax.Array:
    """Return q_i . r_{i-j} of queries i (B, H, T, h) and keys j, (B, H, T, T).

    Causal: r has distances i - j from 0 on; entries of keys after the query mean nothing.
    Otherwise it has those from -(D - 1) / 2 on. The products with all distances, by row and
    falling distance, are moved to their keys by padding and reshaping. A gather would do the same;
    its gradient is slow.
    """
    B, H, T, h = q.shape
    r = r[:T] if causal else r[(len(r) + 1) // 2 - T : (len(r) - 1) // 2 + T]  # D h
    # The barrier keeps XLA from moving the transpose to the larger array in the gradient.
    falling = jax.lax.optimization_barrier(r[::-1].T)
    x = (q.reshape(-1, h) @ falling).reshape(B, H, T, -1)  # B H T D
    if causal:  # key j = T - 1 - i + column of row i
        padded = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (1, 0)))
        return padded.reshape(B, H, T + 1, T)[:, :, 1:]
    padded = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, 1))).reshape(B, H, T * 2 * T)
    padded = jnp.pad(padded, ((0, 0), (0, 0), (0, T - 1)))
    return padded.reshape(B, H, T + 1, 2 * T - 1)[:, :, :T, T - 1 :]


def _salts(model: Transformer, key: jax.Array | None) -> tuple[Any, Any]:
    """Return a salt for each draw of dropout, or None where nothing is dropped.

    One for the embedding, and four for each layer: for attention weights, their output, hidden
    units and theirs, (L, 2) each.
    """
    if key is None or model.dropout == 0:
        return None, (None,) * 4
    salts = jax.random.bits(key, (1 + 4 * model.layers, 2), jnp.uint32)
    of_layers = salts[1:].reshape(model.layers, 4, 2)
    return salts[0], tuple(of_layers[:, i] for i in range(4))


def _drop(model: Transformer, x: jax.Array, salt: jax.Array | None) -> jax.Array:
    """Set entries to zero with a fixed chance and scale the others up."""
    if salt is None:
        return x
    kept = _hash(x.shape, salt) >= np.uint32(model.dropout * 2**32)
    return jnp.where(kept, x / (1 - model.dropout), 0.0)


def _hash(shape: tuple[int, ...], salt: jax.Array) -> jax.Array:
    """Return random 32-bit words: each index, hashed with two salts by MurmurHash3's finaliser.

    A mask needs no better, and a few operations on the index are made where the mask is used: the
    words are never in memory, and there is nothing to compile but them.
    """
    words = jax.lax.iota(jnp.uint32, int(np.prod(shape))).reshape(shape)
    for word in salt:
        words = words * np.uint32(0x9E3779B1) + word
        words = (words ^ (words >> 16)) * np.uint32(0x85EBCA6B)
        words = (words ^ (words >> 13)) * np.uint32(0xC2B2AE35)
        words = words ^ (words >> 16)
    return words
