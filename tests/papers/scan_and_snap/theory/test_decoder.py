"""Theorem 5, Corollary 1 and Remark 1, against decoders trained here step by step."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from attnlab.formulas import unit_attention
from attnlab.papers.scan_and_snap.theory import (
    beta,
    class_logits,
    correlation,
    decoder_error,
    decoder_weights,
    e_prime,
    gamma,
    gradient_coefficients,
    h,
    h_star,
    plain_coefficients,
    plain_decoder,
    steps_to_error,
    transition_times,
)


def softmax(w):
    odds = np.exp(w - w.max())
    return odds / odds.sum()


def train(f, order, M, eta_y, *, modified, sign=1.0):
    """Y after batch-1 steps on the classes in `order`, by Eq. 26 (modified) or Eq. 7 (plain)."""
    K, L = f.shape
    direction = f.T @ (np.eye(K) - sign * e_prime(correlation(f))) if modified else f.T
    Y = np.zeros((L, M))
    for n in order:
        error = -softmax(Y.T @ f[n])
        error[n] += 1
        Y += eta_y * np.outer(direction[:, n], error)
    return Y


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_theorem_5_is_exact_for_any_order_of_visits(random_classes, seed):
    K, M, eta_y = 4, 25, 0.6
    f = unit_attention(random_classes(seed, K=K))
    order = np.random.default_rng(seed).integers(0, K, 300)
    Y = train(f, order, M, eta_y, modified=True)
    visits = np.bincount(order, minlength=K)
    predicted = decoder_weights(f, h_star(visits, M=M, eta_y=eta_y), M=M)
    np.testing.assert_allclose(Y, predicted, atol=1e-11)
    np.testing.assert_allclose(
        f @ Y, class_logits(h_star(visits, M=M, eta_y=eta_y), M=M), atol=1e-11
    )
    # Lemma 1: entries of each row of Y sum to 0, those of each column do not.
    np.testing.assert_allclose(Y.sum(1), 0.0, atol=1e-11)
    assert np.abs(Y.sum(0)).max() > 0.1


def test_theorem_5_fails_with_the_printed_sign_of_e_prime(random_classes):
    f = unit_attention(random_classes(0, K=3))
    order = np.arange(150) % 3
    Y = train(f, order, 20, 0.5, modified=True, sign=-1.0)
    predicted = decoder_weights(f, h_star(50, M=20, eta_y=0.5), M=20)
    assert np.abs(Y - predicted).max() > 0.1 * np.abs(predicted).max()


def test_theorem_5_flow_describes_uniform_visits(random_classes):
    K, M, eta_y = 3, 50, 0.01
    f = unit_attention(random_classes(5, K=K))
    N = 6000
    Y = train(f, np.arange(N) % K, M, eta_y, modified=True)
    predicted = decoder_weights(f, h(N / K, M=M, eta_y=eta_y), M=M)
    assert np.abs(Y - predicted).max() < 2e-3 * np.abs(predicted).max()


def test_theorem_1_is_not_about_the_plain_update(random_classes):
    K, M, eta_y = 3, 200, 0.1
    f = unit_attention(random_classes(7, K=K, overlap=0.2))
    E = correlation(f)
    N = int(transition_times(K=K, M=M, eta_y=eta_y).t0_prime)
    off = ~np.eye(K, dtype=bool) & (E > 0)
    found = {}
    for modified in (True, False):
        Y = train(f, np.arange(N) % K, M, eta_y, modified=modified)
        found[modified] = -gradient_coefficients(f @ Y, E) / gamma(N, K=K, M=M, eta_y=eta_y)
    np.testing.assert_allclose(found[True][off], beta(E, M=M)[off], rtol=0.05)
    assert np.all(found[False][off] < 0.5 * beta(E, M=M)[off])


def test_corollary_1_rate_is_one_over_t():
    t = np.geomspace(1e6, 1e9, 20)
    error = decoder_error(t, K=10, M=1000, eta_y=0.5)
    slope = np.polyfit(np.log(t), np.log(error), 1)[0]
    assert -1.001 < slope < -0.99
    assert error[-1] * 0.5 * t[-1] / 10 == pytest.approx(1.0, rel=1e-2)
    assert decoder_error(0.0, K=10, M=1000, eta_y=0.5) == pytest.approx(np.sqrt(1 - 1e-3))
    assert decoder_error(np.inf, K=10, M=1000, eta_y=0.5) == 0.0


@pytest.mark.parametrize("M", [30, 1000, 10**9])
def test_corollary_1_steps(M):
    epsilon = np.array([0.5, 1e-2, 1e-5])
    steps = steps_to_error(epsilon, K=10, M=M, eta_y=0.5)
    np.testing.assert_allclose(decoder_error(steps, K=10, M=M, eta_y=0.5), epsilon, rtol=1e-10)
    sharp = 20 * (1 / epsilon + np.log(M / epsilon))
    np.testing.assert_allclose(steps[1:], sharp[1:], rtol=0.05)
    assert np.all(steps < 1.01 * steps_to_error(epsilon, K=10, M=M, eta_y=0.5, form="printed"))
    assert steps_to_error(2.0, K=10, M=M, eta_y=0.5) == 0.0


def equal_overlap(K, rho):
    """Unit vectors with f_n . f_n' = rho: one shared token and one of its own each."""
    return np.hstack([np.full((K, 1), np.sqrt(rho)), np.sqrt(1 - rho) * np.eye(K)])


