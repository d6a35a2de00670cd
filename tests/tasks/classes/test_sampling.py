"""Exact sampling: counts against tokens by distribution, from T = 2 to 10^6."""

import jax
import numpy as np
import pytest
from scipy import stats

from attnlab.tasks.classes import (
    SequenceClasses,
    class_table,
    count_sampler,
    draw_classes,
    token_sampler,
)
from attnlab.tasks.classes.sampling import CountSampler, TokenSampler, alias_table

# Two classes of different, uneven supports; a seed per test keeps the suite deterministic, and
# p-values below 1e-4 would come up once in thousands of such tests.
P = np.array([[0.05, 0.4, 0.3, 0.15, 0.1, 0.0, 0.0], [0.0, 0.0, 0.5, 0.0, 0.01, 0.02, 0.47]])
CLASSES = SequenceClasses(P, query=[0, 0], next_token=[1, 2], prior=[0.3, 0.7])
LEAST_P = 1e-4


# The sampler is an argument, so that what is compiled for a length serves all classes and seeds.
@jax.jit
def draw_counts(sampler, key, classes):
    return sampler.counts(jax.random.bits(key, (*classes.shape, sampler.words), "uint32"), classes)


@jax.jit
def draw_tokens(sampler, key, classes):
    return sampler.sequences(
        jax.random.bits(key, (*classes.shape, sampler.words), "uint32"), classes
    )


def draw(length, klass, count, seed=0):
    sampler = count_sampler(CLASSES, length)
    assert isinstance(sampler, CountSampler if length > 2 else TokenSampler)
    return np.asarray(draw_counts(sampler, jax.random.key(seed), np.full(count, klass)))


def expected(klass):
    return CLASSES.probabilities(klass)


@pytest.mark.slow
@pytest.mark.parametrize("length", [2, 3, 5, 16, 128, 129, 1000, 131_072, 1_000_000])
@pytest.mark.parametrize("klass", [0, 1])
def test_counts_have_the_moments_of_the_multinomial(length, klass):
    draws, n = 20_000, length - 1
    p = expected(klass)
    counts = draw(length, klass, draws, seed=length + klass)[:, : p.size].astype(float)
    assert np.all(counts.sum(1) == n)
    assert counts.min() >= 0
    z = (counts.mean(0) - n * p) / np.sqrt(n * p * (1 - p) / draws)
    assert stats.chi2.sf((z**2).sum(), p.size) > LEAST_P
    covariance = n * (np.diag(p) - np.outer(p, p))
    measured = np.cov(counts.T)
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    rare = np.sqrt(1 / (n * p.min()))  # few events make a fourth moment large
    assert np.all(np.abs(measured - covariance) / scale < 6 * (1 + rare) / np.sqrt(draws))


@pytest.mark.parametrize("length", [2, 4, 16, 128, 400])
def test_each_count_is_binomial(length):
    """Chi-square of the marginal of every token against the exact binomial."""
    p = expected(0)
    counts = draw(length, 0, 40_000, seed=1000 + length)
    for slot, probability in enumerate(p):
        observed = np.bincount(counts[:, slot], minlength=length)
        assert chi_square(observed, stats.binom.pmf(np.arange(length), length - 1, probability))


@pytest.mark.parametrize("length", [2, 8, 60])
def test_counts_and_tokens_have_one_distribution(length):
    draws = 30_000
    counts = draw(length, 1, draws, seed=5)[:, :4]
    sampler = token_sampler(CLASSES, length)
    tokens = np.asarray(draw_tokens(sampler, jax.random.key(6), np.ones(draws, np.int32)))
    assert tokens.shape == (draws, length - 1)
    by_token = np.stack([(tokens == t).sum(1) for t in CLASSES.support(1)], axis=1)
    for slot in range(4):
        top = max(counts[:, slot].max(), by_token[:, slot].max()) + 1
        table = np.stack([np.bincount(c[:, slot], minlength=top) for c in (counts, by_token)])
        table = table[:, table.sum(0) >= 10]
        if table.shape[1] > 1:
            assert stats.chi2_contingency(table).pvalue > LEAST_P


