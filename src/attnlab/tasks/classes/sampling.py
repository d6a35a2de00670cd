"""Exact sampling of sequences: token counts at a cost that does not grow with length.

Without positions a sequence matters only through its token counts. Those are multinomial, and a
multinomial over the S tokens of a class is a binary tree of S - 1 binomials. A binomial of any
size is a sum of independent binomials of the digits of its size, Bin(n, p) = sum over i of
Bin(d_i r^i, p) for n = sum of d_i r^i, and each of those is one look-up in an alias table. So a
sequence of T tokens costs O(S log T) look-ups, with few of them: two digits reach T = 10^4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.tasks.classes.classes import SequenceClasses

WORD_BITS = 32  # of a random word
# Larger digits mean fewer look-ups and larger tables; the tables stay within this.
TABLE_BYTES = 32 * 2**20
DIGIT_BITS = (7, 5, 3, 2, 1)
# A binomial lies outside mean +- (6.7 sd + 16) with probability below 2**-33, the resolution of
# a draw, for every size and p.
WINDOW_SDS, WINDOW_EXTRA = 6.7, 16


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
        """Return one outcome (int32) for each pair of a row and a random uint32."""
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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BinomialDigit:
    """Binomials of the sizes d * unit, d = 0, 1, ..., for each of several probabilities."""

    table: AliasTable  # row = probability * digits + d
    lowest: Any  # (rows,) the count that column 0 stands for
    digits: int = field(metadata={"static": True})
    shift: int = field(metadata={"static": True})  # unit = 2**shift

    def draw(self, size: jax.Array, probability: jax.Array, words: jax.Array) -> jax.Array:
        """Draw the part of Bin(size, p) that this digit of `size` contributes."""
        # Only the highest digit can have a number of values that is no power of two, and there
        # the remainder changes nothing.
        digit = (size >> self.shift) % self.digits
        row = probability * self.digits + digit
        return jnp.asarray(self.lowest)[row] + self.table.draw(row, words)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CountSampler:
    """Draws the token counts of sequences of a fixed length from their classes."""

    node_probability: Any  # (classes, nodes) index of the probability of going left
    binomial: tuple[BinomialDigit, ...]
    depth: int = field(metadata={"static": True})
    width: int = field(metadata={"static": True})  # tokens of the largest support
    draws: int = field(metadata={"static": True})  # contextual tokens per sequence, T - 1

    @property
    def words(self) -> int:
        """Random words that the counts of one sequence take."""
        return len(self.binomial) * ((1 << self.depth) - 1)

    def counts(self, words: jax.Array, sequence_class: jax.Array) -> jax.Array:
        """Return counts (sequence, slot) from random words (sequence, self.words).

        Slot s is the s-th support token of the class.
        """
        nodes = (1 << self.depth) - 1
        words = words.reshape(*sequence_class.shape, len(self.binomial), nodes)
        probability = jnp.asarray(self.node_probability)[sequence_class]
        counts = jnp.full((*sequence_class.shape, 1), self.draws, jnp.int32)
        for level in range(self.depth):
            here = slice((1 << level) - 1, (2 << level) - 1)
            left = sum(
                digit.draw(counts, probability[..., here], words[..., i, here])
                for i, digit in enumerate(self.binomial)
            )
            counts = jnp.stack([left, counts - left], axis=-1).reshape(*sequence_class.shape, -1)
        return counts[..., : self.width]


@lru_cache(maxsize=32)
def count_sampler(classes: SequenceClasses, length: int) -> CountSampler | TokenSampler:
    """Prepare exact multinomial counts for sequences of `length` tokens, query included.

    The cost of a draw is the smaller of the support (a tree of binomials) and of T (its tokens).

    Parameters
    ----------
    classes : SequenceClasses
        The classes that are drawn from.
    length : int
        T, query included.

    Returns
    -------
    sampler
        Draws the token counts of sequences.
    """
    _require_length(length)
    draws = length - 1
    widths = np.diff(classes.offsets)
    if draws < widths.max() // 2:
        return token_sampler(classes, length)
    depth = max(0, int(widths.max() - 1).bit_length())
    leaves = np.zeros((len(classes), 1 << depth))
    leaves[classes.class_of_entry, classes.slot_of_entry] = classes.values
    levels = []
    mass = leaves
    while mass.shape[1] > 1:
        left, right = mass[:, 0::2], mass[:, 1::2]
        total = left + right
        levels.append(np.divide(left, total, out=np.zeros_like(left), where=total > 0))
        mass = total
    going_left = np.concatenate([*reversed(levels), np.zeros((len(classes), 0))], axis=1)
    probabilities, index = np.unique(going_left, return_inverse=True)
    return CountSampler(
        node_probability=index.reshape(going_left.shape).astype(np.int32),
        binomial=_binomial_digits(probabilities, draws) if depth else (),
        depth=depth,
        width=int(widths.max()),
        draws=draws,
    )


def _binomial_digits(p: NDArray[np.float64], largest: int) -> tuple[BinomialDigit, ...]:
    # tables of few different sizes: classes that differ a little share their compiled programs
    p = np.pad(p, (0, (1 << (p.size - 1).bit_length()) - p.size), mode="edge")
    plans = [_digit_plan(p, largest, bits) for bits in DIGIT_BITS]
    fitting = [plan for plan in plans if _plan_bytes(p, plan) <= TABLE_BYTES]
    plan = fitting[0] if fitting else min(plans, key=lambda plan: _plan_bytes(p, plan))
    return tuple(_binomial_digit(p, *digit) for digit in plan)


def _digit_plan(p: NDArray[np.float64], largest: int, bits: int) -> list[tuple[int, int, int]]:
    """(shift, number of digits, window width) from the lowest digit to the highest."""
    plan = []
    for shift in range(0, largest.bit_length(), bits):
        digits = min(1 << bits, (largest >> shift) + 1)
        size = (digits - 1) << shift
        sd = np.sqrt(size * np.max(p * (1 - p), initial=0.0))
        window = min(size + 1, 2 * int(np.ceil(WINDOW_SDS * sd + WINDOW_EXTRA)) + 1)
        plan.append((shift, digits, 1 << (window - 1).bit_length()))
    return plan


def _plan_bytes(p: NDArray[np.float64], plan: list[tuple[int, int, int]]) -> int:
    return sum(4 * p.size * digits * width for _, digits, width in plan)


def _binomial_digit(p: NDArray[np.float64], shift: int, digits: int, width: int) -> BinomialDigit:
    size = np.arange(digits, dtype=np.int64) << shift
    p = p[:, None, None]
    mean = np.rint(size * p[..., 0]).astype(np.int64)
    lowest = np.clip(mean - width // 2, 0, np.maximum(size - width + 1, 0))
    count = lowest[..., None] + np.arange(width)
    with np.errstate(divide="ignore", invalid="ignore"):
        # log of pmf(k) / pmf(k - 1), summed up from the bottom of the window
        ratio = np.log((size[:, None] - count + 1) / count) + np.log(p) - np.log1p(-p)
    inside = count <= size[:, None]
    ratio[..., 0] = 0.0
    log_pmf = np.cumsum(np.where(inside, ratio, 0.0), axis=-1)
    log_pmf = np.where(inside, log_pmf, -np.inf)
    log_pmf = np.where(p == 0, np.where(count == 0, 0.0, -np.inf), log_pmf)
    log_pmf = np.where(p == 1, np.where(count == size[:, None], 0.0, -np.inf), log_pmf)
    pmf = np.exp(log_pmf - log_pmf.max(axis=-1, keepdims=True))
    pmf /= pmf.sum(axis=-1, keepdims=True)
    return BinomialDigit(
        table=alias_table(pmf.reshape(-1, width)),
        lowest=lowest.reshape(-1).astype(np.int32),
        digits=digits,
        shift=shift,
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TokenSampler:
    """Draws plain token sequences, for models in which position matters."""

    table: AliasTable
    tokens: Any  # (classes, width) support of each class
    draws: int = field(metadata={"static": True})

    @property
    def words(self) -> int:
        """Random words that one sequence takes."""
        return self.draws

    def sequences(self, words: jax.Array, sequence_class: jax.Array) -> jax.Array:
        """Return the T - 1 contextual tokens (sequence, position) from random words."""
        slots = self._slots(words, sequence_class)
        return jnp.asarray(self.tokens)[sequence_class[..., None], slots]

    def _slots(self, words: jax.Array, sequence_class: jax.Array) -> jax.Array:
        return self.table.draw(jnp.broadcast_to(sequence_class[..., None], words.shape), words)

    def counts(self, words: jax.Array, sequence_class: jax.Array) -> jax.Array:
        """Return counts (sequence, slot): cheaper than a tree if a support is longer than T."""
        slots = self._slots(words, sequence_class)
        empty = jnp.zeros((*sequence_class.shape, self.tokens.shape[1]), jnp.int32)
        return jax.vmap(lambda row, at: row.at[at].add(1))(empty, slots)


@lru_cache(maxsize=32)
def token_sampler(classes: SequenceClasses, length: int) -> TokenSampler:
    """Prepare token sequences of `length` tokens, query included.

    Parameters
    ----------
    classes : SequenceClasses
        The classes that are drawn from.
    length : int
        T, query included.

    Returns
    -------
    sampler
        Draws the tokens of sequences, in order.
    """
    _require_length(length)
    widths = np.diff(classes.offsets)
    probs = np.zeros((len(classes), int(widths.max())))
    tokens = np.zeros(probs.shape, dtype=np.int64)
    entries = classes.class_of_entry, classes.slot_of_entry
    probs[entries], tokens[entries] = classes.values, classes.tokens
    probs /= probs.sum(axis=1, keepdims=True)
    return TokenSampler(alias_table(probs), tokens.astype(np.int32), length - 1)


@lru_cache(maxsize=32)
def class_table(classes: SequenceClasses) -> AliasTable:
    """Return the alias table of the class prior; draw with row 0.

    Parameters
    ----------
    classes : SequenceClasses
        Whose prior it is.

    Returns
    -------
    AliasTable
        For `draw_classes`.
    """
    return alias_table(classes.prior[None] / classes.prior.sum())


def draw_classes(table: AliasTable, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Draw the classes of independent sequences by their prior.

    Parameters
    ----------
    table : AliasTable
        Of `class_table`.
    key : jax.Array
        JAX's random key.
    shape : tuple
        Of the result.

    Returns
    -------
    array
        Class indices.
    """
    return classes_from_words(table, jax.random.bits(key, shape, jnp.uint32))


def classes_from_words(table: AliasTable, words: jax.Array) -> jax.Array:
    """Return classes from one random word for each sequence."""
    return table.draw(jnp.zeros(words.shape, jnp.int32), words)


def _require_length(length: int) -> None:
    if int(length) != length or not 2 <= length < 2**31:
        raise InputError(
            f"length: expected a whole number from 2 (one contextual token and the query) "
            f"to 2^31 - 1, got {length}"
        )
