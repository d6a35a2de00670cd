"""The compiled programs of training: begin and advance. Runs are a leading axis, vectorised."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from attnlab.dynamics.compiling import SMALL, XLAS_OWN, compiled
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.program import each
from attnlab.text.loss import aligned_cross_entropy, cross_entropy
from attnlab.text.model import Params, TransformerSpec, decoder, encode, init
from attnlab.text.streams import window

_START, _DROPOUT = 0, 1  # the uses of a seed
PAIRS_PER_WORD = 100  # of tokens, compared in the time that a row of the embedding takes


class State(NamedTuple):
    """Runs between two steps. The random numbers of a step are a function of seed and step."""

    params: Params
    memory: optax.OptState
    loss_sum: jax.Array  # of the training loss since the last record
    diverged: jax.Array  # the first step with a loss that is not finite, or -1


@compiled("spec", "optimizer", "vocab_size", options={"cpu": SMALL})
def begin(
    spec: TransformerSpec, optimizer: Optimizer, vocab_size: int, rates: jax.Array, seeds: jax.Array
) -> State:
    """Every run at step 0."""

    def one_run(rate: jax.Array, seed: jax.Array) -> State:
        params = init(spec, vocab_size, _key(seed, _START))
        memory = optimizer.transform(rate).init(params)
        return State(params, memory, jnp.float32(0), jnp.int32(-1))

    return jax.vmap(one_run)(rates, seeds)


@compiled("spec", "optimizer", "clip", "logits", options=XLAS_OWN, donate="state")
def advance(
    spec: TransformerSpec, optimizer: Optimizer, clip: float, logits: str | None, state: State,
    rates: jax.Array, seeds: jax.Array, streams: jax.Array, first: jax.Array, count: jax.Array,
) -> State:  # fmt: skip
    """`count` steps of every run, from step `first` on; all runs read the same text.

    logits: their type where they are aligned for an accelerator, None where they are not.
    """
    tokens_read, vocab_size = streams.shape[0] * spec.context, state.params["embedding"].shape[1]
    rows_only = (
        optimizer.keeps_still and not spec.tied and tokens_read**2 <= PAIRS_PER_WORD * vocab_size
    )

    def one_run(step: jax.Array, state: State, rate: jax.Array, seed: jax.Array) -> State:
        params, memory, loss_sum, diverged = state
        tokens, targets = window(streams, step, spec.context)
        near, places = _rows_read(params, tokens) if rows_only else (params, tokens)
        key = jax.random.fold_in(_key(seed, _DROPOUT), step)
        loss, gradient = jax.value_and_grad(_loss)(near, spec, logits, places, targets, key)
        summed = _summed(gradient, tokens) if rows_only else gradient
        # optax's clipping chooses for each entry between two values, which is one pass more over
        # the gradients of embedding and decoder; a factor is part of the update that follows.
        factor = jnp.minimum(1.0, clip / _norm(gradient, summed))
        summed = jax.tree.map(lambda leaf: factor * leaf, summed)
        updates, memory = optimizer.transform(rate).update(summed, memory, near)
        near = optax.apply_updates(near, updates)
        fails = (diverged < 0) & ~jnp.isfinite(loss)
        return State(
            _rows_written(params, near, tokens) if rows_only else near,
            memory,
            loss_sum + loss,
            jnp.where(fails, step, diverged),
        )

    def one_step(step: jax.Array, state: State) -> State:
        return each(partial(one_run, step))(state, rates, seeds)

    return jax.lax.fori_loop(first, first + count, one_step, state)


@compiled("optimizer", options=XLAS_OWN)
def forget(optimizer: Optimizer, state: State, rates: jax.Array) -> State:
    """Every run with nothing in its optimiser's memory."""
    memory = jax.vmap(lambda rate, of: optimizer.transform(rate).init(of))(rates, state.params)
    return state._replace(memory=memory)


def _loss(
    params: Params, spec: TransformerSpec, logits: str | None,
    tokens: jax.Array, targets: jax.Array, key: jax.Array,
) -> jax.Array:  # fmt: skip
    x, _ = encode(params, spec, tokens, key)
    x, weights, bias = x.reshape(-1, spec.dim), decoder(params), params["decoder_bias"]
    if logits is None:
        return cross_entropy(x, weights, bias, targets.reshape(-1))
    return aligned_cross_entropy(x, weights, bias, targets.reshape(-1), logits)


# A short window has few of the words, and where the optimiser keeps still what has no gradient,
# only their rows of the embedding change. Then a step reads a row for each token, changes it and
# writes it back, and makes no pass over the whole table. The rows of a word that comes twice are
# equal: each has the gradient of both, and it does not matter which of them is written last.


def _rows_read(params: Params, tokens: jax.Array) -> tuple[Params, jax.Array]:
    """The parameters with one row of the embedding for each token, and the tokens' places there."""
    rows = params["embedding"][tokens.reshape(-1)]
    return {**params, "embedding": rows}, jnp.arange(tokens.size).reshape(tokens.shape)


def _summed(gradient: Params, tokens: jax.Array) -> Params:
    """The gradient in which each row of a word is the sum of its rows."""
    words = tokens.reshape(-1)
    same = (words[:, None] == words).astype(jnp.float32)
    return {**gradient, "embedding": same @ gradient["embedding"]}


def _rows_written(params: Params, near: Params, tokens: jax.Array) -> Params:
    table = params["embedding"].at[tokens.reshape(-1)].set(near["embedding"])
    return {**near, "embedding": table}


def _norm(gradient: Params, summed: Params) -> jax.Array:
    """The length of the gradient; of the rows g_i of a word, |sum g_i|^2 = sum_i g_i . sum g_i."""
    squares = jax.tree.map(lambda a, b: jnp.vdot(a, b, precision="highest"), gradient, summed)
    return jnp.sqrt(sum(jax.tree.leaves(squares)))


def _key(seed: jax.Array, use: int) -> jax.Array:
    return jax.random.fold_in(jax.random.key(seed), use)
