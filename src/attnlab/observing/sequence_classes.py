"""Sequence classes of the tokens that a model reads."""

from __future__ import annotations

from typing import Any

from attnlab.data import SequenceClasses
from attnlab.text.classes import estimate_classes
from attnlab.text.ids import corpus_of_ids


def classes(
    ids: Any, *, names: Any = None, queries: int = 5, following: int = 4, context: int = 35,
    min_count: int = 10,
) -> SequenceClasses:  # fmt: skip
    """Estimate the sequence classes of a text from its token ids, for `simulate` and `predict`.

    Parameters
    ----------
    ids : array_like
        Token ids, (sequence, position) or one long sequence, as a model takes them.
    names : tokenizer or sequence of str, optional
        A tokenizer, or the names of tokens in the order of their ids; by default a token is called
        by its id.
    queries : int, optional
        Number of query words.
    following : int, optional
        Number of next words of each.
    context : int, optional
        Number of words before a pair that count.
    min_count : int, optional
        Rarer pairs and words are left out.

    Returns
    -------
    SequenceClasses
        As `attnlab.text.estimate_classes` makes them.

    Examples
    --------
    >>> from attnlab import observing
    >>> ids = [0, 2, 3, 1, 2, 4] * 20
    >>> found = observing.classes(ids, queries=1, following=2, context=3, min_count=2)
    >>> sorted(found.names[i] for i in found.next_token)
    ['token 3', 'token 4']
    """
    corpus, _ = corpus_of_ids(ids, names=names, context=context)
    return estimate_classes(
        corpus, queries=queries, following=following, context=context, min_count=min_count
    )
