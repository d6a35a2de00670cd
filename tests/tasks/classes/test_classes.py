"""SequenceClasses: validation, roles, supports and features, against dense brute force."""

from __future__ import annotations

import dataclasses
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.tasks.classes.classes import ABSENT, COMMON, DISTINCT, SequenceClasses

# Two queries (6, 7). Token 0 is in all classes, 1 in both classes of query 6, 2 in classes 1 and 2
# (one of each query), 3, 4 and 5 in one class each; 8, 9 and 10 are next tokens.
PROBS = np.zeros((3, 11))
PROBS[0, [0, 1, 3]] = [0.5, 0.25, 0.25]
PROBS[1, [0, 1, 2, 4]] = [0.1, 0.2, 0.3, 0.4]
PROBS[2, [0, 2, 5]] = [0.2, 0.2, 0.6]
QUERY, NEXT = [6, 6, 7], [8, 9, 10]


def make(**changes: Any) -> SequenceClasses:
    arguments: dict[str, Any] = dict(probs=PROBS, query=QUERY, next_token=NEXT)
    return SequenceClasses(**(arguments | changes))


def entries(**changes: Any) -> SequenceClasses:
    rows, columns = np.nonzero(PROBS)
    arguments: dict[str, Any] = dict(
        classes=rows,
        tokens=columns,
        values=PROBS[rows, columns],
        query=QUERY,
        next_token=NEXT,
        vocab_size=11,
    )
    return SequenceClasses.from_entries(**(arguments | changes))


def changed(row: int, column: int, value: float) -> np.ndarray:
    probs = PROBS.copy()
    probs[row, column] = value
    return probs


@st.composite
def dense_classes(draw: st.DrawFn) -> SequenceClasses:
    """Any small set of classes."""
    size = draw(st.integers(1, 8))
    num_classes = draw(st.integers(1, min(5, size * size)))
    pairs = draw(
        st.lists(
            st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)),
            min_size=num_classes,
            max_size=num_classes,
            unique=True,
        )
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    probs = rng.random((num_classes, size)) * (rng.random((num_classes, size)) < 0.6)
    probs[np.arange(num_classes), rng.integers(size, size=num_classes)] += 0.5
    probs /= probs.sum(axis=1, keepdims=True)
    query, next_token = zip(*pairs, strict=True)
    return SequenceClasses(probs, query, next_token, rng.dirichlet(np.ones(num_classes)))


# -- making them --------------------------------------------------------------------------------


def test_three_ways_to_give_the_probabilities() -> None:
    mappings = [{int(t): row[t] for t in np.flatnonzero(row)} for row in PROBS]
    dense = make()
    assert dense == make(probs=mappings, vocab_size=11) == entries()
    np.testing.assert_array_equal(dense.probs, PROBS)
    assert len(dense) == dense.num_classes == 3
    assert dense.num_nonzeros == np.count_nonzero(PROBS)
    np.testing.assert_allclose(dense.prior, 1 / 3)


def test_entries_come_in_any_order_and_zeros_are_dropped() -> None:
    rows, columns = np.indices(PROBS.shape).reshape(2, -1)[:, ::-1]
    assert entries(classes=rows, tokens=columns, values=PROBS[rows, columns]) == make()


