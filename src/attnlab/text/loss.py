"""The cross entropy of a decoder, with a gradient that makes one pass over the logits."""

from __future__ import annotations

import jax
import jax.numpy as jnp


@jax.custom_vjp
def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean over rows of -log softmax(logits)[target], logits (N, V) and targets (N,).

    The gradient is written out, softmax minus one at the target, so that it is one fused pass
    over the logits; derived, it would scatter into a second array of their size.
    """
    return _forward(logits, targets)[0]


def _forward(
    logits: jax.Array, targets: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    log_sum = jax.nn.logsumexp(logits, axis=-1)  # N
    chosen = jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    return (log_sum - chosen).mean(), (logits, log_sum, targets)


def _backward(
    kept: tuple[jax.Array, jax.Array, jax.Array], scale: jax.Array
) -> tuple[jax.Array, None]:
    logits, log_sum, targets = kept
    is_target = jax.lax.broadcasted_iota(targets.dtype, logits.shape, 1) == targets[:, None]
    error = jnp.exp(logits - log_sum[:, None]) - is_target
    return error * (scale / targets.size), None


cross_entropy.defvjp(_forward, _backward)