@pytest.mark.parametrize(("K", "M"), [(2, 30), (5, 12), (6, 6)])
def test_remark_1_corrected_is_the_flow_of_eq_7(K, M):
    rho, eta_y, t = 0.2, 0.5, np.array([3.0, 60.0, 900.0])
    f = equal_overlap(K, rho)

    def slope(_, flat):
        W = flat.reshape(K, M)
        error = np.eye(M)[:K] - np.array([softmax(w) for w in W])
        return (eta_y / K * f @ f.T @ error).ravel()

    W = solve_ivp(
        slope, (0, t[-1]), np.zeros(K * M), "LSODA", t_eval=t, rtol=1e-12, atol=1e-13
    ).y.T.reshape(-1, K, M)
    found = plain_decoder(t, K=K, M=M, rho=rho, eta_y=eta_y)
    np.testing.assert_allclose(found.own, W[:, 0, 0], rtol=1e-9)
    np.testing.assert_allclose(found.other, W[:, 0, 1], rtol=1e-9)
    if K < M:
        np.testing.assert_allclose(found.outside, W[:, 0, -1], rtol=1e-9)
        printed = plain_decoder(t, K=K, M=M, rho=rho, eta_y=eta_y, form="printed")
        assert abs(printed.own[0] / found.own[0] - 1) > 0.5 * rho
        assert printed.other[0] < 0 < found.other[0]


def test_remark_1_for_k_equal_m_scales_the_rate_inside_h():
    t = np.array([0.0, 10.0, 1e4, 1e15])
    found = plain_decoder(t, K=20, M=20, rho=0.1, eta_y=0.5)
    np.testing.assert_allclose(found.own, 19 * h(t / 20, M=20, eta_y=0.45), rtol=1e-10)
    assert np.all(np.isnan(found.outside))
    printed = plain_decoder(1e4, K=20, M=20, rho=0.1, eta_y=0.5, form="printed")
    assert printed.own == pytest.approx(7.2544, abs=1e-4)
    assert found.own[2] == pytest.approx(7.9573, abs=1e-4)


def test_remark_1_zero_sum_fails_for_fewer_classes_than_tokens():
    zeta = 30 / 29 * (np.eye(30) - 1 / 30)
    assert np.abs(zeta.sum(0)).max() < 1e-14
    assert np.linalg.norm(zeta[:2].sum(0)) == pytest.approx(1.4142, abs=1e-3)


def test_plain_coefficients_are_the_linear_algebra():
    for K, M in ((2, 30), (6, 20), (6, 6)):
        rho, eta_y = 0.15, 0.5
        for t in (0.01, 20.0, 1e4):
            w = plain_decoder(t, K=K, M=M, rho=rho, eta_y=eta_y)
            W = np.full((K, M), w.outside if K < M else 0.0)
            W[:, :K] = w.other
            W[np.arange(K), np.arange(K)] = w.own
            E = correlation(equal_overlap(K, rho))
            coefficient = gradient_coefficients(W, E) / gamma(t, K=K, M=M, eta_y=eta_y)
            found = plain_coefficients(t, K=K, M=M, rho=rho, eta_y=eta_y)
            assert found.iota == pytest.approx(coefficient[0, 0], rel=1e-8)
            assert found.beta == pytest.approx(-coefficient[0, 1], rel=1e-8)


@pytest.mark.parametrize("rho", [0.1, 0.3])
def test_plain_beta_early_near_t0_and_in_the_limit(rho):
    """The laws of docs/errata.md, each in its range, and where SGD's beta overtakes Theorem 1's."""
    at = {"K": 2, "M": 1000, "eta_y": 0.9}
    t0 = transition_times(**at).t0

    def found(t):
        return plain_coefficients(t, rho=rho, **at)

    early, near = np.geomspace(1e-3, t0 / 3, 20), np.geomspace(t0, 100 * t0, 20)
    grown = 1000 * found(early).beta / np.exp(rho * 0.9 * early / 2)
    assert np.all((grown > 1.0) & (grown < 1.3))
    power = 1000 * found(near).beta / (1000 * 0.9 * near / 2) ** rho
    assert np.all((power > 0.97) & (power < 1.3))
    far = found(np.array([1e10, 1e100, 1e290]) * t0)
    gap = 2 * rho / (1 + rho**2) - far.beta / far.iota
    assert np.all(np.diff(gap) < 0)
    assert 0 < gap[-1] < 0.007
    theorem = beta([[0.0, rho], [rho, 0.0]], M=1000)[0, 1]
    assert found(1e290 * t0).beta > 1.5 * theorem
    if rho == 0.3:
        before, after = found(np.array([1.1e6, 1.2e6]) * t0).beta
        assert before < theorem < after


def test_plain_beta_stays_far_below_theorem_1_at_t0():
    K, M, rho, eta_y = 10, 1000, 0.05, 0.5
    E = correlation(equal_overlap(K, rho))
    t0 = transition_times(K=K, M=M, eta_y=eta_y).t0
    start, snap = plain_coefficients(np.array([1e-3, t0]), K=K, M=M, rho=rho, eta_y=eta_y).beta
    assert start == pytest.approx(1.0020e-3, rel=1e-3)
    assert snap == pytest.approx(1.8327e-3, rel=1e-3)
    assert beta(E, M=M)[0, 1] == pytest.approx(3.7061e-2, rel=1e-3)