def test_support_is_sorted_and_matches_its_probabilities() -> None:
    classes = make()
    for k in range(3):
        np.testing.assert_array_equal(classes.support(k), np.flatnonzero(PROBS[k]))
        np.testing.assert_array_equal(classes.probabilities(k), PROBS[k][PROBS[k] > 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(probs=np.zeros((0, 11)), query=[], next_token=[]), "at least one sequence class"),
        (dict(probs=PROBS[0]), "expected an array"),
        (dict(vocab_size=12), "vocab_size: 12 does not match the 11 columns"),
        (dict(probs=[{0: 1.0}] * 3), "vocab_size: needed"),
        (dict(probs=[{0: 1.0}] * 3, vocab_size=0), "vocab_size: expected a positive"),
        (
            dict(probs=[{0: 1.0}, {0: 1.0}, {11: 1.0}], vocab_size=11),
            "token id 11 is outside 0..10",
        ),
        (
            dict(probs=[{0: 1.0}, {0: 1.0}, {-1: 1.0}], vocab_size=11),
            "token id -1 is outside 0..10",
        ),
        (dict(probs=changed(1, 4, np.nan)), "must be finite"),
        (dict(probs=changed(1, 4, np.inf)), "must be finite"),
        (dict(probs=changed(1, 4, -0.4)), "class 1 has a negative probability"),
        (dict(probs=changed(2, 5, 0.7)), "class 2 sums to 1.1; each class must sum to 1"),
        (dict(probs=PROBS * [[1], [0], [1]]), "class 1 has empty support"),
        (dict(query=[6, 6]), "query: expected one token id per class"),
        (dict(query=[[6, 6, 7]]), "query: expected one token id per class"),
        (dict(query=[6.0, 6.0, 7.0]), "query: token ids must be integers"),
        (dict(query=[6, 6, 11]), "query: token id 11 is outside 0..10"),
        (dict(next_token=[8, 9, -1]), "next_token: token id -1 is outside 0..10"),
        (dict(query=[6, 6, 6], next_token=[8, 9, 8]), r"the pair \(6, 8\) is repeated"),
        (dict(prior=[0.5, 0.5]), "prior: expected 3 entries"),
        (dict(prior=[0.5, 0.75, -0.25]), "prior: entries must be finite and non-negative"),
        (dict(prior=[0.5, 0.5, np.nan]), "prior: entries must be finite and non-negative"),
        (dict(prior=[0.5, 0.25, 0.5]), "prior: sums to 1.25"),
        (dict(names=["a", "b"]), "names: expected 11 token names, got 2"),
        (dict(names=["a"] * 11), "names: two tokens have the same name"),
        (dict(names=[*"abcdefghij", "\0"]), r"names\[10\]: '\\x00' has a character that no file"),
        (dict(names=["\ud800", *"abcdefghij"]), r"names\[0\]: '\\ud800' has a character"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_a_token_listed_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="listed twice for one class"):
        SequenceClasses.from_entries(
            [0, 0], [1, 1], [0.5, 0.5], query=[0], next_token=[2], vocab_size=3
        )


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("classes", [0, 1, 3]),
        ("classes", [-1, 1, 2]),
        ("classes", [0, 1]),
        ("tokens", [0.7, 1.2, 2.0]),
    ],
)
def test_bad_entries_are_refused(field: str, values: list[float]) -> None:
    with pytest.raises(ValueError, match="^probs: (class|token)"):
        entries(**{"classes": [0, 1, 2], "tokens": [0, 1, 2], "values": [1.0] * 3, field: values})


def test_rounding_of_a_sum_is_forgiven() -> None:
    assert make(probs=PROBS * (1 + 1e-9)).num_classes == 3


# -- identity -----------------------------------------------------------------------------------


def test_digest_depends_on_what_changes_a_result() -> None:
    classes = make()
    same = make(names=[f"t{i}" for i in range(11)], origin="elsewhere")
    assert classes.digest == same.digest
    assert classes == same
    assert hash(classes) == hash(same)
    wider = np.pad(PROBS, ((0, 0), (0, 1)))
    others = [
        make(probs=PROBS[[1, 0, 2]]),
        make(query=[7, 7, 6]),
        make(next_token=[9, 8, 10]),
        make(prior=[0.2, 0.3, 0.5]),
        make(probs=wider),
    ]
    assert len({classes.digest, *(other.digest for other in others)}) == 6
    assert classes != "something else"


