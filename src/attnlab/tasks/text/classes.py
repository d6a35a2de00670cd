"""Sequence classes estimated from a text: P(l|m,n) of its frequent bigrams (m, n)."""

from __future__ import annotations

import numpy as np

from attnlab.tasks.classes import SequenceClasses
from attnlab.tasks.text.corpus import Corpus
from attnlab.tasks.text.windows import LEFT_OUT, Windows, find_windows


def estimate_classes(
    corpus: Corpus, *, queries: int = 5, following: int = 4, context: int = 35, min_count: int = 10
) -> SequenceClasses:
    """Return the sequence classes of a corpus; `find_windows` says which words are chosen.

    Parameters
    ----------
    corpus : Corpus
        The text.
    queries : int, optional
        Number of query words.
    following : int, optional
        Next words of each.
    context : int, optional
        Words before the pair that count.
    min_count : int, optional
        Rarer pairs and words are left out.

    Returns
    -------
    SequenceClasses
        With words for names.
    """
    return classes_of(
        find_windows(
            corpus, queries=queries, following=following, context=context, min_count=min_count
        )
    )


def classes_of(windows: Windows) -> SequenceClasses:
    """Return the classes that the windows are samples of.

    P(l|m,n) is the share of token l among the kept tokens before (m, n), and the prior the share of
    the bigram among the windows. Nothing is smoothed: a token that never came before a bigram has
    probability 0 there, which is what makes it distinct elsewhere.
    """
    counts = np.zeros((len(windows.query), len(windows.vocabulary)))
    kept = windows.tokens != LEFT_OUT
    owner = np.broadcast_to(windows.sequence_class[:, None], kept.shape)
    np.add.at(counts, (owner[kept], windows.tokens[kept]), 1)
    return SequenceClasses(
        counts / counts.sum(axis=1, keepdims=True),
        windows.query,
        windows.next_token,
        np.bincount(windows.sequence_class) / len(windows),
        names=windows.vocabulary,
        origin=windows.origin,
    )
