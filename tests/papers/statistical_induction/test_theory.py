"""Formulas against brute force, limits and each other."""

import itertools

import numpy as np
import pytest
from scipy.special import log_softmax

from attnlab.formulas.chains import stationary
from attnlab.papers.statistical_induction import theory


def brute_logits(x, W, v):
    """Logits of one sequence, by the definition with loops."""
    T, k = len(x), len(W)
    e = np.eye(k)[x]
    z = np.zeros((T, k))
    for s in range(T):
        weights = np.exp([v[s - r] for r in range(s + 1)])
        z[s] = weights / weights.sum() @ e[: s + 1]
    return np.array([sum((W[x[t]] @ z[s]) * e[s] for s in range(t + 1)) for t in range(T)])


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(3)
    x = theory.sample(rng, theory.dirichlet(rng, 5, 3), 8)
    return x[:, :-1], x[:, 1:], rng.normal(size=(3, 3)), rng.normal(size=7)


def test_logits_are_those_of_the_definition(small):
    x, _, W, v = small
    brute = np.array([brute_logits(one, W, v) for one in x])
    np.testing.assert_allclose(theory.logits(x, W, v), brute, atol=1e-12)


@pytest.mark.parametrize("linear", [False, True])
def test_gradient_equals_differences(small, linear):
    x, y, W, v = small

    def loss(W, v):
        return theory.gradient(x, y, W, v, linear=linear).loss

    found, h = theory.gradient(x, y, W, v, linear=linear), 1e-5
    for i, j in itertools.product(range(3), repeat=2):
        d = h * np.eye(3)[i][:, None] * np.eye(3)[j]
        slope = (loss(W + d, v) - loss(W - d, v)) / (2 * h)
        assert found.second[i, j] == pytest.approx(slope, abs=1e-8)
    for i, d in enumerate(h * np.eye(7)):
        slope = (loss(W, v + d) - loss(W, v - d)) / (2 * h)
        assert found.first[i] == pytest.approx(slope, abs=1e-8)


def listed(P, T):
    """All sequences of T + 1 symbols of one chain, with their probabilities."""
    x = np.array(list(itertools.product(range(len(P)), repeat=T + 1)))
    p = stationary(P)[x[:, 0]] * np.prod(P[x[:, :-1], x[:, 1:]], axis=1)
    return x, p


def over_all(P, T, W):
    """The gradient at W, v = 0 as a mean over all sequences of one chain."""
    x, p = listed(P, T)
    each = [theory.gradient(one[None, :-1], one[None, 1:], W, np.zeros(T)) for one in x]
    return [sum(q * of[i] for q, of in zip(p, each, strict=True)) for i in (1, 2)]


@pytest.mark.parametrize("k", [2, 3])
def test_first_step_equals_the_gradient(k):
    """Over all sequences: exact at any T, with no prior and no sampling."""
    P, T = theory.dirichlet(np.random.default_rng(1), 1, k)[0], 4
    second, _ = over_all(P, T, np.zeros((k, k)))
    np.testing.assert_allclose(theory.first_step(P[None], T), -second, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3])
def test_first_signal_equals_the_gradient(k):
    P, T, w = theory.dirichlet(np.random.default_rng(2), 1, k)[0], 4, 1e-5
    _, first = over_all(P, T, w * np.eye(k))
    np.testing.assert_allclose(theory.first_signal(P[None], T), -first / w, atol=1e-4)


def test_first_numbers_as_measured_before():
    """Measured apart from this code, on 3,072 chains at T = 50."""
    rng = np.random.default_rng(0)
    for k, step, signal in (
        (2, (1.243, 0.219), (-0.002, 0.061, -0.023, 0.012, -0.013, 0.002)),
        (3, (0.447, 0.121), (0.007, 0.063, -0.017, 0.000, -0.008, -0.004)),
    ):
        P = theory.dirichlet(rng, 4000, k)
        M = theory.first_step(P, 50)
        np.testing.assert_allclose((M[0, 0], M[0, 1]), step, rtol=0.1)
        np.testing.assert_allclose(theory.first_signal(P, 50)[:6], signal, atol=0.008)
    for k, step in ((2, (4.58, 1.03)), (3, (1.56, 0.55))):  # on 1,536 chains at T = 200
        M = theory.first_step(theory.dirichlet(rng, 1500, k), 200)
        np.testing.assert_allclose((M[0, 0], M[0, 1]), step, rtol=0.12)


def test_leading_terms_are_the_limit():
    P = theory.dirichlet(np.random.default_rng(0), 300, 2)
    errors = [abs(theory.leading_step(P, T) / theory.first_step(P, T) - 1)[0, 0] for T in (50, 400)]
    assert errors[1] < 0.3 * errors[0]
    leading = theory.leading_step(theory.doubly(np.random.default_rng(0), 50, 3), 50)
    np.testing.assert_allclose(leading, 0, atol=1e-9)
    np.testing.assert_allclose(
        theory.leading_signal(P, 100), theory.first_signal(P, 100), atol=3e-3
    )


