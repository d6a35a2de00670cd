"""Classes that all have the same row: blocks of common, local and distinct tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.classes.constructions import arguments as check
from attnlab.tasks.classes.constructions.arguments import preset

NONE = np.empty(0)  # no tokens of a kind


@preset
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
    classes = check.how_many("classes", classes, 2)
    queries = check.number_of_queries(queries, classes)
    common = check.how_many("common", common, 1)
    distinct = check.how_many("distinct", distinct, 1)
    common_mass, lowest = float(common_mass), float(lowest)
    if not 0 <= common_mass < 1:
        raise InputError(f"common_mass: expected a number from 0 to below 1, got {common_mass}")
    if not 0 < lowest <= 1:
        raise InputError(f"lowest: expected a number above 0 and up to 1, got {lowest}")
    return equal_rows(
        query_of=np.arange(classes) * queries // classes,
        common=share(common_mass, np.ones(common)),
        distinct=share(1 - common_mass, np.linspace(lowest, 1.0, distinct)),
        vocab_size=vocab_size,
    )


@preset
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
    num_classes = check.how_many("num_classes", num_classes, 2)
    distinct = check.how_many("distinct", distinct, 1)
    common_prob = check.number_between("common_prob", common_prob, 0, 1)
    return equal_rows(
        query_of=np.zeros(num_classes, dtype=int),
        common=np.array([common_prob]),
        distinct=share(1 - common_prob, ramp(distinct)),
        vocab_size=vocab_size,
    )


@preset
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
    num_classes = check.how_many("num_classes", num_classes, 2)
    common = check.how_many("common", common, 1)
    distinct = check.how_many("distinct", distinct, 1)
    common_mass = check.number_between("common_mass", common_mass, 0, 1)
    return equal_rows(
        query_of=np.zeros(num_classes, dtype=int),
        common=share(common_mass, ramp(common)),
        distinct=share(1 - common_mass, ramp(distinct)),
        vocab_size=vocab_size,
    )


@preset
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
    num_last = check.how_many("num_last", num_last, 1)
    next_per_last = check.how_many("next_per_last", next_per_last, 2)
    local = check.how_many("local", local, 1)
    distinct = check.how_many("distinct", distinct, 1)
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
    check.require_entries("classes", num_classes * (common.size + local.size + distinct.size))
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
        vocab_size = check.whole_number("vocab_size", vocab_size, used)
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
    check.require_entries("num_last, next_per_last", num_last * next_per_last)
    return np.repeat(np.arange(num_last), next_per_last)


def ramp(count: int) -> NDArray[np.float64]:
    return np.linspace(0.1, 1.0, count)


def share(mass: float, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = mass * weights / weights.sum()
    return shares
