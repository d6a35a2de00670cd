"""Constructions of sequence classes, one function each.

Every function numbers the tokens in the same order: contextual tokens first, then query tokens,
then next tokens (one per class), then tokens that nothing uses, where a
vocabulary larger than that is asked for. Classes are numbered query after query. `origin` holds
the preset text that makes the same classes again (see :mod:`attnlab.tasks.classes.presets`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from typing import ParamSpec

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError, refuse_if
from attnlab.files.memory import require_memory
from attnlab.tasks.classes.classes import SequenceClasses

NONE = np.empty(0)  # no tokens of a kind

Settings = ParamSpec("Settings")
Construction = Callable[Settings, SequenceClasses]

# A non-zero of P takes: class, token and value, as they come, in order and as they are kept.
ENTRY_BYTES = 120


def preset(
    **bounds: int | tuple[float, float],
) -> Callable[[Construction[Settings]], Construction[Settings]]:
    """Check the arguments of a construction, and name it as the origin of the classes it makes.

    bounds: the least value of a whole number, or the open interval of another. Numbers are written
    the same way, whichever type they were given as.
    """

    def decorate(construction: Construction[Settings]) -> Construction[Settings]:
        signature = inspect.signature(construction)

        @wraps(construction)
        def made(*arguments: Settings.args, **settings: Settings.kwargs) -> SequenceClasses:
            given = signature.bind(*arguments, **settings)
            given.apply_defaults()
            numbers = given.arguments
            for name, value in numbers.items():
                if isinstance(bound := bounds.get(name), int):
                    numbers[name] = how_many(name, value, bound)
                elif bound is not None:
                    numbers[name] = number_between(name, value, *bound)
                elif value is not None and signature.parameters[name].annotation != "float":
                    numbers[name] = whole_number(name, value, 0)
                elif value is not None:
                    numbers[name] = float(value)
            if {"queries", "classes"} <= numbers.keys():
                number_of_queries(numbers["queries"], numbers["classes"])
            classes = construction(*given.args, **given.kwargs)
            return classes.with_origin(
                origin_text(construction.__name__.replace("_", "-"), **numbers)
            )

        return made

    return decorate


def origin_text(preset: str, **parameters: int | float | None) -> str:
    """Return the text of a preset: its name and the parameters that were given."""
    given = [f"{key}={value!r}" for key, value in parameters.items() if value is not None]
    return f"{preset}:{','.join(given)}"


def number_of_queries(queries: int, most: int, noun: str = "classes") -> None:
    """Refuse more queries than there are classes, or other things that each query needs."""
    if how_many("queries", queries, 1) > most:
        raise InputError(f"queries: {queries} queries for {most} {noun}; take at most {most}")


def whole_number(name: str, value: int, at_least: int) -> int:
    """Return `value`; refuse what is not a whole number of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < at_least:
        raise InputError(f"{name}: expected a whole number of at least {at_least}, got {value!r}")
    return int(value)


def how_many(name: str, value: int, at_least: int) -> int:
    """Return the whole number `value`; refuse more entries of P than fit into memory."""
    value = whole_number(name, value, at_least)
    require_entries(name, value)
    return value


def require_entries(name: str, entries: int) -> None:
    """Refuse classes with more non-zeros than memory holds."""
    require_memory(name, ENTRY_BYTES * entries)


def number_between(name: str, value: float, low: float, high: float) -> float:
    """Return `value`; refuse what is outside the open interval (low, high)."""
    if not low < value < high:
        wanted = f"above {low}" if high == math.inf else f"between {low} and {high}"
        raise InputError(f"{name}: expected a finite number {wanted}, got {value}")
    return float(value)


# -- classes that all have the same row: blocks of common, local and distinct tokens -------------


