"""Classes over a large vocabulary: Zipf's law, and random rows."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.classes.constructions import arguments as check
from attnlab.tasks.classes.constructions.arguments import preset


@preset
def zipf(
    vocab: int,
    classes: int,
    *,
    exponent: float = 1.0,
    common: int = 10,
    bands: int | None = None,
    queries: int = 1,
) -> SequenceClasses:
    """A large vocabulary with Zipf's law, for the shape of natural text and for scale.

    The `common` most frequent tokens occur in every class, as function words do; the others are
    dealt out one by one to the classes, so each class has frequent and rare tokens of its own.
    Within a class, P(l|m,n) is proportional to r^-exponent, r = 1, 2, ... being the token's rank
    among the tokens of that class. With one query, and classes of equal size, the hypotheses of
    Corollary 2 hold.

    `bands` limits the distinct columns of P (the probability profiles) to at most that number,
    the zero column of query and next tokens included: neighbouring ranks form bands that widen
    geometrically, and the tokens of a band all get its mean probability, equal to the last bit.
    Without it, each contextual token has its own profile.

    `vocab` is M, everything included. Tokens: common, by falling frequency; distinct, by falling
    frequency (distinct token j belongs to class j mod `classes`); queries; next tokens. Class k
    has query k * queries // classes.

    Parameters
    ----------
    vocab : int
        M, everything included.
    classes : int
        Number of classes.
    exponent : float, optional
        Of Zipf's law.
    common : int, optional
        Tokens in every class.
    bands : int, optional
        Largest number of different columns of P; by default each token has its own.
    queries : int, optional
        Number of queries.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> from attnlab.tasks.classes import zipf
    >>> zipf(1000, 4).common_tokens().size
    10
    """
    classes = check.how_many("classes", classes, 2)
    common = check.how_many("common", common, 0)
    queries = check.number_of_queries(queries, classes)
    exponent = check.number_between("exponent", exponent, 0, math.inf)
    vocab = check.how_many("vocab", vocab, common + 2 * classes + queries)
    num_distinct = vocab - common - queries - classes
    check.require_entries("classes, common", classes * common + num_distinct)

    distinct = np.arange(num_distinct)
    owner, turn = distinct % classes, distinct // classes
    sizes = np.bincount(owner, minlength=classes)
    longest = int(sizes[0])
    weights = np.arange(1, common + longest + 1, dtype=np.float64) ** -exponent
    if bands is not None:
        bands = check.whole_number("bands", bands, classes + 1 + (common > 0))
        weights = _banded(weights, common, classes, bands)
    sums = np.array([weights[: common + size].sum() for size in sizes])
    if weights[-1] / sums[0] == 0:
        raise InputError(
            f"exponent: {exponent} leaves the rarest tokens with probability 0 in float64; "
            "take a smaller one"
        )
    return SequenceClasses.from_entries(
        np.concatenate([np.repeat(np.arange(classes), common), owner]),
        np.concatenate([np.tile(np.arange(common), classes), common + distinct]),
        np.concatenate(
            [(weights[:common] / sums[:, None]).ravel(), weights[common + turn] / sums[owner]]
        ),
        query=vocab - classes - queries + np.arange(classes) * queries // classes,
        next_token=vocab - classes + np.arange(classes),
        vocab_size=vocab,
    )


@preset
def random(
    vocab: int,
    classes: int,
    *,
    concentration: float = 1.0,
    overlap: float = 0.5,
    queries: int = 1,
    seed: int = 0,
) -> SequenceClasses:
    """Random classes, to look for what holds beyond the paper's settings (where theory breaks).

    Each class draws its row from a symmetric Dirichlet(`concentration`) over its support: small
    values give a few dominant tokens, large ones an even row. A pool of tokens belongs to every
    class, and makes up the fraction `overlap` of each support (to the nearest token): 0 gives
    disjoint supports, 1 gives all classes the same support. Supports together use every contextual
    token. The same arguments give the same classes.

    `vocab` is M, everything included. Tokens: the shared pool; own tokens, class after class;
    queries; next tokens. Class k has query k * queries // classes.

    Parameters
    ----------
    vocab : int
        M, everything included.
    classes : int
        Number of classes.
    concentration : float, optional
        Of the Dirichlet distribution that rows are drawn from.
    overlap : float, optional
        Share of each class's tokens that belong to all classes.
    queries : int, optional
        Number of queries.
    seed : int, optional
        Of the draw.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> from attnlab.tasks.classes import random
    >>> random(100, 4, seed=1) == random(100, 4, seed=1)
    True
    """
    classes = check.how_many("classes", classes, 2)
    queries = check.number_of_queries(queries, classes)
    concentration = check.number_between("concentration", concentration, 0, math.inf)
    overlap = float(overlap)
    if not 0 <= overlap <= 1:
        raise InputError(f"overlap: expected a number from 0 to 1, got {overlap}")
    seed = check.whole_number("seed", seed, 0)
    vocab = check.how_many("vocab", vocab, 2 * classes + queries)

    # s pooled tokens and p own tokens per class: s = overlap (s + p) and s + classes * p = all.
    contextual = vocab - queries - classes
    pool = round(contextual * overlap / (overlap + classes * (1 - overlap)))
    check.require_entries("classes, vocab", contextual + (classes - 1) * pool)
    bounds = pool + (contextual - pool) * np.arange(classes + 1) // classes
    rng = np.random.default_rng(seed)
    supports, rows = [], []
    for start, stop in pairwise(bounds):
        support = np.concatenate([np.arange(pool), np.arange(start, stop)])
        row = rng.dirichlet(np.full(support.size, concentration))
        supports.append(support)
        # A Dirichlet draw is positive, but a small concentration can underflow float64 to 0, which
        # would take the token out of the support that `overlap` promises.
        rows.append(np.maximum(row, np.finfo(np.float64).tiny))
    return SequenceClasses.from_entries(
        np.repeat(np.arange(classes), [support.size for support in supports]),
        np.concatenate(supports),
        np.concatenate(rows),
        query=contextual + np.arange(classes) * queries // classes,
        next_token=vocab - classes + np.arange(classes),
        vocab_size=vocab,
    )


def _banded(
    weights: NDArray[np.float64], common: int, classes: int, bands: int
) -> NDArray[np.float64]:
    """Replace each weight by the mean of its band, within a total of `bands` profiles."""
    # A band of common tokens costs one profile, a band of distinct tokens one for each class, and
    # the zero column one. Common tokens that need less than an even share leave the rest.
    common_bands = min(common, (bands - 1) // (classes + 1))
    longest = weights.size - common
    distinct_bands = min(longest, (bands - 1 - common_bands) // classes)
    starts = np.array(
        _band_starts(0, common, common_bands) + _band_starts(common, weights.size, distinct_bands)
    )
    widths = np.diff(starts, append=weights.size)
    return np.repeat(np.add.reduceat(weights, starts) / widths, widths)


def _band_starts(first: int, stop: int, bands: int) -> list[int]:
    """Cut positions first..stop-1 into `bands` bands that widen geometrically in rank."""
    starts = [first] if bands else []
    for left in range(bands, 1, -1):
        rank = starts[-1] + 1
        widened = math.ceil(rank * ((stop + 1) / rank) ** (1 / left)) - 1
        starts.append(min(max(widened, starts[-1] + 1), stop - left + 1))
    return starts
