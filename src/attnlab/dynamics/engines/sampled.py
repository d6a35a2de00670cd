"""Sampled: finite sequences, drawn at each step or once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data.alias import AliasTable
from attnlab.data.classes import SequenceClasses
from attnlab.data.sampling import (
    TABLE_BYTES,
    TokenSampler,
    class_table,
    classes_from_words,
    count_sampler,
    token_sampler,
)
from attnlab.defaults import BATCH_SIZE, LENGTH
from attnlab.dynamics.engines.base import Engine
from attnlab.dynamics.gradient import Rows
from attnlab.dynamics.layout import Layout, Sizes, TokenMap
from attnlab.dynamics.positions import Position, log_position_mass
from attnlab.dynamics.rows import RowSource, sequence_rows
from attnlab.files.errors import InputError, require_whole

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from attnlab.dynamics.models import Model

LONGEST = 2**31 - 1  # tokens are counted in 32 bits
# Steps count from 0 and stay below 2^31: this is no step.
TRAINING_SET = np.uint32(2**32 - 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SampledRows(RowSource):
    """The rows of `Sampled` where order does not matter: token counts."""

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
    """The rows of `Sampled` where order matters: token sequences.

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
            first_exclusive=None if kept.first_exclusive is None else kept.first_exclusive[chosen],
            weight=jnp.full((self.batch_size,), 1.0 / self.batch_size, kept.weight.dtype),
        )


@dataclass(frozen=True)
class Sampled(Engine):
    """Finite sequences: at each step, `batch_size` sequences of `length` tokens (T, query
    included) are drawn, their T - 1 contextual tokens i.i.d. from P(l|m,n).

    With `sequences`, each seed draws a training set of so many sequences once, and batches come
    from it, uniformly with replacement; a batch size of None, or of `sequences`, takes the whole
    set at each step.

    Parameters
    ----------
    length : int, optional
        T, query included.
    batch_size : int, optional
        Sequences in a step.
    sequences : int, optional
        Size of a training set that is drawn once; by default there are always new ones.
    """

    row_kind: ClassVar[Literal["tokens", "slots", "classes"]] = "slots"

    length: int = LENGTH
    batch_size: int | None = BATCH_SIZE
    sequences: int | None = None

    def __post_init__(self) -> None:
        require_whole("length", self.length, 2)
        if self.length > LONGEST:
            raise InputError(f"length: expected at most {LONGEST:,} tokens, got {self.length}")
        if self.sequences is not None:
            require_whole("sequences", self.sequences, 1)
        elif self.batch_size is None:
            raise InputError("batch_size: None takes a whole training set; give `sequences` too")
        if self.batch_size is not None:
            require_whole("batch_size", self.batch_size, 1)

    def source(
        self, classes: SequenceClasses, where: TokenMap, position: Position | None
    ) -> RowSource:
        """Counts of tokens, or sequences where positions count; anew, or from a training set."""
        rows = self.rows_per_step(len(classes))
        size = rows if self.sequences is None else self.sequences
        source: SampledRows | OrderedRows
        if position is None:
            source = _sampled_rows(self.length, classes, where, size)
        else:
            source = OrderedRows(
                class_table(classes),
                token_sampler(classes, self.length),
                where.places(np.arange(classes.vocab_size)).astype(np.int32),
                None if position.learned else position.biases(self.distances),
                size,
            )
        if self.sequences is None:
            return source
        return ReusedRows(source, None if rows == self.sequences else self.batch_size)

    def rows_per_step(self, num_classes: int) -> int:
        """Sequences in a step."""
        size = self.sequences if self.batch_size is None else self.batch_size
        assert size is not None
        return size

    def numbers(self, sizes: Sizes, model: Model) -> dict[str, int]:
        """Numbers that the sequences of a step, or of the training set, take."""
        rows = self.sequences or self.rows_per_step(sizes.classes)
        name = "batch_size" if self.sequences is None else "sequences"
        needed = {name: rows * (sizes.outputs + 2 * model.heads * sizes.shared)}
        if model.distance_bias is not None:
            needed["length"] = 2 * rows * self.length
            if model.distance_bias.learned:
                needed["length"] += rows * model.heads * self.length
        return needed

    def draws(self, classes: SequenceClasses) -> float:
        """One number for each sequence and token of its class."""
        return self.rows_per_step(len(classes)) * classes.num_nonzeros / len(classes)

    def table_bytes(self, classes: SequenceClasses) -> float:
        """For each probability a distribution of up to T counts, for each of up to T tokens."""
        return min(TABLE_BYTES, 4 * classes.num_nonzeros * self.length**2)


def _sampled_rows(
    length: int, classes: SequenceClasses, where: TokenMap, batch_size: int
) -> SampledRows:
    widths = np.diff(classes.offsets)
    empty = int(widths.max())
    slot = np.full((len(classes), where.num_shared), empty, dtype=np.int32)
    slot[classes.class_of_entry, where.places(classes.tokens)] = np.arange(
        classes.num_nonzeros
    ) - np.repeat(classes.offsets[:-1], widths)
    if where.exclusive_each:
        before, exclusive = np.split(
            slot, [where.num_shared - len(classes) * where.exclusive_each], axis=1
        )
        exclusive = np.diagonal(
            exclusive.reshape(len(classes), len(classes), where.exclusive_each)
        ).T
        slot = np.concatenate([before, exclusive], axis=1)
    return SampledRows(class_table(classes), count_sampler(classes, length), slot, batch_size)
