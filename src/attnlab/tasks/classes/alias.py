"""Alias tables: exact draws from many finite distributions, one table look-up each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

WORD_BITS = 32


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AliasTable:
    """Walker's alias method for many distributions over 2**bits outcomes, in integers.

    A draw takes one random 32-bit word: its top bits pick a column, the rest decide between that
    column and the column's alias. The threshold and the alias share one 32-bit entry, so a draw
    is one gather. Every outcome has its probability to within 2**-32.
    """

    words: Any  # (rows * 2**bits,) uint32: threshold in the high bits, alias in the low
    bits: int = field(metadata={"static": True})

    def draw(self, row: jax.Array, random_words: jax.Array) -> jax.Array:
        """One outcome (int32) for each pair of a row and a random uint32."""
        column = random_words >> np.uint32(WORD_BITS - self.bits)
        fraction = random_words << np.uint32(self.bits)
        entry = jnp.asarray(self.words)[(row << self.bits) + column.astype(jnp.int32)]
        mask = np.uint32((1 << self.bits) - 1)
        return jnp.where(fraction < (entry & ~mask), column, entry & mask).astype(jnp.int32)


def alias_table(probs: NDArray[np.float64]) -> AliasTable:
    """Build one table for the rows of `probs` (rows, outcomes), each summing to 1."""
    rows, outcomes = probs.shape
    bits = max(1, (outcomes - 1).bit_length())
    weights = np.zeros((rows, 1 << bits))
    weights[:, :outcomes] = probs * (1 << bits)
    threshold, alias = _pair_columns(weights)
    # Thresholds are rounded to the resolution that the packed entry leaves them.
    steps = np.floor(threshold * 2.0 ** (WORD_BITS - bits) + 0.5)
    full = steps >= 2.0 ** (WORD_BITS - bits)
    alias[full] = np.broadcast_to(np.arange(1 << bits), alias.shape)[full]
    steps[full] = 0
    words = (steps.astype(np.uint64) << np.uint64(bits)).astype(np.uint32) | alias.astype(np.uint32)
    return AliasTable(words.reshape(-1), bits)


def _pair_columns(weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Give each column a threshold and an alias, all rows at once.

    Columns are taken in increasing order of weight. Each pass settles one column per row: the
    lightest open one, topped up to 1 by the current heavy column, or that heavy column itself
    once its remainder has fallen to 1 or less.
    """
    rows, width = weights.shape
    order = np.argsort(weights, axis=1, kind="stable")
    weight = np.take_along_axis(weights, order, axis=1)
    threshold = np.ones((rows, width))
    alias = np.broadcast_to(np.arange(width), (rows, width)).copy()
    light = np.zeros(rows, dtype=np.int64)
    heavy = np.minimum((weight < 1.0).sum(axis=1), width - 1)
    first_heavy = heavy.copy()
    remainder = weight[np.arange(rows), heavy]
    every = np.arange(rows)
    for _ in range(width - 1):
        has_light = light < first_heavy
        give = has_light & (remainder > 1.0)
        close = ~give & (heavy < width - 1)  # the heavy column is spent: the next one tops it up
        settled = np.where(give, light, heavy)
        mass = np.where(give, weight[every, np.minimum(light, width - 1)], remainder)
        donor = np.where(give, heavy, np.minimum(heavy + 1, width - 1))
        active = give | close
        threshold[every[active], settled[active]] = mass[active]
        alias[every[active], settled[active]] = donor[active]
        next_remainder = np.where(give, remainder, weight[every, donor]) - (1.0 - mass)
        remainder = np.where(active, next_remainder, remainder)
        light = light + give
        heavy = np.where(close, heavy + 1, heavy)
    out_threshold = np.empty_like(threshold)
    out_alias = np.empty_like(alias)
    np.put_along_axis(out_threshold, order, np.clip(threshold, 0.0, 1.0), axis=1)
    np.put_along_axis(out_alias, order, np.take_along_axis(order, alias, axis=1), axis=1)
    return out_threshold, out_alias
