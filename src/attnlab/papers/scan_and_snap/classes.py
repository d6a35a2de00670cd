"""Sequence classes of the experiments of "Scan and Snap": Syn-Small and Syn-Medium."""

import numpy as np

from attnlab.files.errors import InputError
from attnlab.tasks.classes import SequenceClasses
from attnlab.tasks.classes.constructions import equal_rows, even_queries, preset, ramp, share

# The paper's synthetic family: 10 common tokens, and 10 distinct tokens for each class.
COMMON = 10
DISTINCT = 10


def syn_small() -> SequenceClasses:
    """Syn-Small (Figs. 4 and 5): two queries, one class each, 10 common tokens. K = 2, M = 34.

    Tokens 0-9 are common, 10-19 distinct to class 0, 20-29 distinct to class 1, 30-31 queries,
    32-33 next tokens. The paper's "M = 30" counts the contextual tokens only.

    Returns
    -------
    SequenceClasses
        Two classes.

    Examples
    --------
    >>> from attnlab.papers.scan_and_snap.classes import syn_small
    >>> len(syn_small()), syn_small().vocab_size
    (2, 34)
    """
    return _synthetic(num_last=2, next_per_last=1, local_common=0, origin="syn-small")


@preset(num_last=1, next_per_last=1)
def syn_medium(num_last: int = 3, next_per_last: int = 2, local_common: int = 0) -> SequenceClasses:
    """Syn-Medium (Figs. 6, 11 and 12): K = num_last * next_per_last classes.

    Unnormalised, each common token weighs 1 and the 10 distinct tokens of a class weigh 0.1 to 1
    in even steps, so the last of them is the most frequent.

    Tokens, in this order: 10 common; `local_common` for each query, shared by the classes of that
    query only and weighing 1, query after query; 10 distinct for each class, class after class;
    the queries; the next tokens. So M = 10 + 10 K + num_last + K, plus num_last * local_common.

    Parameters
    ----------
    num_last : int, optional
        Queries.
    next_per_last : int, optional
        Next tokens of each query.
    local_common : int, optional
        Tokens shared by the classes of one query only, for each query.

    Returns
    -------
    SequenceClasses
        The classes.

    Examples
    --------
    >>> from attnlab.papers.scan_and_snap.classes import syn_medium
    >>> len(syn_medium(num_last=3)), syn_medium(num_last=3).vocab_size
    (6, 79)
    """
    if num_last * next_per_last < 2:
        raise InputError(
            "num_last, next_per_last: their product must be at least 2; "
            "with one class no token is common"
        )
    if local_common and next_per_last < 2:
        raise InputError(
            f"local_common: {local_common} local common tokens need next_per_last to be at least "
            "2; with one class per query they would be distinct"
        )
    return _synthetic(num_last, next_per_last, local_common)


def _synthetic(
    num_last: int, next_per_last: int, local_common: int, origin: str = "custom"
) -> SequenceClasses:
    flat = np.ones(COMMON + local_common)
    row = share(1.0, np.concatenate([flat, ramp(DISTINCT)]))
    return equal_rows(
        query_of=even_queries(num_last, next_per_last),
        common=row[:COMMON],
        local=row[COMMON : flat.size],
        distinct=row[flat.size :],
        origin=origin,
    )
