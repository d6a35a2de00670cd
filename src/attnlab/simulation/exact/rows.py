"""Row sources, which draw the rows of a step.

A source first sets aside what a seed keeps for all its steps (`collect`), then draws the rows of
each step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.models.positions import Position
from attnlab.simulation.exact.gradient import Rows, class_rows
from attnlab.simulation.exact.layout import Layout, TokenMap
from attnlab.tasks.classes import sampling
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.classes.sampling import AliasTable, TokenSampler, classes_from_words
from attnlab.tasks.sequences import Sequences

if TYPE_CHECKING:
    from jaxtyping import Float, Int

# Steps count from 0 and stay below 2^31: this is not a step.
TRAINING_SET = np.uint32(2**32 - 1)


class RowSource(ABC):
    """Base of row sources, which draw the rows of a step inside compiled code.

    Subclasses are frozen dataclasses registered as pytrees (`jax.tree_util.register_dataclass`):
    their arrays are stacked with those of other sets of classes, and have no other state.
    """

    def collect(self, layout: Layout, key: jax.Array) -> Any:
        """Return what a seed keeps for all its steps; nothing where each step draws new rows."""
        return ()

    @abstractmethod
    def draw(self, layout: Layout, key: jax.Array, kept: Any) -> Rows:
        """Draw the rows of a step; `key` is derived from (seed, step)."""


def sequence_rows(
    layout: Layout,
    sequence_class: jax.Array,
    log_mass: jax.Array | None,
    places: jax.Array | None = None,
) -> Rows:
    """Return the rows of sequences of these classes, all of one weight.

    Parameters
    ----------
    layout : Layout
        Of the classes.
    sequence_class : jax.Array
        The class of each sequence, (N,).
    log_mass : jax.Array, optional
        The log of their token counts (N, A) by place in the layout; -inf where there is none.
    places : jax.Array, optional
        (N, T - 1) instead, where the order of tokens matters and its bias is trained.
    """
    size = sequence_class.shape[0]
    return Rows(
        shared_log_mass=log_mass,
        exclusive_log_mass=layout.exclusive_log_prob,
        query=layout.query[sequence_class],
        target=layout.target[sequence_class],
        weight=jnp.full((size,), 1.0 / size, layout.prior.dtype),
        places=places,
        first_exclusive=layout.first_exclusive[sequence_class] if layout.exclusive_each else None,
    )


def log_position_mass(places: jax.Array, bias: jax.Array, width: int) -> jax.Array:
    """Return the log of the sum of exp(p) over the positions of each token, (N, width).

    This takes the place of the log of the counts, which it is for p = 0: X^T b, the attention
    that a token gets over all its positions, is proportional to exp(z_l) times this sum.
    """
    top = jax.lax.stop_gradient(jnp.max(bias))
    by_position = jnp.exp(bias - top)[::-1]  # the first token is the farthest
    sequence = jnp.arange(places.shape[0])[:, None]
    empty = jnp.zeros((places.shape[0], width), bias.dtype)
    mass = empty.at[sequence, places].add(by_position)
    # the inner choice keeps the derivative of log 0 out of what is not there
    return jnp.where(mass > 0, jnp.log(jnp.where(mass > 0, mass, 1)) + top, -jnp.inf)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LimitRows(RowSource):
    """Rows for T to infinity: the classes, weighted by how often they came up."""

    prior: AliasTable
    batch_size: int | None = field(metadata={"static": True})

    def draw(self, layout: Layout, key: jax.Array, kept: Any) -> Rows:
        if self.batch_size is None:
            return class_rows(layout, layout.prior)
        drawn = sampling.draw_classes(self.prior, key, (self.batch_size,))
        hits = drawn[:, None] == jnp.arange(layout.prior.shape[0])
        return class_rows(layout, jnp.mean(hits.astype(layout.prior.dtype), axis=0))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SampledRows(RowSource):
    """Rows of sequences where order does not matter: token counts."""

    prior: AliasTable
    counts: Any  # CountSampler or TokenSampler
    # where each token is in its class's support, or past it
    slot: Int[Any, "K A"] | Int[Any, "K slots"]
    batch_size: int = field(metadata={"static": True})

    def draw(self, layout: Layout, key: jax.Array, kept: Any) -> Rows:
        # one call of the generator for everything: it takes long to compile
        words = jax.random.bits(key, (self.batch_size, 1 + self.counts.words), jnp.uint32)
        sequence_class = classes_from_words(self.prior, words[:, 0])
        counts = self.counts.counts(words[:, 1:], sequence_class)
        padded = jnp.pad(counts, ((0, 0), (0, 1)))
        per_token = jnp.take_along_axis(padded, jnp.asarray(self.slot)[sequence_class], axis=1)
        return sequence_rows(layout, sequence_class, jnp.log(per_token.astype(layout.prior.dtype)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OrderedRows(RowSource):
    """Rows of sequences where order matters: token sequences.

    A fixed bias turns a sequence into the mass of its tokens, as counts are without one; a
    learned bias needs the sequence itself.
    """

    prior: AliasTable
    sampler: TokenSampler
    place: Int[Any, " M"]  # place of each token among the shared groups
    bias: Float[Any, " distances"] | None  # None where it is learned
    batch_size: int = field(metadata={"static": True})

    def draw(self, layout: Layout, key: jax.Array, kept: Any) -> Rows:
        words = jax.random.bits(key, (self.batch_size, 1 + self.sampler.words), jnp.uint32)
        sequence_class = classes_from_words(self.prior, words[:, 0])
        places = jnp.asarray(self.place)[self.sampler.sequences(words[:, 1:], sequence_class)]
        if self.bias is None:
            return sequence_rows(layout, sequence_class, None, places)
        bias = jnp.asarray(self.bias, layout.prior.dtype)
        mass = log_position_mass(places, bias, layout.num_shared)
        return sequence_rows(layout, sequence_class, mass)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ReusedRows(RowSource):
    """Rows of a training set that each seed draws once from `source`."""

    source: SampledRows | OrderedRows
    batch_size: int | None = field(metadata={"static": True})  # None: all of them

    def collect(self, layout: Layout, key: jax.Array) -> Rows:
        """Draw the training set of a seed."""
        return self.source.draw(layout, jax.random.fold_in(key, TRAINING_SET), None)

    def draw(self, layout: Layout, key: jax.Array, kept: Any) -> Rows:
        if self.batch_size is None:
            return kept
        chosen = jax.random.randint(key, (self.batch_size,), 0, self.source.batch_size)
        by_row = ("shared_log_mass", "places", "query", "target", "first_exclusive")
        some = {name: of[chosen] for name in by_row if (of := getattr(kept, name)) is not None}
        weight = jnp.full((self.batch_size,), 1.0 / self.batch_size, kept.weight.dtype)
        return kept._replace(**some, weight=weight)


def row_source(
    task: Sequences,
    classes: SequenceClasses,
    where: TokenMap,
    position: Position | None,
    batch_size: int | None,
) -> RowSource:
    """Return the source of the rows of a step.

    Parameters
    ----------
    task : Sequences
        Length and training set.
    classes : SequenceClasses
        One of its sets.
    where : TokenMap
        The place of each token.
    position : Position, optional
        Bias by distance; None where only the counts of tokens matter.
    batch_size : int, optional
        Sequences in a step; None takes all classes, or the whole training set.
    """
    if task.infinite:
        return LimitRows(sampling.class_table(classes), batch_size)
    size = batch_size if task.training_set is None else task.training_set
    assert size is not None
    source: SampledRows | OrderedRows
    if position is None:
        source = _sampled_rows(int(task.length), classes, where, size)
    else:
        source = OrderedRows(
            sampling.class_table(classes),
            sampling.token_sampler(classes, int(task.length)),
            where.places(np.arange(classes.vocab_size)).astype(np.int32),
            None if position.learned else position.biases(task.distances),
            size,
        )
    if task.training_set is None:
        return source
    return ReusedRows(source, None if batch_size in (None, task.training_set) else batch_size)


def _sampled_rows(
    length: int, classes: SequenceClasses, where: TokenMap, batch_size: int
) -> SampledRows:
    widths = np.diff(classes.offsets)
    empty = int(widths.max())
    slot = np.full((len(classes), where.num_shared), empty, dtype=np.int32)
    slot[classes.class_of_entry, where.places(classes.tokens)] = classes.slot_of_entry
    if where.exclusive_each:
        K, S = len(classes), where.exclusive_each
        before, exclusive = np.split(slot, [where.num_shared - K * S], axis=1)
        own = np.diagonal(exclusive.reshape(K, K, S)).T  # a sequence has tokens of its class only
        slot = np.concatenate([before, own], axis=1)
    prior, counts = sampling.class_table(classes), sampling.count_sampler(classes, length)
    return SampledRows(prior, counts, slot, batch_size)
