"""Losses: of each prediction, and their mean over what counts."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from attnlab.models.base import OutputLoss
from attnlab.tasks.base import Batch


def cross_entropy(outputs: jax.Array, target: jax.Array) -> jax.Array:
    """-log softmax(outputs)[label], or -sum_y p_y log softmax(outputs)_y of probabilities p."""
    logs = jax.nn.log_softmax(outputs)
    if jnp.issubdtype(target.dtype, jnp.integer):
        # not by indexing, whose gradient is a scatter
        chosen = jnp.arange(outputs.shape[-1]) == target[..., None]
        return -jnp.where(chosen, logs, 0.0).sum(-1)
    return -(target * logs).sum(-1)


def square(outputs: jax.Array, target: jax.Array) -> jax.Array:
    """(output - target)^2 of each output."""
    return (outputs - target) ** 2


def logistic(outputs: jax.Array, target: jax.Array) -> jax.Array:
    """log(1 + exp(-y f)) for labels y = +-1."""
    return jax.nn.softplus(-target * outputs)


LOSSES: dict[OutputLoss, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "cross_entropy": cross_entropy,
    "square": square,
    "logistic": logistic,
}


def mean_loss(losses: jax.Array, batch: Batch) -> jax.Array:
    """Return the mean over the predictions in the mask, by the weights of their examples."""
    if batch.mask is None and batch.weight is None:
        return losses.mean()
    counted = jnp.ones_like(losses) if batch.mask is None else batch.mask.astype(losses.dtype)
    if batch.weight is not None:
        counted = counted * batch.weight.reshape(-1, *[1] * (losses.ndim - 1))
    return jnp.where(counted > 0, counted * losses, 0.0).sum() / counted.sum()
