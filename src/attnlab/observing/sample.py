"""Which rows of a call are measured: those that see enough keys, all of them or some of each part.

Sampled rows are stratified: the rows of a sequence, in their order, are cut into parts of equal
length, and two are drawn from each. Two, because one alone would not say how rows of a part differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import require_whole
from attnlab.measures.arrays import Array, namespace

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

OF_EACH_PART = 2
ALL = slice(None)
_Chosen = tuple[NDArray[Any], NDArray[Any]]  # rows of one sequence, and how many each stands for


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of every sequence; sequences with fewer are filled up with rows of weight 0.

    index: the queries. weight: how many rows of the sequence each stands for; more than 1 where
    it was drawn, and then the two of a part are neighbours here.
    """

    index: Int[Any, "batch row"]
    weight: Float[Any, "batch row"]

    def __len__(self) -> int:
        return self.index.shape[1]

    @property
    def factor(self) -> Float[Any, "batch part"]:
        """What the squared difference of the two rows of a part is multiplied with.

        size^2 (1 - 2/size) s^2 / 2 with s^2 = (first - second)^2 / 2; a part of 2 rows or fewer is
        all here.
        """
        size = self.weight[:, 0::2] + self.weight[:, 1::2]
        return np.maximum(0.0, size * (size - OF_EACH_PART) / 4)

    def cut(self, sequences: slice, rows: slice = ALL) -> Rows:
        """These of them."""
        return Rows(self.index[sequences, rows], self.weight[sequences, rows])


def choose_rows(eligible: Bool[Any, "batch query"], rows: int | None, *, seed: int = 0) -> Rows:
    """All eligible rows, or about `rows` of them in all, as many of each sequence."""
    if rows is None:
        return _filled([_all_of(np.flatnonzero(one)) for one in eligible])
    require_whole("rows", rows, OF_EACH_PART)
    require_whole("seed", seed, 0)
    rng = np.random.default_rng(seed)  # the same rows at every step
    parts = max(1, rows // len(eligible) // OF_EACH_PART)
    return _filled([_stratified(np.flatnonzero(one), parts, rng) for one in eligible])


def spread_rows(eligible: Bool[Any, "batch query"], rows: int) -> Rows:
    """So many eligible rows of each sequence, evenly spread, the last among them."""
    chosen = []
    for one in eligible:
        there = np.flatnonzero(one)
        at = np.linspace(0, there.size - 1, min(rows, there.size) + 1)[1:]
        chosen.append(_all_of(there[np.unique(at.round().astype(int))]))
    return _filled(chosen)


def last_rows(eligible: Bool[Any, "batch query"], rows: int, *, before: int = 0) -> Rows:
    """The last eligible rows of each sequence, but for the last `before` of them."""
    chosen = []
    for one in eligible:
        there = np.flatnonzero(one)
        end = max(0, there.size - before)
        chosen.append(_all_of(there[max(0, end - rows) : end]))
    return _filled(chosen)


def weighted_mean(
    number: Float[Array, "*layer batch head row statistic"],
    weight: Float[Array, "#batch #head row"],
    factor: Float[Array, "batch 1 part 1"] | None,
) -> tuple[
    Float[Array, "*layer batch head statistic"], Float[Array, "*layer batch head statistic"]
]:
    """The mean over a sequence's rows that these estimate, and its standard error.

    number: in float64. weight: how many rows each stands for, 0 where it does not count. factor:
    `Rows.factor`; None where all rows are here, and then the error is 0.
    Rows that do not count, and values that are NaN, are in neither. The variance is that of a
    stratified sample without replacement (Cochran 1977, Eq. 5.14), linearised because the number
    of rows that count may be an estimate too.
    """
    xp = namespace(number)
    weights = weight[..., None] * ~xp.isnan(number)
    number = xp.where(weights > 0, number, 0.0)  # rows that fill up may be inf
    total = xp.sum(weights, axis=-2)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = xp.sum(weights * number, axis=-2) / total  # NaN where no row counts
    if factor is None:
        return mean, mean * 0.0
    residual = xp.where(weights > 0, number - mean[..., None, :], 0.0)
    first, second = (residual[..., i::2, :] for i in range(OF_EACH_PART))
    variance = xp.sum(factor * (first - second) ** 2, axis=-2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return mean, xp.sqrt(variance) / total


def _stratified(there: NDArray[Any], parts: int, rng: np.random.Generator) -> _Chosen:
    if there.size <= OF_EACH_PART * parts:
        return there, np.ones(there.size)
    # each part has at least two rows
    ends = np.linspace(0, there.size, parts + 1).round().astype(int)
    sizes = np.diff(ends)
    first, second = rng.integers(0, sizes), rng.integers(0, sizes - 1)
    second += second >= first  # another one
    drawn = ends[:-1, None] + np.sort(np.stack([first, second], axis=1), axis=1)
    return there[drawn.ravel()], np.repeat(sizes / OF_EACH_PART, OF_EACH_PART)


def _all_of(index: NDArray[Any]) -> _Chosen:
    return index, np.ones(index.size)


def _filled(chosen: list[_Chosen]) -> Rows:
    """Sequences side by side, an even number of rows."""
    longest = max(index.size for index, _ in chosen)
    shape = (len(chosen), longest + longest % OF_EACH_PART)
    index, weight = np.zeros(shape, np.int64), np.zeros(shape)
    for b, (at, stands_for) in enumerate(chosen):
        index[b, : at.size], weight[b, : at.size] = at, stands_for
    return Rows(index, weight)
