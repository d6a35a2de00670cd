"""Word-level tokens: basic English, and the vocabulary of a text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

UNKNOWN = "<unk>"
# A token is one of the marks . , ( ) ! ? ' or a run of anything else. Quotation marks, colons and
# semicolons part words and are dropped; a line's end is a space like any other.
_TOKEN = re.compile(r"[.,()!?']|[^\s.,()!?'\";:]+")


def split_words(text: str) -> Iterator[str]:
    """Lower-cased basic English tokens: split_words("It's (so).") is it ' s ( so ) ."""
    return (match.group() for match in _TOKEN.finditer(text.lower()))


def count_vocabulary(words: Iterable[str], size: int | None = None) -> tuple[str, ...]:
    """<unk> and then the words, most frequent first, in alphabetical order where equal.

    With `size`, the most frequent words that make, with <unk>, a vocabulary of that size.
    """
    counts = Counter(words)
    counts.pop(UNKNOWN, None)  # WikiText marks its rare words so
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return (UNKNOWN, *ranked[: None if size is None else size - 1])


def number_words(words: Iterable[str], vocabulary: tuple[str, ...]) -> NDArray[np.int32]:
    """Each word's place in the vocabulary, 0 for one that is not in it."""
    places = {word: place for place, word in enumerate(vocabulary)}
    return np.fromiter((places.get(word, 0) for word in words), dtype=np.int32)