def test_they_do_not_change() -> None:
    classes = make(prior=[0.2, 0.3, 0.5])
    for name in ("query", "next_token", "prior", "tokens", "values", "offsets"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(classes, name)[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        classes.vocab_size = 3  # type: ignore[misc]
    classes.probs[:] = 0
    np.testing.assert_array_equal(classes.probs, PROBS)


def test_they_do_not_share_memory_with_the_input() -> None:
    probs, query, next_token = PROBS.copy(), np.array(QUERY), np.array(NEXT)
    classes = make(probs=probs, query=query, next_token=next_token)
    probs[:], query[:], next_token[:] = 0, 0, 0
    assert classes == make()


def test_they_do_not_share_memory_with_the_prior() -> None:
    prior = np.array([0.2, 0.3, 0.5, 0.0])
    classes = make(prior=prior[:3])
    prior[0] = 0.9
    np.testing.assert_array_equal(classes.prior, [0.2, 0.3, 0.5])
    make(prior=(own := np.array([0.2, 0.3, 0.5])))
    assert own.flags.writeable


@pytest.mark.parametrize("name", ["queries", "query_index", "in_play"])
def test_cached_arrays_do_not_change(name: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        getattr(make(), name)[0] = 0


def test_repr_says_what_they_are() -> None:
    text = repr(make(origin="mine"))
    assert "mine: 3 classes, 2 queries, vocabulary 11, 3 common and 3 distinct" in text


def test_token_names() -> None:
    assert make().token_name(3) == "3"
    assert make(names=list("abcdefghijk")).token_name(3) == "d"


# -- queries and roles --------------------------------------------------------------------------


def test_queries() -> None:
    classes = make(query=[9, 9, 4], next_token=[8, 9, 10])
    np.testing.assert_array_equal(classes.queries, [4, 9])
    np.testing.assert_array_equal(classes.query_index, [1, 1, 0])


def test_psi_is_asked_for_not_built_in() -> None:
    make().require_psi("Theorem 3")
    shared = make(next_token=[8, 9, 8])
    assert make().has_psi
    assert not shared.has_psi
    with pytest.raises(ValueError, match=r"next_token: Theorem 3 needs .* psi\(n\)"):
        shared.require_psi("Theorem 3")


def test_roles() -> None:
    classes = make()
    expected = [COMMON] * 3 + [DISTINCT] * 3 + [ABSENT] * 5
    np.testing.assert_array_equal(classes.roles(), expected)
    np.testing.assert_array_equal(classes.common_tokens(), [0, 1, 2])
    np.testing.assert_array_equal(classes.in_play, [0, 1, 2, 3, 4, 5])
    assert [classes.distinct_tokens(k).tolist() for k in range(3)] == [[3], [4], [5]]


def test_overlap() -> None:
    classes = make()
    assert classes.overlap(0, 1).tolist() == [0, 1]
    assert classes.overlap(2, 1).tolist() == [0, 2]
    apart = SequenceClasses([[1.0, 0.0], [0.0, 1.0]], [0, 0], [0, 1])
    assert apart.overlap(0, 1).size == 0


@given(dense_classes())
def test_roles_and_overlap_match_brute_force(classes: SequenceClasses) -> None:
    P = classes.probs
    np.testing.assert_array_equal(classes.roles(), np.minimum((P > 0).sum(axis=0), 2))
    for first in range(len(P)):
        for second in range(len(P)):
            expected = np.flatnonzero((P[first] > 0) & (P[second] > 0))
            np.testing.assert_array_equal(classes.overlap(first, second), expected)


# -- attention ----------------------------------------------------------------------------------


@given(dense_classes(), st.floats(0, 50), st.integers(0, 2**32 - 1))
def test_attention_matches_dense_brute_force(
    classes: SequenceClasses, scale: float, seed: int
) -> None:
    z = scale * np.random.default_rng(seed).normal(size=(classes.queries.size, classes.vocab_size))
    rows = [np.flatnonzero(classes.queries == m)[0] for m in classes.query]
    unnormalised = classes.probs * np.exp(z[rows] - z[rows].max(axis=1, keepdims=True))
    c = unnormalised / unnormalised.sum(axis=1, keepdims=True)
    k, tokens = classes.class_of_entry, classes.tokens
    np.testing.assert_allclose(classes.attention_entries(z), c[k, tokens], rtol=1e-10, atol=1e-14)


def test_attention_at_zero_logits_is_the_probabilities() -> None:
    classes = make()
    np.testing.assert_allclose(classes.attention_entries(), classes.values, rtol=1e-14)
    zero = classes.attention_entries(np.zeros((2, 11)))
    np.testing.assert_allclose(zero, classes.values, rtol=1e-14)


def test_large_logits_do_not_overflow() -> None:
    z = np.zeros((2, 11))
    z[:, 0] = 1e4
    classes = make()
    for logits in (z, z - 1e5):
        found = classes.attention_entries(logits)
        np.testing.assert_allclose(found, classes.tokens == 0, atol=1e-300)


def test_logits_have_a_row_for_each_query() -> None:
    with pytest.raises(ValueError, match=r"attention_logits: expected shape \(2, 11\)"):
        make().attention_entries(np.zeros((3, 11)))


def test_another_prior_changes_nothing_else() -> None:
    classes = make()
    other = classes.with_prior([0.7] + [0.3 / (len(classes) - 1)] * (len(classes) - 1))
    assert other.prior[0] == 0.7
    assert other != classes
    assert other.with_prior(classes.prior) == classes
    assert other.origin.startswith(f"{classes.origin} with prior 0.7, ")
    with pytest.raises(ValueError, match="^prior: sums to"):
        classes.with_prior(np.full(len(classes), 0.9))


# -- size ---------------------------------------------------------------------------------------


def test_a_million_tokens_are_cheap() -> None:
    size, num_classes = 1_000_000, 20
    tokens = np.arange(size)
    owner = tokens % num_classes
    values = np.full(size, num_classes / size)
    begin = time.thread_time()
    tracemalloc.start()
    classes = SequenceClasses.from_entries(
        owner,
        tokens,
        values,
        query=np.zeros(num_classes, dtype=int),
        next_token=np.arange(num_classes),
        vocab_size=size,
    )
    assert np.all(classes.roles() == DISTINCT)
    assert classes.overlap(0, 1).size == 0
    assert classes.attention_entries().size == size
    assert len(classes.digest) == 64
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6  # a dense P alone would be 160 MB
    assert time.thread_time() - begin < 5