def test_signs_alternate_for_two_symbols():
    """P^d - 1 pi^T = lambda^d (I - 1 pi^T): chains that flip alternate."""
    flips = theory.lag_kernel(np.array([[[0.2, 0.8], [0.8, 0.2]]]), 6)
    np.testing.assert_allclose(flips / flips[0], (-0.6) ** np.arange(6))
    stays = theory.lag_kernel(np.array([[[0.8, 0.2], [0.2, 0.8]]]), 6)
    assert (stays > 0).all() and stays.argmax() == 0


def test_unigram_chains_have_no_signal():
    P = theory.unigram(np.random.default_rng(0), 100, 3)
    np.testing.assert_allclose(theory.lag_kernel(P, 4)[1:], 0, atol=1e-12)


def test_end():
    """The best w at T = 50, 0.114 and 0.169 from other chains; no w near it is better."""
    rng = np.random.default_rng(0)
    for k, expected in ((2, 0.114), (3, 0.169)):
        x = theory.sample(rng, theory.dirichlet(rng, 2000, k), 51)
        x, y = x[:, :-1], x[:, 1:]
        w, v = theory.end_weight(x, y, k), theory.lag_one(50)
        assert w == pytest.approx(expected, rel=0.08)
        losses = [theory.gradient(x, y, s * w * np.eye(k), v).loss for s in (0.97, 1, 1.03)]
        assert losses[1] < min(losses[0], losses[2])


def test_rules_count():
    x = np.random.default_rng(0).integers(0, 3, (4, 12))
    found = theory.rules(x, 3)
    for one in range(4):
        for t in range(12):
            seen = list(x[one, : t + 1])
            pairs = list(itertools.pairwise(seen))
            n = np.array([pairs.count((seen[-1], b)) for b in range(3)])
            np.testing.assert_allclose(found["bigram"][one, t], (n + 1) / (n.sum() + 3))
            n = np.array([seen.count(b) for b in range(3)])
            np.testing.assert_allclose(found["unigram"][one, t], (n + 1) / (t + 1 + 3))
    np.testing.assert_allclose(found["uniform"], 1 / 3)


@pytest.mark.parametrize(
    ("prior", "k", "expected", "losses"),
    [
        ("dirichlet", 2, (0.211, 0.085, 0.0093), (0.693, 0.581, 0.514)),
        ("dirichlet", 3, (0.280, 0.171, 0.0262), (1.099, 1.005, 0.886)),
        ("dirichlet", 8, (0.368, 0.342, 0.155), (2.079, 2.088, 1.943)),
        ("doubly", 2, (0.193, 0.190, 0.0098), None),
        ("doubly", 3, (0.216, 0.226, 0.0281), None),
        ("unigram", 3, (0.264, 0.0095, 0.0246), None),
    ],
)
def test_distances_as_measured_before(prior, k, expected, losses):
    """KL(true row || rule) at the last of 100 positions, and cross entropies over all of them."""
    rng = np.random.default_rng(0)
    P = theory.PRIORS[prior](rng, 9000 // k, k)
    x = theory.sample(rng, P, 101)
    rules = theory.rules(x[:, :-1], k)
    row = P[np.arange(len(P)), x[:, -2]]
    found = [theory.divergence(row, np.log(rule[:, -1])).mean() for rule in rules.values()]
    np.testing.assert_allclose(found, expected, atol=0.012, rtol=0.05)
    if losses is not None:
        right = [np.take_along_axis(of, x[:, 1:, None], -1) for of in rules.values()]
        np.testing.assert_allclose([-np.log(of).mean() for of in right], losses, atol=0.012)


def test_doubly_stochastic_rows_are_uniform_for_two_symbols():
    P = theory.doubly(np.random.default_rng(0), 4000, 2)
    np.testing.assert_allclose(
        np.quantile(P[:, 0, 0], [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.03
    )
    assert theory.divergence(P[:, 0], np.full(2, np.log(0.5))).mean() == pytest.approx(
        theory.uniform_divergence(2), abs=0.01
    )


def test_large_logits_need_a_careful_softmax():
    """exp of a count times a large w overflows; the loss by log_softmax is finite."""
    x = np.tile([0, 1], (1, 40))
    W, v = 40.0 * np.eye(2), theory.lag_one(79)
    with np.errstate(over="ignore", invalid="ignore"):
        plain = np.exp(theory.logits(x[:, :-1], W, v))
        assert np.isnan(plain / plain.sum(-1, keepdims=True)).any()
    assert np.isfinite(theory.gradient(x[:, :-1], x[:, 1:], W, v).loss)
    assert np.isfinite(log_softmax(theory.logits(x[:, :-1], W, v), axis=-1)).all()
