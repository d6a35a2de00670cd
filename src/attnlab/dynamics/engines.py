"""Engines: where the gradient comes from at each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.alias import AliasTable
from attnlab.data.classes import SequenceClasses
from attnlab.data.sampling import (
    class_table,
    classes_from_words,
    count_sampler,
    draw_classes,
)
from attnlab.dynamics.gradient import Rows, class_rows
from attnlab.dynamics.layout import Layout


@dataclass(frozen=True)
class Sampled:
    """Finite sequences: at each step, `batch_size` sequences of `length` tokens (T, query
    included) are drawn, their T - 1 contextual tokens i.i.d. from P(l|m,n)."""

    length: int = 128
    batch_size: int = 128

    def __post_init__(self) -> None:
        _require_whole("length", self.length, 2)
        _require_whole("batch_size", self.batch_size, 1)


@dataclass(frozen=True)
class Limit:
    """T to infinity (Lemma 2): a sequence is its class. Each step averages over `batch_size`
    classes drawn by their prior, or takes the expected gradient (None)."""

    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            _require_whole("batch_size", self.batch_size, 1)


@dataclass(frozen=True)
class Flow:
    """Continuous time: the gradient flow of the expected loss for T to infinity.

    Time is measured in expected-gradient steps: dY/dt = -eta_y dL/dY, dZ/dt = -eta_z dL/dZ, so
    one unit of time is one small step of ``Limit()``. Integrated adaptively; `rtol` and `atol`
    default to what the dtype can carry.
    """

    rtol: float | None = None
    atol: float | None = None


Engine = Sampled | Limit | Flow


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SampledRows:
    """Draws the rows of one step of `Sampled`."""

    prior: AliasTable
    counts: Any  # CountSampler or TokenSampler
    slot: jax.Array  # (K, A) slot of each token in the support of each class, or the empty one
    batch_size: int = field(metadata={"static": True})

    def draw(self, layout: Layout, key: jax.Array) -> Rows:
        # one call of the generator for everything: it takes long to compile
        words = jax.random.bits(key, (self.batch_size, 1 + self.counts.words), jnp.uint32)
        sequence_class = classes_from_words(self.prior, words[:, 0])
        counts = self.counts.counts(words[:, 1:], sequence_class)
        padded = jnp.pad(counts, ((0, 0), (0, 1)))
        per_token = jnp.take_along_axis(padded, self.slot[sequence_class], axis=1)
        dtype = layout.prior.dtype
        return Rows(
            shared_log_mass=jnp.log(per_token.astype(dtype)),
            own_log_mass=layout.own_log_prob,
            query=layout.query[sequence_class],
            target=layout.target[sequence_class],
            weight=jnp.full((self.batch_size,), 1.0 / self.batch_size, dtype),
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LimitRows:
    """Draws the rows of one step of `Limit`: the classes, weighted by how often they came up."""

    prior: AliasTable
    batch_size: int | None = field(metadata={"static": True})

    def draw(self, layout: Layout, key: jax.Array) -> Rows:
        if self.batch_size is None:
            return class_rows(layout, layout.prior)
        drawn = draw_classes(self.prior, key, (self.batch_size,))
        hits = drawn[:, None] == jnp.arange(layout.prior.shape[0])
        return class_rows(layout, jnp.mean(hits.astype(layout.prior.dtype), axis=0))


def row_source(engine: Sampled | Limit, classes: SequenceClasses) -> SampledRows | LimitRows:
    """Prepare the draws of an engine; `Sampled` goes with the dense layout."""
    if isinstance(engine, Limit):
        return LimitRows(class_table(classes), engine.batch_size)
    sampler = count_sampler(classes, engine.length)
    widths = np.diff(classes.offsets)
    empty = int(widths.max())
    slot = np.full((len(classes), classes.in_play.size), empty, dtype=np.int32)
    column = np.searchsorted(classes.in_play, classes.tokens)
    slot[classes.class_of_entry, column] = np.arange(classes.num_nonzeros) - np.repeat(
        classes.offsets[:-1], widths
    )
    return SampledRows(class_table(classes), sampler, jnp.asarray(slot), engine.batch_size)


def _require_whole(field_name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or int(value) != value or value < least:
        raise ValueError(f"{field_name}: expected a whole number of at least {least}, got {value}")
