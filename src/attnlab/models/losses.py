"""Losses of predictions and their mean, and the fused cross entropy of a decoder."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.files.errors import InputError
from attnlab.models.base import OutputLoss
from attnlab.tasks.base import Batch

VOCABULARY_TILE, WIDTH_TILE = 128, 8  # matrix units are fastest at multiples of these
IMPOSSIBLE = -1e9  # a logit whose exponential is 0
LEAST = np.finfo(np.float32).tiny


def cross_entropy(outputs: jax.Array, target: jax.Array) -> jax.Array:
    """Return -log softmax(outputs)[label], or -sum_y p_y log softmax(outputs)_y."""
    logs = jax.nn.log_softmax(outputs)
    if jnp.issubdtype(target.dtype, jnp.integer):
        # not by indexing, whose gradient is a scatter
        chosen = jnp.arange(outputs.shape[-1]) == target[..., None]
        return -jnp.where(chosen, logs, 0.0).sum(-1)
    return -(target * logs).sum(-1)


def square(outputs: jax.Array, target: jax.Array) -> jax.Array:
    """Return (output - target)^2 of each output."""
    return (outputs - target) ** 2


def logistic(outputs: jax.Array, target: jax.Array) -> jax.Array:
    """Return log(1 + exp(-y f)) for labels y = +-1."""
    return jax.nn.softplus(-target * outputs)


LOSSES: dict[OutputLoss, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "cross_entropy": cross_entropy,
    "square": square,
    "logistic": logistic,
}


def losses_of(loss: OutputLoss, outputs: jax.Array, target: jax.Array) -> jax.Array:
    """Return the named loss of each prediction; refuse targets that do not fit the outputs."""
    labels = loss == "cross_entropy" and jnp.issubdtype(target.dtype, jnp.integer)
    wanted = outputs.shape[:-1] if labels else outputs.shape
    if target.shape != wanted:
        raise InputError(
            f"loss: {loss!r} of outputs {outputs.shape} takes targets {wanted}, the task has "
            f"{target.shape}; take another loss, or a model that predicts as often "
            "(Transformer.readout)"
        )
    return LOSSES[loss](outputs, target)


def mean_loss(losses: jax.Array, batch: Batch) -> jax.Array:
    """Return the mean over the predictions in the mask, by the weights of their examples."""
    if batch.mask is None and batch.weight is None:
        return losses.mean()
    counted = jnp.ones_like(losses) if batch.mask is None else batch.mask.astype(losses.dtype)
    if batch.weight is not None:
        counted = counted * batch.weight.reshape(-1, *[1] * (losses.ndim - 1))
    return jnp.where(counted > 0, counted * losses, 0.0).sum() / counted.sum()


# -- the cross entropy of a decoder, with few passes over the logits, which are the largest arrays:
# -- `decoder_cross_entropy` on a processor, `aligned_cross_entropy` on an accelerator


@jax.custom_vjp
def decoder_cross_entropy(
    x: jax.Array, weights: jax.Array, bias: jax.Array, targets: jax.Array
) -> jax.Array:
    """Return the mean over rows of -log softmax(x W^T + b)[target].

    x (N, d), weights (V, d), bias (V,), targets (N,).

    The gradient is written out: exponentials are taken once, their sums divide rows of the smaller
    arrays, and the targets are rows that are read or added to. Derived, it would compute the
    softmax again, and a second array of the size of the logits.
    """
    return _forward(x, weights, bias, targets)[0]


def _forward(
    x: jax.Array, weights: jax.Array, bias: jax.Array, targets: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    logits = x @ weights.T + bias  # N V
    most = logits.max(axis=-1)
    odds = jnp.exp(logits - most[:, None])
    total = odds.sum(axis=-1)
    chosen = jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    return (jnp.log(total) + most - chosen).mean(), (odds, total, x, weights, targets)


def _backward(
    kept: tuple[jax.Array, ...], scale: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    odds, total, x, weights, targets = kept
    each = scale / targets.size
    share = each / total  # of a row's odds, in its error: softmax minus one at the target
    of_x = share[:, None] * (odds @ weights) - each * weights[targets]
    of_weights = (odds.T @ (share[:, None] * x)).at[targets].add(-each * x)
    of_bias = (share @ odds).at[targets].add(-each)
    return of_x, of_weights, of_bias, None


decoder_cross_entropy.defvjp(_forward, _backward)


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def aligned_cross_entropy(
    x: jax.Array, weights: jax.Array, bias: jax.Array, targets: jax.Array, dtype: str
) -> jax.Array:
    """`decoder_cross_entropy` in shapes and types that an accelerator prefers.

    Logits, probabilities and the operands of the three products have the type `dtype`, the softmax
    is float32. XLA makes the probabilities in one pass over the logits if nothing else is asked of
    it, so the loss is read from them: a row counts 87 at most, where float32 ends.
    """
    return _aligned_forward(x, weights, bias, targets, dtype)[0]


def _aligned_forward(
    x: jax.Array, weights: jax.Array, bias: jax.Array, targets: jax.Array, dtype: str
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    rows, words = _aligned(x, weights, bias, dtype)
    logits = jnp.matmul(rows, words.T, preferred_element_type=dtype)
    chance = jax.nn.softmax(logits.astype(jnp.float32)).astype(dtype)
    chosen = jnp.take_along_axis(chance, targets[:, None], axis=-1).astype(jnp.float32)
    return -jnp.log(jnp.maximum(chosen, LEAST)).mean(), (chance, rows, words, weights, targets)


def _aligned_backward(
    dtype: str, kept: tuple[jax.Array, ...], scale: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    chance, rows, words, weights, targets = kept
    (V, d), scale = weights.shape, scale / targets.size
    error = chance.at[jnp.arange(targets.size), targets].add(
        -1, unique_indices=True, indices_are_sorted=True
    )
    of_rows = scale * jnp.matmul(error, words, preferred_element_type=jnp.float32)
    of_words = jnp.matmul(error.T, rows, preferred_element_type=dtype)
    of_words = scale * of_words[:V].astype(jnp.float32)
    return of_rows[:, :d], of_words[:, :d], of_words[:, d], None


aligned_cross_entropy.defvjp(_aligned_forward, _aligned_backward)


def _aligned(
    x: jax.Array, weights: jax.Array, bias: jax.Array, dtype: str
) -> tuple[jax.Array, jax.Array]:
    """Rows (N, d') and words (V', d') with sizes that are multiples of a tile.

    The bias is one more column of the weights, its gradient part of theirs. The words that are
    added are in no text: their bias leaves them the probability 0, and no gradient.
    """
    more_words = -weights.shape[0] % VOCABULARY_TILE
    more_width = -(weights.shape[1] + 1) % WIDTH_TILE
    bias = jnp.pad(bias, (0, more_words), constant_values=IMPOSSIBLE)[:, None]
    weights = jnp.pad(weights, ((0, more_words), (0, 0)))
    ones = jnp.ones((x.shape[0], 1), x.dtype)
    rows, words = (
        jnp.concatenate([left, jnp.pad(right, ((0, 0), (0, more_width)))], axis=1).astype(dtype)
        for left, right in ((x, ones), (weights, bias))
    )
    return rows, words
