"""The paper's model trained on the windows of a text, as they are."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.data import SequenceClasses
from attnlab.dynamics.compiling import XLAS_OWN, compiled
from attnlab.dynamics.gradient import Block, Parameters, Rows, loss, loss_and_gradient
from attnlab.dynamics.layout import Layout, dense_layout
from attnlab.dynamics.stopping import Pace, Stopping, answering
from attnlab.files.errors import InputError
from attnlab.text.windows import Windows


def fit_windows(
    windows: Windows,
    classes: SequenceClasses,
    *,
    eta_y: float,
    eta_z: float,
    steps: int,
    batch_size: int = 128,
    seeds: int = 1,
) -> xr.Dataset:
    """Train Y and Z (Lemma 1, SGD from zero) on batches of real windows, drawn with replacement.

    `Sampled` draws a window's tokens one by one from P(l|m,n); here they come as they stand in the
    text, where words keep company. classes: `classes_of(windows)`.

    Returns dims (seed, sequence_class, query, token): `attention_logits` z at the end;
    `attention`, what the windows of a class give to each token on average; and the `loss` over all
    windows.
    """
    layout, where = dense_layout(classes, symmetric_start=True)
    counts = windows.counts()
    mass = np.zeros((len(windows), where.tokens.size), dtype=np.uint16)
    mass[:, where.position] = counts[:, where.tokens]
    Z, losses = answering(
        lambda stopping: _fit(
            layout.on_device(np.dtype(np.float32)), mass, windows.sequence_class,
            np.arange(seeds), steps, batch_size, (eta_y, eta_z), stopping,
        )
    )  # fmt: skip
    if not np.all(np.isfinite(Z)):
        raise InputError(
            f"eta_y, eta_z: at {eta_y:g} and {eta_z:g} training on the windows leaves the finite "
            "numbers; take smaller ones"
        )
    exclusive = np.zeros((seeds, len(classes), 0))
    start = np.zeros((classes.queries.size, classes.vocab_size))
    logits = where.logits(np.asarray(Z), exclusive, start, classes.query_index)
    attention = _attention(counts, windows.sequence_class, classes, logits)
    return xr.Dataset(
        {
            "attention_logits": (("seed", "query", "token"), logits),
            "attention": (("seed", "sequence_class", "token"), attention),
            "loss": ("seed", np.asarray(losses)),
        },
        {
            "seed": np.arange(seeds),
            "query": classes.queries,
            "token": np.arange(classes.vocab_size),
            "query_token": ("sequence_class", classes.query),
            "next_token": ("sequence_class", classes.next_token),
        },
    )


def _rows(layout: Layout, mass: jax.Array, sequence_class: jax.Array) -> Rows:
    """Windows as rows of Lemma 1: their mass is how often each token occurs."""
    return Rows(
        shared_log_mass=jnp.log(mass.astype(layout.prior.dtype)),
        exclusive_log_mass=layout.exclusive_log_prob,
        query=layout.query[sequence_class],
        target=layout.target[sequence_class],
        weight=jnp.full(mass.shape[0], 1.0 / mass.shape[0]),
    )


def _fit(
    layout: Layout,
    mass: NDArray[np.uint16],  # (N, A) how often each token of the layout occurs in each window
    sequence_class: NDArray[np.int64],  # (N,)
    seeds: NDArray[np.int64],
    steps: int,
    batch_size: int,
    rates: tuple[float, float],
    stopping: Stopping,
) -> tuple[jax.Array, jax.Array]:
    """Z (seed, query, column of the layout) after the last step, and the loss over all windows."""
    rows = layout, jnp.asarray(mass), jnp.asarray(sequence_class)
    state, step, pace = _start(layout, seeds.size), 0, Pace()
    while step < steps and not stopping.asked:
        count, begun = min(steps - step, pace.steps), time.perf_counter()
        state = jax.block_until_ready(_advance(*rows, state, seeds, step, count, batch_size, rates))
        pace.took(count, time.perf_counter() - begun)
        step += count
    return state.Z.shared, _loss(*rows, state)


def _start(layout: Layout, seeds: int) -> Parameters:
    """Zero, for each seed."""
    outputs, tokens = layout.output_multiplicity.shape[0], layout.shared_multiplicity.shape[0]
    tiles = layout.exclusive_log_prob.shape[0]
    shapes = (
        ((tokens, outputs), (tiles, outputs, 0)),
        ((layout.num_queries, tokens), (tiles, 0)),
    )
    return Parameters(
        *(Block(*(np.zeros((seeds, *shape), np.float32) for shape in pair)) for pair in shapes)
    )


@compiled("batch_size", options=XLAS_OWN)
def _advance(
    layout: Layout,
    mass: jax.Array,
    sequence_class: jax.Array,
    state: Parameters,
    seeds: jax.Array,
    first: jax.Array,
    count: jax.Array,
    batch_size: int,
    rates: tuple[jax.Array, jax.Array],
) -> Parameters:
    """`count` steps from step `first` on."""

    def one_seed(seed: jax.Array, state: Parameters) -> Parameters:
        key = jax.random.key(seed)

        def step(i: jax.Array, state: Parameters) -> Parameters:
            drawn = jax.random.randint(jax.random.fold_in(key, i), (batch_size,), 0, len(mass))
            rows = _rows(layout, mass[drawn], sequence_class[drawn])
            _, slope = loss_and_gradient(layout, rows, state)
            return Parameters(
                *(
                    jax.tree.map(lambda w, dw, rate=rate: w - rate * dw, group, slopes)
                    for group, slopes, rate in zip(state, slope, rates, strict=True)
                )
            )

        return jax.lax.fori_loop(first, first + count, step, state)

    return jax.vmap(one_seed)(seeds, state)


@compiled(options=XLAS_OWN)
def _loss(
    layout: Layout, mass: jax.Array, sequence_class: jax.Array, state: Parameters
) -> jax.Array:
    """Of each seed, over all windows."""
    rows = _rows(layout, mass, sequence_class)
    return jax.vmap(lambda of_seed: loss(layout, rows, of_seed))(state)


def _attention(
    counts: NDArray[np.int64],
    sequence_class: NDArray[np.int64],
    classes: SequenceClasses,
    logits: NDArray[Any],
) -> NDArray[np.float64]:
    """(seed, class, token): attention to each token, mean over the windows of each class."""
    attention = np.zeros((len(logits), len(classes), classes.vocab_size))
    for k in range(len(classes)):
        of_class = counts[sequence_class == k]
        for seed, z in enumerate(logits[:, classes.query_index[k]].astype(np.float64)):
            mass = of_class * np.exp(z - z.max())
            attention[seed, k] = (mass / mass.sum(axis=1, keepdims=True)).mean(axis=0)
    return attention
