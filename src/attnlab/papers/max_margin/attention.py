"""Softmax attention whose slope is accurate however little weight the other tokens have."""

from __future__ import annotations

import jax
import jax.numpy as jnp


@jax.custom_jvp
def attend(logits: jax.Array, values: jax.Array, log_scale: jax.Array) -> jax.Array:
    """Return softmax(logits) @ values, (n, T) and (n, T, h) to (n, h), with an accurate slope.

    The slope by a logit is s_t sum_tau s_tau (u_t - u_tau), from logs of s: the usual
    s_t (u_t - sum_tau s_tau u_tau) cancels at the token that has nearly all weight, and a
    normalised step would amplify what rounding leaves. The slope is multiplied by e^log_scale, so
    that it need not underflow; an optimizer that ignores the gradient's length does not notice.
    Values and log_scale are constants: nothing is differentiated by them.
    """
    return jnp.einsum("nt,nth->nh", jax.nn.softmax(logits), values)


@attend.defjvp
def _slope(
    primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]
) -> tuple[jax.Array, jax.Array]:
    logits, values, log_scale = primals
    logs = jax.nn.log_softmax(logits)
    pairs = logs[:, :, None] + logs[:, None, :] + log_scale
    # a token with itself has no difference, and e^log_scale may overflow there
    weights = jnp.exp(jnp.where(jnp.eye(logs.shape[1], dtype=bool), -jnp.inf, pairs))
    differences = values[:, :, None] - values[:, None, :]
    slope = jnp.einsum("ntu,ntuh,nt->nh", weights, differences, tangents[0])
    return attend(logits, values, log_scale), slope


def largest_other(logs: jax.Array) -> jax.Array:
    """Return the largest of logs of attention weights (n, T), the selected tokens' left out."""
    selected = jnp.arange(logs.shape[1]) == logs.argmax(axis=1, keepdims=True)
    return jnp.where(selected, -jnp.inf, logs).max()
