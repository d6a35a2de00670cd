"""Row sources: what draws the rows of a step, for each engine.

A source first sets aside what a seed keeps for all its steps (`collect`), then draws the rows of
each step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.alias import AliasTable
from attnlab.data.classes import SequenceClasses
from attnlab.data.sampling import (
    TokenSampler,
    class_table,
    classes_from_words,
    count_sampler,
    draw_classes,
    token_sampler,
)
from attnlab.dynamics.engines import Limit, Sampled
from attnlab.dynamics.gradient import Rows, class_rows
from attnlab.dynamics.layout import Layout, TokenMap
from attnlab.dynamics.positions import LearnedPosition, Position, log_position_mass

# Steps count from 0 and stay below 2^31: this is no step.
TRAINING_SET = np.uint32(2**32 - 1)


class Fresh:
    """Rows that are drawn anew at each step."""

    def collect(self, layout: Layout, key: jax.Array) -> None:
        """Nothing is kept."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LimitRows(Fresh):
    """The rows of `Limit`: the classes, weighted by how often they came up."""

    prior: AliasTable
    batch_size: int | None = field(metadata={"static": True})

    def draw(self, layout: Layout, key: jax.Array, kept: Any) -> Rows:
        if self.batch_size is None:
            return class_rows(layout, layout.prior)
        drawn = draw_classes(self.prior, key, (self.batch_size,))
        hits = drawn[:, None] == jnp.arange(layout.prior.shape[0])
        return class_rows(layout, jnp.mean(hits.astype(layout.prior.dtype), axis=0))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SampledRows(Fresh):
    """The rows of `Sampled` where order does not matter: token counts."""

    prior: AliasTable
    counts: Any  # CountSampler or TokenSampler
    slot: Any  # (K, A) or (K, C + S): where each token is in its class's support, or past it
    batch_size: int = field(metadata={"static": True})

    def draw(self, layout: Layout, key: jax.Array, kept: Any) -> Rows:
        # one call of the generator for everything: it takes long to compile
        words = jax.random.bits(key, (self.batch_size, 1 + self.counts.words), jnp.uint32)
        sequence_class = classes_from_words(self.prior, words[:, 0])
        counts = self.counts.counts(words[:, 1:], sequence_class)
        padded = jnp.pad(counts, ((0, 0), (0, 1)))
        per_token = jnp.take_along_axis(padded, jnp.asarray(self.slot)[sequence_class], axis=1)
        return _sequence_rows(
            layout, sequence_class, jnp.log(per_token.astype(layout.prior.dtype)), None
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OrderedRows(Fresh):
    """The rows of `Sampled` where order matters: token sequences.

    A fixed bias turns a sequence into the mass of its tokens, as counts are without one; a
    learned bias needs the sequence itself.
    """

    prior: AliasTable
    sampler: TokenSampler
    place: Any  # (M,) place of each token among the shared groups
    bias: Any  # (T - 1,) by distance; None where it is learned
    batch_size: int = field(metadata={"static": True})

    def draw(self, layout: Layout, key: jax.Array, kept: Any) -> Rows:
        words = jax.random.bits(key, (self.batch_size, 1 + self.sampler.words), jnp.uint32)
        sequence_class = classes_from_words(self.prior, words[:, 0])
        places = jnp.asarray(self.place)[self.sampler.sequences(words[:, 1:], sequence_class)]
        if self.bias is None:
            return _sequence_rows(layout, sequence_class, None, places)
        bias = jnp.asarray(self.bias, layout.prior.dtype)
        mass = log_position_mass(places, bias, layout.shared_multiplicity.shape[0])
        return _sequence_rows(layout, sequence_class, mass, None)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ReusedRows:
    """The rows of a training set that each seed draws once from `source`."""

    source: SampledRows | OrderedRows
    batch_size: int | None = field(metadata={"static": True})  # None: all of them

    def collect(self, layout: Layout, key: jax.Array) -> Rows:
        """The training set of the seed of `key`."""
        return self.source.draw(layout, jax.random.fold_in(key, TRAINING_SET), None)

    def draw(self, layout: Layout, key: jax.Array, kept: Any) -> Rows:
        if self.batch_size is None:
            return kept
        chosen = jax.random.randint(key, (self.batch_size,), 0, self.source.batch_size)
        mass, places = kept.shared_log_mass, kept.places
        return kept._replace(
            shared_log_mass=None if mass is None else mass[chosen],
            places=None if places is None else places[chosen],
            query=kept.query[chosen],
            target=kept.target[chosen],
            first_own=None if kept.first_own is None else kept.first_own[chosen],
            weight=jnp.full((self.batch_size,), 1.0 / self.batch_size, kept.weight.dtype),
        )


RowSource = LimitRows | SampledRows | OrderedRows | ReusedRows


def row_source(
    engine: Sampled | Limit,
    classes: SequenceClasses,
    where: TokenMap,
    position: Position | None = None,
) -> RowSource:
    """Prepare the draws of an engine; `Sampled` goes with the dense layout that `where` maps."""
    if isinstance(engine, Limit):
        return LimitRows(class_table(classes), engine.batch_size)
    size = engine.rows if engine.sequences is None else engine.sequences
    source: SampledRows | OrderedRows
    if position is None:
        source = _sampled_rows(engine.length, classes, where, size)
    else:
        learned = isinstance(position, LearnedPosition)
        source = OrderedRows(
            class_table(classes),
            token_sampler(classes, engine.length),
            where.places(np.arange(classes.vocab_size)).astype(np.int32),
            None if learned else position.biases(engine.length - 1),
            size,
        )
    if engine.sequences is None:
        return source
    return ReusedRows(source, None if engine.rows == engine.sequences else engine.batch_size)


def _sampled_rows(
    length: int, classes: SequenceClasses, where: TokenMap, batch_size: int
) -> SampledRows:
    widths = np.diff(classes.offsets)
    empty = int(widths.max())
    slot = np.full((len(classes), where.num_shared), empty, dtype=np.int32)
    slot[classes.class_of_entry, where.places(classes.tokens)] = np.arange(
        classes.num_nonzeros
    ) - np.repeat(classes.offsets[:-1], widths)
    if where.own_each:
        before, own = np.split(slot, [where.num_shared - len(classes) * where.own_each], axis=1)
        own = np.diagonal(own.reshape(len(classes), len(classes), where.own_each)).T
        slot = np.concatenate([before, own], axis=1)
    return SampledRows(class_table(classes), count_sampler(classes, length), slot, batch_size)


def _sequence_rows(
    layout: Layout, sequence_class: jax.Array, log_mass: jax.Array | None, places: jax.Array | None
) -> Rows:
    size = sequence_class.shape[0]
    return Rows(
        shared_log_mass=log_mass,
        own_log_mass=layout.own_log_prob,
        query=layout.query[sequence_class],
        target=layout.target[sequence_class],
        weight=jnp.full((size,), 1.0 / size, layout.prior.dtype),
        places=places,
        first_own=layout.first_own[sequence_class] if layout.own_each else None,
    )
