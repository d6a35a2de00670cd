"""Windows: the sequences of a text, sorted by the bigram that they end in, and their classes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError, refuse_if
from attnlab.tasks.classes import SequenceClasses
from attnlab.tasks.text.corpus import Corpus

LEFT_OUT = -1  # in place of a contextual token that is too rare to count


@dataclass(frozen=True, eq=False)
class Windows:
    """Every position of a text where a query m is followed by n, for some bigrams (m, n).

    vocabulary: the tokens that are kept, most frequent first. query, next_token: m and n of each
    class, as places in the vocabulary. tokens: (window, T - 1), the tokens before the query, and
    LEFT_OUT for those that are not kept. sequence_class: (window,), which bigram it ends in.
    """

    origin: str
    vocabulary: tuple[str, ...]
    query: NDArray[np.int64]
    next_token: NDArray[np.int64]
    tokens: NDArray[np.int32]
    sequence_class: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def length(self) -> int:
        """T, the query included."""
        return self.tokens.shape[1] + 1

    def counts(self, windows: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int64]:
        """Return the counts of each token of the vocabulary in some of the windows."""
        tokens = self.tokens[windows]
        counts = np.zeros((len(tokens), len(self.vocabulary) + 1), dtype=np.int64)
        np.add.at(counts, (np.arange(len(tokens))[:, None], tokens), 1)
        return counts[:, :-1]  # LEFT_OUT, which is -1, fell into the last column


def find_windows(
    corpus: Corpus, *, queries: int = 5, following: int = 4, context: int = 35, min_count: int = 10
) -> Windows:
    """Return the windows of the training part that end in its most frequent bigrams of words.

    queries: number of query tokens m, the most frequent ones that qualify. following: number of
        next tokens n for each, its most frequent ones. A next token serves one query only, the more
        frequent one, so that n determines m (the paper's m = psi(n)).
    context: T, the query included; places with fewer than T - 1 tokens before them are not used.
    min_count: a bigram, or a contextual token, is used if its count is at least this: a bigram in
        the text, a token in all windows together (a token near several queries counts for each).

    Queries and next tokens are words, which have a letter; marks of punctuation are context only.
    <unk> stands for rare words and is left out as they are.
    """
    for name, value, least in (
        ("queries", queries, 1),
        ("following", following, 2),
        ("context", context, 2),
        ("min_count", min_count, 1),
    ):
        refuse_if(value < least, name, f"at least {least}", value)
    text = corpus.train.astype(np.int64)
    if context >= len(text):
        raise InputError(
            f"context: a window of {context} tokens and one after it do not fit into the "
            f"{len(text):,} tokens of {corpus.name}; lower it, or take more text"
        )
    last = np.arange(context - 1, len(text) - 1)  # a whole window before it, and a token after
    bigrams = text[last] * corpus.vocab_size + text[last + 1]
    chosen = _choose(bigrams, corpus, queries, following, min_count)
    order = np.argsort(chosen)
    place = np.minimum(np.searchsorted(chosen[order], bigrams), len(chosen) - 1)
    found = chosen[order][place] == bigrams
    sequence_class = order[place[found]]
    tokens = text[last[found][:, None] + np.arange(1 - context, 0)]

    seen = np.bincount(tokens.ravel(), minlength=corpus.vocab_size)
    kept = seen >= min_count
    if corpus.unknown is not None:
        kept[corpus.unknown] = False
    ends = np.stack(np.divmod(chosen, corpus.vocab_size))
    named = np.union1d(np.flatnonzero(kept), ends)
    renumbered = np.full(corpus.vocab_size, LEFT_OUT, dtype=np.int32)
    renumbered[named] = np.arange(named.size)
    tokens = np.where(kept, renumbered, LEFT_OUT)[tokens]
    usable = (tokens != LEFT_OUT).any(axis=1)
    left = np.bincount(sequence_class[usable], minlength=len(chosen))
    if not left.all():
        raise InputError(
            f"min_count: no token before {corpus.decode(ends[:, np.argmin(left)])!r} is seen "
            f"{min_count} times; lower it, or raise context"
        )
    return Windows(
        origin=f"{corpus.name}, {queries} x {following} bigrams",
        vocabulary=tuple(corpus.vocabulary[token] for token in named),
        query=np.searchsorted(named, ends[0]),
        next_token=np.searchsorted(named, ends[1]),
        tokens=tokens[usable].astype(np.int32),
        sequence_class=sequence_class[usable],
    )


def _choose(
    bigrams: NDArray[np.int64], corpus: Corpus, queries: int, following: int, min_count: int
) -> NDArray[np.int64]:
    """Return the bigrams to use, as m V + n: query by query, each with its next tokens in turn."""
    V = corpus.vocab_size
    is_word = np.array([any(map(str.isalpha, corpus.decode([token]))) for token in range(V)])
    if corpus.unknown is not None:
        is_word[corpus.unknown] = False
    pairs, counts = np.unique(bigrams, return_counts=True)
    use = (counts >= min_count) & is_word[pairs // V] & is_word[pairs % V]
    pairs, counts = pairs[use], counts[use]
    pairs = pairs[np.argsort(-counts, kind="stable")]
    often = np.bincount(bigrams // V, minlength=V)
    chosen: list[int] = []
    taken: set[int] = set()
    for query in np.argsort(-often, kind="stable"):
        if len(chosen) == queries * following or often[query] < following * min_count:
            break
        free = [int(pair) for pair in pairs[pairs // V == query] if pair % V not in taken]
        if len(free) >= following:
            chosen += free[:following]
            taken |= {pair % V for pair in free[:following]}
    if len(chosen) < queries * following:
        raise InputError(
            f"corpus: {corpus.name} has {len(chosen) // following} of the {queries} queries that "
            f"were asked for, with {following} next words each that are seen {min_count} times; "
            "ask for fewer, lower min_count, or take more text"
        )
    return np.array(chosen)


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
