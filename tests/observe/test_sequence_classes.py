"""Sequence classes of token ids, on a text of four announced bigrams."""

import numpy as np
import pytest
from small_text import announced_text

from attnlab.files.errors import InputError
from attnlab.observing import classes
from attnlab.tasks.text import estimate_classes
from attnlab.tasks.text.corpus import corpus_of_ids

WORDS = announced_text(300)
NAMES = tuple(dict.fromkeys(WORDS))
TEXT = np.array([NAMES.index(word) for word in WORDS])
CHOICE = {"queries": 2, "following": 2, "context": 11, "min_count": 3}


def test_classes_are_those_of_the_bigrams_by_name():
    found = classes(TEXT.reshape(60, -1), names=NAMES, **CHOICE)
    pairs = {
        (found.names[m], found.names[n]) for m, n in zip(found.query, found.next_token, strict=True)
    }
    assert pairs == {("the", "cat"), ("the", "dog"), ("a", "ship"), ("a", "train")}
    by_number = classes(TEXT, **CHOICE)
    assert f"token {NAMES.index('cat')}" in by_number.names


def test_no_window_goes_over_the_end_of_a_sequence():
    sentences = TEXT.reshape(-1, 12)[:, ::-1].copy()  # next word and query begin each sequence
    with pytest.raises(InputError, match="0 of the 2 queries"):
        classes(sentences, names=NAMES, **CHOICE)


def test_they_are_those_of_the_corpus():
    corpus, id_of = corpus_of_ids(TEXT, names=NAMES, context=11)
    assert estimate_classes(corpus, **CHOICE) == classes(TEXT, names=NAMES, **CHOICE)
    assert id_of == {name: i for i, name in enumerate(NAMES)}


def test_names_are_made_unique_and_unknown_tokens_left_out():
    corpus, id_of = corpus_of_ids([0, 1, 2], names=("a", "a", "<unk>"), context=1)
    assert id_of == {"a": 0, "a (1)": 1, "<unk>": 2}
    assert corpus.train.tolist() == [1, 2, 0, 0]


def test_values_that_are_not_token_ids_are_refused():
    with pytest.raises(InputError, match="token ids"):
        classes(np.zeros((2, 3)))
    with pytest.raises(InputError, match="names: 2 names"):
        classes(TEXT, names=("a", "b"))