@preset(classes=2, queries=1, common=1, distinct=1)
def family(
    classes: int = 2,
    queries: int = 2,
    common: int = 10,
    distinct: int = 10,
    common_mass: float = 20 / 31,
    lowest: float = 0.1,
    vocab_size: int | None = None,
) -> SequenceClasses:
    """A family of classes with every setting; the defaults are syn-small, but for rounding (1e-17).

    The common tokens share `common_mass` evenly, and the distinct tokens of a class share the
    rest on an even ramp of weights from `lowest` to 1 (with 1 all are equally frequent). Without
    any common mass no two classes overlap.

    Tokens: common; distinct, class after class; the queries; the next tokens; tokens that never
    occur, up to `vocab_size`. Class k has query k * queries // classes.

    Parameters
    ----------
    classes : int, optional
        Number of classes.
    queries : int, optional
        Number of queries.
    common : int, optional
        Common tokens.
    distinct : int, optional
        Distinct tokens of each class.
    common_mass : float, optional
        Probability of all common tokens together.
    lowest : float, optional
        Weight of the rarest distinct token, the most frequent having 1.
    vocab_size : int, optional
        M; by default no more than is used.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> from attnlab.tasks.classes import family
    >>> len(family(classes=4)), family(classes=4).common_tokens().size
    (4, 10)
    """
    refuse_if(not 0 <= common_mass < 1, "common_mass", "a number from 0 to below 1", common_mass)
    refuse_if(not 0 < lowest <= 1, "lowest", "a number above 0 and up to 1", lowest)
    return equal_rows(
        query_of=np.arange(classes) * queries // classes,
        common=share(common_mass, np.ones(common)),
        distinct=share(1 - common_mass, np.linspace(lowest, 1.0, distinct)),
        vocab_size=vocab_size,
    )


@preset(num_classes=2, distinct=1, common_prob=(0, 1))
def single_common(
    num_classes: int = 10,
    distinct: int = 10,
    common_prob: float = 0.1,
    vocab_size: int | None = None,
) -> SequenceClasses:
    """One common token and one query for all classes (Theorem 4, Section 6; Theorem 2b).

    The common token has probability `common_prob` in every class; the `distinct` tokens of a
    class share the rest on the ramp of the synthetic family (0.1 to 1). All classes have the same
    norm, as Section 6 assumes, and f_n . f_n' = common_prob^2 / |P_n|^2 for every pair.

    Token 0 is common; then the distinct tokens, class after class; the query; the next tokens.
    `vocab_size` sets M, which the theorem depends on (Fig. 3: K = 10, M = 1000), by adding tokens
    that never occur. Assumption 2 holds when 6 / sqrt(M) <= f_n . f_n' < 1 / (K (K - 1)).

    Parameters
    ----------
    num_classes : int, optional
        Number of classes.
    distinct : int, optional
        Distinct tokens of each class.
    common_prob : float, optional
        Probability of the common token.
    vocab_size : int, optional
        M; by default no more than is used.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> from attnlab.tasks.classes import single_common
    >>> single_common(num_classes=3).common_tokens()
    array([0])
    """
    return equal_rows(
        query_of=np.zeros(num_classes, dtype=int),
        common=np.array([common_prob]),
        distinct=share(1 - common_prob, ramp(distinct)),
        vocab_size=vocab_size,
    )


@preset(num_classes=2, common=1, distinct=1, common_mass=(0, 1))
def symmetric(
    num_classes: int = 4,
    common: int = 5,
    distinct: int = 10,
    common_mass: float = 0.3,
    vocab_size: int | None = None,
) -> SequenceClasses:
    """Several common tokens in the symmetric case of Corollary 2 (Appendix E).

    Its hypotheses hold to the last bit: (1) one query m_0; (2) distinct token j of a class maps to
    distinct token j of any other, with an equal probability; (3) a common token has the same
    probability rho_l in every class. Hypothesis (4), Z(0) = 0, is up to the run. Assumption 2 holds
    when 6 / sqrt(M) <= f_n . f_n' < 1 / (K (K - 1)); `vocab_size` sets M.

    The common tokens share `common_mass` and the distinct tokens the rest, each on the ramp 0.1 to
    1, so the common tokens differ in rho_l. Tokens: common; distinct, class after class; the query;
    the next tokens; tokens that never occur.

    Parameters
    ----------
    num_classes : int, optional
        Number of classes.
    common : int, optional
        Common tokens.
    distinct : int, optional
        Distinct tokens of each class.
    common_mass : float, optional
        Probability of all common tokens together.
    vocab_size : int, optional
        M; by default no more than is used.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> from attnlab.tasks.classes import symmetric
    >>> from attnlab.papers.scan_and_snap.theory import corollary_2
    >>> corollary_2(symmetric()).holds
    True
    """
    return equal_rows(
        query_of=np.zeros(num_classes, dtype=int),
        common=share(common_mass, ramp(common)),
        distinct=share(1 - common_mass, ramp(distinct)),
        vocab_size=vocab_size,
    )


