"""Windows and the classes estimated from them, against counting by hand."""

from collections import Counter

import numpy as np
import pytest
from small_text import ANNOUNCED, announced_text, corpus_of

from attnlab.tasks.classes import read_classes, write_classes
from attnlab.tasks.text import estimate_classes
from attnlab.tasks.text.windows import LEFT_OUT, classes_of, find_windows

ASKED = {"queries": 2, "following": 2, "context": 11, "min_count": 5}


def by_hand(words, query, following, context):
    """The tokens before each place where `query` is followed by `following`."""
    return [
        words[i - context + 1 : i]
        for i in range(context - 1, len(words) - 1)
        if words[i] == query and words[i + 1] == following
    ]


def test_windows_and_probabilities_are_those_counted_by_hand():
    words = announced_text(200)
    windows = find_windows(corpus_of(words), **ASKED)
    classes = classes_of(windows)
    names = np.array(windows.vocabulary)
    found = [(names[m], names[n]) for m, n in zip(classes.query, classes.next_token, strict=True)]
    assert set(found) == set(ANNOUNCED)
    total = 0
    for k, (query, following) in enumerate(found):
        expected = by_hand(words, query, following, ASKED["context"])
        own = windows.tokens[windows.sequence_class == k]
        assert [names[row].tolist() for row in own] == expected  # none is too rare here
        counts = Counter(word for row in expected for word in row)
        for word, count in counts.items():
            share = count / sum(counts.values())
            assert classes.probs[k, windows.vocabulary.index(word)] == pytest.approx(share)
        np.testing.assert_array_equal(
            windows.counts(np.flatnonzero(windows.sequence_class == k)).sum(axis=0),
            [counts[name] for name in names],
        )
        total += len(expected)
        assert classes.prior[k] == pytest.approx(len(expected) / len(windows))
    assert total == len(windows)
    assert classes.has_psi
    assert classes.names == windows.vocabulary


def test_rare_words_and_unk_are_left_out_and_the_rest_renormalised():
    words = announced_text(200)
    words[5::50] = ["<unk>"] * len(words[5::50])
    words[7] = "hapax"
    windows = find_windows(corpus_of(words), **ASKED)
    assert "hapax" not in windows.vocabulary
    assert "<unk>" not in windows.vocabulary
    assert np.any(windows.tokens == LEFT_OUT)
    classes = classes_of(windows)
    np.testing.assert_allclose(classes.probs.sum(axis=1), 1)


def test_each_next_word_serves_one_query_and_marks_are_only_context():
    # "x" follows both queries; "q" is the more frequent one and gets it
    sentence = "q x , q y . q z , p x , p u , p v ! q x"
    corpus = corpus_of(sentence.split() * 20)
    classes = estimate_classes(corpus, queries=2, following=2, context=4, min_count=5)
    names = classes.names
    pairs = [(names[m], names[n]) for m, n in zip(classes.query, classes.next_token, strict=True)]
    assert pairs[0] == ("q", "x")
    assert {query for query, _ in pairs} == {"q", "p"}
    assert ("p", "x") not in pairs
    assert "," in names


def test_a_file_of_estimated_classes_reads_back_equal(tmp_path):
    classes = estimate_classes(corpus_of(announced_text(200)), **ASKED)
    write_classes(classes, tmp_path / "classes.yaml")
    again = read_classes(tmp_path / "classes.yaml")
    assert again == classes
    assert again.names == classes.names


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"queries": 0}, "queries: expected at least 1"),
        ({"following": 1}, "following: expected at least 2"),
        ({"context": 1}, "context: expected at least 2"),
        ({"context": 10**30}, r"context: a window of 10* tokens .* lower it, or take more text"),
        ({"min_count": 0}, "min_count: expected at least 1"),
        ({"queries": 3}, r"small has 2 of the 3 queries .* lower min_count"),
        ({"min_count": 10**6}, "has 0 of the 2 queries"),
    ],
)
def test_what_cannot_be_found_is_said(asked, message):
    with pytest.raises(ValueError, match=message):
        find_windows(corpus_of(announced_text(100)), **{**ASKED, **asked})


def test_a_class_without_any_token_that_is_frequent_enough_is_refused():
    draw = np.random.default_rng(0)
    words = []
    for i in range(60):
        words += [f"w{draw.integers(10**6)}", "q", ("x", "y")[i % 2]]
    with pytest.raises(ValueError, match="min_count: no token before 'q [xy]' is seen 20 times"):
        find_windows(corpus_of(words), queries=1, following=2, context=2, min_count=20)
