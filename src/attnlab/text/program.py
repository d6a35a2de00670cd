"""The compiled programs of training: begin and advance. Runs are a leading axis, vectorised."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from attnlab.dynamics.optimizers import Optimizer
from attnlab.text.loss import cross_entropy
from attnlab.text.model import Params, TransformerSpec, decoder, encode, init
from attnlab.text.streams import window

_START, _DROPOUT = 0, 1  # the uses of a seed
VOCABULARY_TILE, WIDTH_TILE = 128, 8
IMPOSSIBLE = -1e9  # a logit whose exponential is 0


class State(NamedTuple):
    """Runs between two steps. The random numbers of a step are a function of seed and step."""

    params: Params
    memory: optax.OptState
    loss_sum: jax.Array  # of the training loss since the last record
    diverged: jax.Array  # the first step with a loss that is not finite, or -1


@partial(jax.jit, static_argnums=(0, 1, 2))
def begin(
    spec: TransformerSpec, optimizer: Optimizer, vocab_size: int, rates: jax.Array, seeds: jax.Array
) -> State:
    """Every run at step 0."""

    def one_run(rate: jax.Array, seed: jax.Array) -> State:
        params = init(spec, vocab_size, _key(seed, _START))
        memory = optimizer.transform(rate).init(params)
        return State(params, memory, jnp.float32(0), jnp.int32(-1))

    return jax.vmap(one_run)(rates, seeds)


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def advance(
    spec: TransformerSpec, optimizer: Optimizer, clip: float, state: State,
    rates: jax.Array, seeds: jax.Array, streams: jax.Array, first: jax.Array, count: jax.Array,
) -> State:  # fmt: skip
    """`count` steps of every run, from step `first` on; all runs read the same text."""

    def one_run(state: State, rate: jax.Array, seed: jax.Array, step: jax.Array) -> State:
        params, memory, loss_sum, diverged = state
        tokens, targets = window(streams, step, spec.context)
        key = jax.random.fold_in(_key(seed, _DROPOUT), step)
        loss, gradient = jax.value_and_grad(_loss)(params, spec, tokens, targets, key)
        gradient = _clipped(gradient, clip)
        updates, memory = optimizer.transform(rate).update(gradient, memory, params)
        fails = (diverged < 0) & ~jnp.isfinite(loss)
        return State(
            optax.apply_updates(params, updates),
            memory,
            loss_sum + loss,
            jnp.where(fails, step, diverged),
        )

    def one_step(step: jax.Array, state: State) -> State:
        return jax.vmap(one_run, in_axes=(0, 0, 0, None))(state, rates, seeds, step)

    return jax.lax.fori_loop(first, first + count, one_step, state)


def _loss(
    params: Params, spec: TransformerSpec, tokens: jax.Array, targets: jax.Array, key: jax.Array
) -> jax.Array:
    x, _ = encode(params, spec, tokens, key)
    logits = decoder_logits(
        x.reshape(-1, spec.dim), decoder(params), params["decoder_bias"],
        aligned=jax.default_backend() != "cpu",
    )  # fmt: skip
    return cross_entropy(logits, targets.reshape(-1))


def decoder_logits(
    x: jax.Array, weights: jax.Array, bias: jax.Array, *, aligned: bool
) -> jax.Array:
    """x W^T + b, (N, V); `aligned`: in the shape in which an accelerator is fastest, (N, V' >= V).

    Its matrix units want sizes that are multiples of a tile, and passes over the logits are what
    takes the time of many runs together. So the bias is one more column of the weights, and words
    are added that no text has: their bias leaves them the probability 0, and no gradient.
    """
    if not aligned:
        return x @ weights.T + bias
    words, width = -weights.shape[0] % VOCABULARY_TILE, -(weights.shape[1] + 1) % WIDTH_TILE
    bias = jnp.pad(bias, (0, words), constant_values=IMPOSSIBLE)[:, None]
    weights = jnp.pad(weights, ((0, words), (0, 0)))
    weights = jnp.concatenate([weights, jnp.pad(bias, ((0, 0), (0, width)))], axis=1)
    ones = jnp.ones((x.shape[0], 1), x.dtype)
    x = jnp.concatenate([x, jnp.pad(ones, ((0, 0), (0, width)))], axis=1)
    return x @ weights.T


def _clipped(gradient: Params, clip: float) -> Params:
    """The gradient, scaled down to the norm `clip` where it is longer.

    optax's own chooses for each entry between two values, which is one pass more over the
    gradients of embedding and decoder; a factor is part of the update that follows.
    """
    leaves = jax.tree.leaves(gradient)
    norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf, precision="highest") for leaf in leaves))
    factor = jnp.minimum(1.0, clip / norm)
    return jax.tree.map(lambda leaf: factor * leaf, gradient)


def _key(seed: jax.Array, use: int) -> jax.Array:
    return jax.random.fold_in(jax.random.key(seed), use)