def test_tokens_are_independent_along_the_sequence():
    sampler = token_sampler(CLASSES, 3)
    tokens = np.asarray(draw_tokens(sampler, jax.random.key(7), np.zeros(50_000, np.int32)))
    support = CLASSES.support(0)
    table = np.array(
        [[np.sum((tokens[:, 0] == a) & (tokens[:, 1] == b)) for a in support] for b in support]
    )
    assert stats.chi2_contingency(table).pvalue > LEAST_P


def test_a_support_longer_than_the_sequence_is_drawn_by_its_tokens():
    p = np.full(200, 1 / 200)
    classes = SequenceClasses([np.append(p, 0)], query=[200], next_token=[200])
    sampler = count_sampler(classes, 11)
    assert isinstance(sampler, TokenSampler)
    counts = np.asarray(draw_counts(sampler, jax.random.key(0), np.zeros(5000, np.int32)))
    assert np.all(counts.sum(1) == 10)
    assert chi_square(counts.sum(0), p)


def test_classes_follow_their_prior():
    by_prior = jax.jit(draw_classes, static_argnums=2)
    drawn = np.asarray(by_prior(class_table(CLASSES), jax.random.key(1), (100_000,)))
    assert chi_square(np.bincount(drawn, minlength=2), CLASSES.prior)


def test_draws_are_keyed_and_reproducible():
    sampler = count_sampler(CLASSES, 128)
    klass = np.zeros(50, np.int32)
    first, again, other = (draw_counts(sampler, jax.random.key(k), klass) for k in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.any(np.asarray(first) != np.asarray(other))


@pytest.mark.parametrize("seed", range(5))
def test_alias_tables_hold_their_probabilities_to_a_part_in_2_to_the_32(seed):
    """Read the table itself: the mass that each outcome gets, exactly."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(11, 0.3), size=4)
    probs[0] = np.eye(11)[3]
    table = alias_table(probs)
    words = np.asarray(table.words, dtype=np.uint64).reshape(4, -1)
    mask = np.uint64((1 << table.bits) - 1)
    keep = (words & ~mask) / 2.0**32
    alias = (words & mask).astype(int)
    mass = keep.copy()
    for row in range(4):
        np.add.at(mass[row], alias[row], 1 - keep[row])
    mass /= 1 << table.bits
    np.testing.assert_allclose(mass[:, :11], probs, atol=2.0**-31)
    np.testing.assert_allclose(mass[:, 11:], 0, atol=2.0**-31)


@pytest.mark.parametrize("length", [1, 0, -3, 2.5, 2**31])
def test_a_bad_length_is_refused(length):
    with pytest.raises(ValueError, match="^length"):
        count_sampler(CLASSES, length)


def chi_square(observed, probabilities):
    """Whether counts fit probabilities, rare outcomes pooled."""
    expected_counts = observed.sum() * np.asarray(probabilities)
    common = expected_counts >= 5
    pooled_o = np.append(observed[common], observed[~common].sum())
    pooled_e = np.append(expected_counts[common], expected_counts[~common].sum())
    keep = pooled_e > 0
    assert np.all(pooled_o[~keep] == 0)
    if keep.sum() < 2:
        return True
    return stats.chisquare(pooled_o[keep], pooled_e[keep], sum_check=False).pvalue > LEAST_P


def test_classes_that_differ_a_little_have_tables_of_one_size():
    def sizes(second):
        probs = [[1 / 8, 1 / 8, 1 / 4, 1 / 2, 0, 0], [*second, 0, 0]]
        classes = SequenceClasses(probs, query=[4, 4], next_token=[4, 5])
        return [leaf.shape for leaf in jax.tree.leaves(count_sampler(classes, 64))]

    # six different probabilities of going left, and five
    assert sizes([1 / 16, 5 / 16, 1 / 8, 1 / 2]) == sizes([3 / 32, 5 / 32, 5 / 16, 7 / 16])
