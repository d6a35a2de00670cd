"""What is drawn: priors against the theory's own samplers, and n-gram chains."""

import itertools

import jax
import numpy as np
import pytest

from attnlab.files.errors import InputError
from attnlab.papers.statistical_induction import theory
from attnlab.papers.statistical_induction.task import MixedChains, NGrams, doubly_stochastic

KEY = jax.random.key(0)


def test_doubly_stochastic_matrices_are_those_of_the_definition():
    """Three simplices against rejection: moments of entries and their products."""
    found = np.asarray(doubly_stochastic(KEY, 3, 20_000))
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(found.sum(2), 1, atol=1e-5)
    brute = theory.doubly(np.random.default_rng(0), 20_000, 3)
    for P in (found, brute):
        np.testing.assert_allclose(P.mean(0), 1 / 3, atol=0.006)
    a, b = ((P**2).mean(0) for P in (found, brute))
    np.testing.assert_allclose(a, b, atol=0.006)
    a, b = (np.quantile(P[:, 0, 1], [0.1, 0.5, 0.9]) for P in (found, brute))
    np.testing.assert_allclose(a, b, atol=0.012)
    a, b = ((P[:, 0, 0] * P[:, 1, 1] * P[:, 2, 2]).mean() for P in (found, brute))
    assert a == pytest.approx(b, abs=0.004)


def test_mixtures_have_their_shares():
    task = MixedChains(3, 10, doubly=0.5, unigram=0.25)
    P = np.asarray(task._rows(KEY, 4000))
    np.testing.assert_allclose(P.sum(-1), 1, atol=1e-5)
    doubly = np.isclose(P.sum(1), 1, atol=1e-4).all(1)
    unigram = np.isclose(P, P[:, :1]).all((1, 2))
    assert doubly.mean() == pytest.approx(0.5, abs=0.03)
    assert unigram.mean() == pytest.approx(0.25, abs=0.03)


def test_trigrams_follow_their_table():
    """Long sequences of few chains: the next symbol depends on two symbols, and on no more."""
    batch = jax.jit(lambda: NGrams(2, 4000, 3).batch((), KEY, 0, 2))()
    for x, y in zip(*map(np.asarray, (batch.inputs, batch.target)), strict=True):
        np.testing.assert_array_equal(x[1:], y[:-1])
        for a, b in itertools.product(range(2), repeat=2):
            at = 1 + np.flatnonzero((x[1:-1] == b) & (x[:-2] == a))
            at = at[at > 2]
            share = [y[at[x[at - 2] == c]].mean() for c in range(2) if (x[at - 2] == c).sum() > 99]
            assert np.ptp(share) < 0.12 if len(share) == 2 else True


def test_rules_of_ngrams_count():
    batch = NGrams(2, 12, 3).batch((), KEY, 0, 3)
    found = jax.tree.map(np.exp, NGrams(2, 12, 3).references((), batch))
    x = np.asarray(batch.inputs)
    for name in ("uniform", "unigram", "bigram"):
        np.testing.assert_allclose(found[name], theory.rules(x, 2)[name], atol=1e-5)
    for one, t in itertools.product(range(3), range(1, 12)):
        seen = list(x[one, : t + 1])
        triples = list(zip(seen, seen[1:], seen[2:], strict=False))
        n = np.array([triples.count((seen[-2], seen[-1], c)) for c in range(2)])
        np.testing.assert_allclose(found["trigram"][one, t], (n + 1) / (n.sum() + 2), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MixedChains(doubly=1.5), "doubly: expected a share"),
        (lambda: MixedChains(doubly=0.6, unigram=0.6), "expected shares that add up"),
        (lambda: MixedChains(8, doubly=0.1), "vocab_size: expected 2 or 3 symbols"),
        (lambda: NGrams(order=1), "order: expected a whole number"),
        (lambda: NGrams(length=2), "length: expected a whole number"),
    ],
)
def test_bad_settings_are_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()