@preset(num_last=1, next_per_last=2, local=1, distinct=1)
def local_common(
    num_last: int = 2, next_per_last: int = 2, local: int = 10, distinct: int = 10
) -> SequenceClasses:
    """Tokens that are common only within the classes of one query (Section 7, local roles).

    Classes of different queries do not overlap at all: each query comes with `local` tokens shared
    by its `next_per_last` classes (unnormalised weight 1), and each class with `distinct` tokens of
    its own (0.1 to 1). For tokens common to all classes as well, see :func:`syn_medium`.

    Tokens: local common, query after query; distinct, class after class; queries; next tokens.

    Parameters
    ----------
    num_last : int, optional
        Queries.
    next_per_last : int, optional
        Next tokens of each query.
    local : int, optional
        Tokens shared by the classes of one query.
    distinct : int, optional
        Distinct tokens of each class.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> from attnlab.tasks.classes import local_common
    >>> local_common().overlap(0, 2).size  # classes of different queries
    0
    """
    row = share(1.0, np.concatenate([np.ones(local), ramp(distinct)]))
    return equal_rows(
        query_of=even_queries(num_last, next_per_last), local=row[:local], distinct=row[local:]
    )


def equal_rows(
    *,
    query_of: NDArray[np.int64],
    common: NDArray[np.float64] = NONE,
    local: NDArray[np.float64] = NONE,
    distinct: NDArray[np.float64],
    vocab_size: int | None = None,
    origin: str = "custom",
) -> SequenceClasses:
    """Return classes that all have the same row: common, local and distinct probabilities.

    query_of: the number of each class's query, from 0 on.
    """
    num_classes, num_queries = query_of.size, int(query_of.max()) + 1
    require_entries("classes", num_classes * (common.size + local.size + distinct.size))
    k = np.arange(num_classes)
    first_distinct = common.size + num_queries * local.size
    tokens = np.concatenate(
        [
            np.broadcast_to(np.arange(common.size), (num_classes, common.size)),
            common.size + query_of[:, None] * local.size + np.arange(local.size),
            first_distinct + k[:, None] * distinct.size + np.arange(distinct.size),
        ],
        axis=1,
    )
    row = np.concatenate([common, local, distinct])
    first_query = first_distinct + num_classes * distinct.size
    first_next = first_query + num_queries
    used = first_next + num_classes
    if vocab_size is not None:
        vocab_size = whole_number("vocab_size", vocab_size, used)
    return SequenceClasses.from_entries(
        np.repeat(k, row.size),
        tokens.ravel(),
        np.tile(row, num_classes),
        query=first_query + query_of,
        next_token=first_next + k,
        vocab_size=used if vocab_size is None else vocab_size,
        origin=origin,
    )


def even_queries(num_last: int, next_per_last: int) -> NDArray[np.int64]:
    """Return the query of each class, where all queries have equally many."""
    require_entries("num_last, next_per_last", num_last * next_per_last)
    return np.repeat(np.arange(num_last), next_per_last)


def ramp(count: int) -> NDArray[np.float64]:
    return np.linspace(0.1, 1.0, count)


def share(mass: float, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = mass * weights / weights.sum()
    return shares


# -- large vocabularies: Zipf's law, and random rows -----------------------------------------------


@preset(classes=2, common=0, queries=1, exponent=(0, math.inf))
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
    vocab = how_many("vocab", vocab, common + 2 * classes + queries)
    num_distinct = vocab - common - queries - classes
    require_entries("classes, common", classes * common + num_distinct)

    distinct = np.arange(num_distinct)
    owner, turn = distinct % classes, distinct // classes
    sizes = np.bincount(owner, minlength=classes)
    longest = int(sizes[0])
    weights = np.arange(1, common + longest + 1, dtype=np.float64) ** -exponent
    if bands is not None:
        bands = whole_number("bands", bands, classes + 1 + (common > 0))
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


@preset(classes=2, queries=1, concentration=(0, math.inf))
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
    refuse_if(not 0 <= overlap <= 1, "overlap", "a number from 0 to 1", overlap)
    vocab = how_many("vocab", vocab, 2 * classes + queries)

    # s pooled tokens and p own tokens per class: s = overlap (s + p) and s + classes * p = all.
    contextual = vocab - queries - classes
    pool = round(contextual * overlap / (overlap + classes * (1 - overlap)))
    require_entries("classes, vocab", contextual + (classes - 1) * pool)
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
