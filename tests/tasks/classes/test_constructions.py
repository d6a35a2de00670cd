"""Named constructions: what the paper's settings ask for, to the last token."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.formulas import unit_attention
from attnlab.papers.joma.classes import joma_toy
from attnlab.papers.scan_and_snap.classes import syn_medium, syn_small
from attnlab.papers.scan_and_snap.theory import local_roles
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.classes.constructions import (
    family,
    local_common,
    random,
    single_common,
    symmetric,
    zipf,
)
from attnlab.tasks.classes.presets import from_preset

EXAMPLES: list[Callable[[], SequenceClasses]] = [
    syn_small,
    syn_medium,
    lambda: syn_medium(num_last=5, next_per_last=3, local_common=4),
    family,
    lambda: family(5, 3, common=1, distinct=4, common_mass=0.1, lowest=1.0, vocab_size=40),
    single_common,
    lambda: single_common(num_classes=3, distinct=1, common_prob=1 / 3, vocab_size=1000),
    symmetric,
    lambda: symmetric(2, 1, 1, common_mass=0.1, vocab_size=50),
    local_common,
    lambda: local_common(3, 4, local=1, distinct=2),
    lambda: zipf(500, 4),
    lambda: zipf(500, 4, exponent=1.1, common=0, bands=20, queries=3),
    lambda: random(100, 5),
    lambda: random(100, 5, concentration=0.3, overlap=0.1, queries=2, seed=7),
    joma_toy,
    lambda: joma_toy(7, queries=3, seed=2),
]


def test_the_family_contains_the_settings_of_the_paper() -> None:
    for knobs, setting in (
        (family(), syn_small()),
        (family(6, 3), syn_medium(num_last=3)),
        (
            family(10, 1, common=1, common_mass=0.1, vocab_size=1000),
            single_common(10, common_prob=0.1, vocab_size=1000),
        ),
    ):
        np.testing.assert_allclose(knobs.probs, setting.probs, rtol=1e-14)
        np.testing.assert_array_equal(knobs.query, setting.query)
        np.testing.assert_array_equal(knobs.next_token, setting.next_token)


def test_a_family_without_common_mass_does_not_overlap() -> None:
    assert off_diagonal(family(3, 1, common_mass=0.0)).max() == 0.0
    for bad in ({"common_mass": 1.0}, {"lowest": 0.0}, {"queries": 3}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            family(**bad)


def profiles(classes: SequenceClasses) -> int:
    """The number of different columns of P."""
    return int(np.unique(classes.probs, axis=1).shape[1])


def off_diagonal(classes: SequenceClasses) -> np.ndarray:
    F = unit_attention(classes)
    return (F @ F.T)[~np.eye(len(F), dtype=bool)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_origin_makes_equal_classes_again(example: Callable[[], SequenceClasses]) -> None:
    classes = example()
    again = from_preset(classes.origin)
    assert again == classes
    assert again.origin == classes.origin


def test_numpy_numbers_are_written_as_plain_ones() -> None:
    classes = single_common(np.int64(3), common_prob=np.float64(0.2))  # type: ignore[arg-type]
    assert classes.origin == "single-common:num_classes=3,distinct=10,common_prob=0.2"


@pytest.mark.parametrize("example", EXAMPLES)
def test_tokens_are_contextual_then_queries_then_next(
    example: Callable[[], SequenceClasses],
) -> None:
    classes = example()
    num_queries, last = classes.queries.size, int(classes.in_play[-1])
    np.testing.assert_array_equal(classes.in_play, np.arange(last + 1))
    np.testing.assert_array_equal(classes.queries, last + 1 + np.arange(num_queries))
    np.testing.assert_array_equal(
        classes.next_token, last + 1 + num_queries + np.arange(len(classes))
    )
    assert np.all(np.diff(classes.query) >= 0)
    assert classes.has_psi


# -- the synthetic family -----------------------------------------------------------------------


@pytest.mark.parametrize("num_last", [1, 3, 5, 10])
@pytest.mark.parametrize("next_per_last", [2, 3])
def test_synthetic_family(num_last: int, next_per_last: int) -> None:
    classes = syn_medium(num_last, next_per_last)
    K = num_last * next_per_last
    assert len(classes) == K
    assert classes.vocab_size == 10 + 10 * K + num_last + K
    expected = np.zeros((K, classes.vocab_size))
    for k in range(K):
        expected[k, :10] = 1
        for j in range(10):
            expected[k, 10 + 10 * k + j] = 0.1 + 0.1 * j
        assert classes.query[k] == 10 + 10 * K + k // next_per_last
        assert classes.next_token[k] == 10 + 10 * K + num_last + k
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(classes.probs, expected, rtol=1e-13)
    np.testing.assert_array_equal(classes.prior, 1 / K)


def test_syn_small_is_the_smallest_of_the_family() -> None:
    classes = syn_small()
    assert classes == syn_medium(num_last=2, next_per_last=1)
    assert classes.vocab_size == 34
    assert classes.in_play.size == 30
    assert classes.origin == "syn-small"


def test_synthetic_local_common_tokens() -> None:
    classes = syn_medium(num_last=3, next_per_last=2, local_common=4)
    assert classes.vocab_size == 10 + 12 + 60 + 3 + 6
    row = np.concatenate([np.ones(14), np.linspace(0.1, 1, 10)])
    for k in range(6):
        np.testing.assert_allclose(classes.probabilities(k), row / row.sum(), rtol=1e-13)
        own = 10 + 4 * (k // 2) + np.arange(4)
        np.testing.assert_array_equal(classes.support(k)[10:14], own)
        np.testing.assert_array_equal(classes.support(k)[14:], 22 + 10 * k + np.arange(10))


# -- theorems -----------------------------------------------------------------------------------


def test_single_common() -> None:
    classes = single_common(num_classes=6, distinct=4, common_prob=0.2, vocab_size=300)
    assert classes.vocab_size == 300
    assert classes.queries.size == 1
    np.testing.assert_array_equal(classes.common_tokens(), [0])
    np.testing.assert_array_equal(classes.probs[:, 0], 0.2)
    for k in range(6):
        assert classes.distinct_tokens(k).tolist() == list(range(1 + 4 * k, 5 + 4 * k))
    norm = np.linalg.norm(classes.probs[0])
    np.testing.assert_allclose(off_diagonal(classes), 0.2**2 / norm**2, rtol=1e-12)


@pytest.mark.parametrize(
    "classes",
    [
        single_common(num_classes=3, vocab_size=10_000),
        symmetric(num_classes=3, common_mass=0.2, vocab_size=10_000),
    ],
)
def test_assumption_2_can_be_met(classes: SequenceClasses) -> None:
    K, M = len(classes), classes.vocab_size
    F = unit_attention(classes)
    eigenvalues = np.abs(np.linalg.eigvalsh(F @ F.T - np.eye(K)))
    assert eigenvalues.max() < 1 / K
    assert eigenvalues.min() >= 6 / np.sqrt(M)
    rho = off_diagonal(classes)
    assert np.all((6 / np.sqrt(M) <= rho) & (rho < 1 / (K * (K - 1))))


@given(
    num_classes=st.integers(2, 6),
    common=st.integers(1, 6),
    distinct=st.integers(1, 6),
    common_mass=st.floats(0.01, 0.99),
)
def test_symmetric_meets_corollary_2_exactly(
    num_classes: int, common: int, distinct: int, common_mass: float
) -> None:
    classes = symmetric(num_classes, common, distinct, common_mass)
    P = classes.probs
    assert classes.queries.size == 1  # (1)
    own = np.array([P[k, classes.distinct_tokens(k)] for k in range(num_classes)])
    assert own.shape == (num_classes, distinct)
    assert np.all(own == own[0])  # (2)
    shared = P[:, classes.common_tokens()]
    assert shared.shape == (num_classes, common)
    assert np.all(shared == shared[0])  # (3)
    assert np.unique(shared[0]).size == common
    np.testing.assert_allclose(shared.sum(axis=1), common_mass, rtol=1e-12)
    rho = off_diagonal(classes)
    assert np.all((rho > 0) & (rho < 1))
    assert np.ptp(rho) < 1e-14


def test_local_common_overlaps_only_within_a_query() -> None:
    classes = local_common(num_last=3, next_per_last=2, local=4, distinct=5)
    for first in range(6):
        for second in range(first):
            shared = classes.overlap(first, second)
            m = first // 2
            expected = 4 * m + np.arange(4) if m == second // 2 else np.arange(0)
            np.testing.assert_array_equal(shared, expected)
    common, distinct = local_roles(classes)
    assert np.count_nonzero(common) == 12
    assert np.count_nonzero(distinct) == 30
    row = np.concatenate([np.ones(4), np.linspace(0.1, 1, 5)])
    np.testing.assert_allclose(classes.probabilities(3), row / row.sum(), rtol=1e-13)


# -- zipf ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [0.7, 1.0, 2.0])
@pytest.mark.parametrize("common", [0, 5])
def test_zipf_rows_follow_the_law(exponent: float, common: int) -> None:
    classes = zipf(300, 7, exponent=exponent, common=common, queries=2)
    assert classes.vocab_size == 300
    assert classes.queries.size == 2
    assert classes.in_play.size == 300 - 2 - 7
    np.testing.assert_array_equal(classes.common_tokens(), np.arange(common))
    for k in range(7):
        row = classes.probabilities(k)
        law = np.arange(1, row.size + 1.0) ** -exponent
        np.testing.assert_allclose(row, law / law.sum(), rtol=1e-12)
        own = np.arange(common + k, 300 - 9, 7)
        np.testing.assert_array_equal(classes.distinct_tokens(k), own)


def test_zipf_with_equal_classes_is_symmetric() -> None:
    P = zipf(10 + 5 * 8 + 1 + 5, 5).probs
    assert np.all(P[:, :10] == P[0, :10])
    assert np.all(P[:, 10:50].max(axis=0).reshape(8, 5) == P[0, 10:50:5, None])


def test_zipf_without_bands_gives_every_token_its_own_profile() -> None:
    classes = zipf(2000, 7, common=20)
    assert profiles(classes) == classes.in_play.size + 1


@given(
    vocab=st.integers(60, 400),
    classes=st.integers(2, 6),
    common=st.integers(0, 12),
    extra=st.integers(0, 200),
    exponent=st.floats(0.3, 3),
)
def test_zipf_bands_bound_the_profiles(
    vocab: int, classes: int, common: int, extra: int, exponent: float
) -> None:
    bands = classes + 2 + extra
    banded = zipf(vocab, classes, common=common, bands=bands, exponent=exponent)
    full = zipf(vocab, classes, common=common, exponent=exponent)
    assert profiles(banded) <= bands
    assert np.array_equal(banded.tokens, full.tokens)  # the same supports
    for k in range(classes):
        row = banded.probabilities(k)
        assert np.all(np.diff(row[:common]) <= 0)
        assert np.all(np.diff(row[common:]) <= 0)


def test_zipf_bands_use_the_budget_and_stay_close() -> None:
    banded, full = zipf(20_000, 5, bands=1000), zipf(20_000, 5)
    assert np.unique(np.stack([banded.class_of_entry, banded.values]), axis=1).shape[1] >= 980
    assert np.abs(np.log(banded.values / full.values)).max() < 0.05
    np.testing.assert_allclose(
        banded.values[banded.offsets[:-1]], full.values[full.offsets[:-1]], rtol=1e-4
    )


def test_zipf_with_bands_to_spare_is_exact() -> None:
    banded, full = zipf(200, 3, bands=10_000), zipf(200, 3)
    np.testing.assert_allclose(banded.probs, full.probs, rtol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("bands", [None, 10_000])
def test_zipf_of_a_million_tokens_is_cheap(bands: int | None) -> None:
    begin = time.thread_time()
    classes = zipf(1_000_000, 20, bands=bands)
    assert time.thread_time() - begin < 2
    assert classes.num_nonzeros == 1_000_000 - 21 + 19 * 10
    own = classes.tokens >= 10
    pairs = np.stack([classes.class_of_entry[own].astype(float), classes.values[own]])
    count = (
        np.unique(pairs, axis=1).shape[1] + np.unique(classes.probs[:, :10], axis=1).shape[1] + 1
    )
    assert count <= 10_000 if bands else count == 1_000_000 - 21 + 1
    if bands:
        assert count > 9_900


def test_zipf_of_a_million_tokens_takes_little_memory() -> None:
    tracemalloc.start()
    zipf(1_000_000, 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6


# -- random -------------------------------------------------------------------------------------


def test_random_is_reproducible() -> None:
    assert random(60, 4, seed=3) == random(60, 4, seed=3)
    assert random(60, 4, seed=3) != random(60, 4, seed=4)


@given(
    vocab=st.integers(20, 300),
    classes=st.integers(2, 6),
    overlap=st.floats(0, 1),
    concentration=st.floats(0.001, 100),
    seed=st.integers(0, 10_000),
)
def test_random_controls_the_overlap(
    vocab: int, classes: int, overlap: float, concentration: float, seed: int
) -> None:
    made = random(vocab, classes, overlap=overlap, concentration=concentration, seed=seed)
    pool = made.overlap(0, 1)
    for k in range(classes):
        support = made.support(k)
        assert np.isin(pool, support).all()
        assert abs(pool.size - overlap * support.size) <= 1
        assert made.distinct_tokens(k).size == support.size - pool.size
    assert made.in_play.size == vocab - 1 - classes


def test_random_at_the_ends_of_overlap() -> None:
    apart, same = random(50, 4, overlap=0), random(50, 4, overlap=1)
    assert apart.common_tokens().size == 0
    assert same.common_tokens().size == same.in_play.size == 45
    assert np.all(same.probs[:, :45] > 0)


def test_random_concentration_has_the_moments_of_a_dirichlet() -> None:
    tokens = 2000
    for concentration in (0.1, 1.0, 10.0):
        P = random(tokens + 3, 2, overlap=1, concentration=concentration).probs[:, :tokens]
        second = (P**2).sum(axis=1).mean()
        expected = (concentration + 1) / (tokens * concentration + 1)
        assert second == pytest.approx(expected, rel=0.2)


# -- JoMA's toy --------------------------------------------------------------------------------


def test_the_toy_has_a_bump_that_wanders_and_tokens_without_an_order() -> None:
    classes = joma_toy()
    P = classes.probs[:, :20]
    assert (len(classes), classes.queries.size, classes.in_play.size) == (20, 1, 20)
    assert np.all(P > 0)
    for k in (0, 7, 19):
        bump = [np.exp(-((token - k / 2) ** 2) / 30) for token in range(10)]
        weights = P[k] * bump[0] / P[k, 0]  # as they were before they were normalised
        np.testing.assert_allclose(weights[:10], bump, rtol=1e-12)
        assert 0 < weights[10:].min() < weights[10:].max() < 0.5
    assert joma_toy(seed=1) != classes == joma_toy(seed=0)
    assert joma_toy(queries=5).query_index.tolist() == [k // 4 for k in range(20)]


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: syn_medium(0), "num_last: expected a whole number of at least 1, got 0"),
        (
            lambda: syn_medium(cast(int, 2.5)),
            "num_last: expected a whole number of at least 1, got 2.5",
        ),
        (lambda: syn_medium(True), "num_last: expected a whole number"),
        (lambda: syn_medium(1, 1), "num_last, next_per_last: their product"),
        (lambda: syn_medium(3, 1, local_common=2), "local_common: 2 local common tokens need"),
        (lambda: single_common(1), "num_classes: expected a whole number of at least 2"),
        (lambda: single_common(common_prob=1), "common_prob: expected a finite number between"),
        (lambda: single_common(common_prob=float("nan")), "common_prob: expected a finite number"),
        (lambda: single_common(2, 2, vocab_size=7), "vocab_size: .* at least 8, got 7"),
        (lambda: symmetric(common=0), "common: expected a whole number of at least 1"),
        (lambda: symmetric(common_mass=0), "common_mass: expected a finite number between 0 and 1"),
        (lambda: local_common(next_per_last=1), "next_per_last: .* at least 2"),
        (lambda: zipf(20, 5), "vocab: expected a whole number of at least 21, got 20"),
        (lambda: zipf(100, 5, exponent=0), "exponent: expected a finite number above 0"),
        (lambda: zipf(10_000, 5, exponent=300), "exponent: 300.0 leaves the rarest tokens"),
        (lambda: zipf(100, 5, bands=6), "bands: expected a whole number of at least 7"),
        (lambda: zipf(100, 5, queries=6), "queries: 6 queries for 5 classes"),
        (lambda: random(10, 5), "vocab: expected a whole number of at least 11"),
        (lambda: random(50, 5, overlap=1.5), "overlap: expected a number from 0 to 1, got 1.5"),
        (lambda: random(50, 5, concentration=0), "concentration: expected a finite number above 0"),
        (lambda: joma_toy(1), "classes: expected a whole number of at least 2"),
        (lambda: joma_toy(4, queries=5), "queries: 5 queries for 4 classes"),
        (lambda: random(50, 5, seed=-1), "seed: expected a whole number of at least 0"),
    ],
)
def test_bad_parameters_are_refused(call: Callable[[], SequenceClasses], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_the_smallest_vocabularies_work() -> None:
    assert zipf(21, 5).distinct_tokens(4).size == 1
    assert zipf(21, 5, bands=7).num_classes == 5
    assert zipf(11, 5, common=0, bands=6).num_classes == 5
    assert random(11, 5, overlap=0).support(4).size == 1
