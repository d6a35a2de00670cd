"""Lemmas 10, 11 and 18 by sampling, and the bias of finite sequences."""

import numpy as np
import pytest
from scipy.integrate import quad

from attnlab.papers.scan_and_snap.theory import (
    decoder_deviations,
    expected_squared_norm,
    frequency_interval,
    gamma,
    h,
    losing_length,
    plain_coefficients,
    transition_times,
    visit_deviations,
    visits_radius,
)


@pytest.mark.parametrize("N", [5, 100, 2000])
@pytest.mark.parametrize("delta", [0.5, 0.05])
def test_lemma_10_covers(N, delta):
    K = 4
    visits = np.random.default_rng(0).binomial(N, 1 / K, 20000)
    radius = visits_radius(N, delta=delta)
    assert np.mean(np.abs(visits - np.ceil(N / K)) <= radius) >= 1 - delta


def test_eq_58_last_inequality_fails_for_few_steps():
    assert visits_radius(8, delta=0.5) == pytest.approx(3.3548, abs=1e-4)
    assert visits_radius(8, delta=0.5, form="printed") == pytest.approx(3.3302, abs=1e-4)
    assert visits_radius(100, delta=0.5) < visits_radius(100, delta=0.5, form="printed")


def sigma_at(visits, mean, M, eta_y):
    down = M - 1 + np.exp(M * h(np.array([mean, visits]), M=M, eta_y=eta_y))
    return down[0] / down[1] - 1


@pytest.mark.parametrize("M", [30, 1000, 10**9])
@pytest.mark.parametrize("mean", [3.0, 12.0, 26.0, 300.0])
def test_lemma_11_corrected_bounds_every_count(M, mean):
    K, eta_y = 5, 1.0
    radius = 0.4 * mean
    bound = decoder_deviations(K * mean, radius=radius, K=K, M=M, eta_y=eta_y)
    for visits in np.linspace(mean - radius, mean + radius, 41):
        assert abs(h(visits, M=M, eta_y=eta_y) / h(mean, M=M, eta_y=eta_y) - 1) <= bound.theta
        assert abs(sigma_at(visits, mean, M, eta_y)) <= bound.sigma + 1e-14


@pytest.mark.parametrize("M", [1e3, 1e6, 1e9])
def test_lemma_11_below_the_mean(M):
    """A tenth of the mean, as Delta << N/K asks for, keeps within 1/3; any Delta within 1."""
    mean = np.geomspace(2.0, 500.0, 200)
    early = mean < transition_times(K=1, M=M, eta_y=0.99).t0
    for stray in (0.02, 0.1, 0.3, 0.9):
        radius = stray * mean
        found = [sigma_at(m - r, m, M, 0.99) for m, r in zip(mean, radius, strict=True)]
        printed = decoder_deviations(
            mean, radius=radius, K=1, M=M, eta_y=0.99, form="printed"
        ).sigma
        assert np.all(found <= 0.99 * radius)
        if stray <= 0.1:
            assert np.all((found < printed)[early])
            assert np.all(found < 0.04 * np.log(M))


def test_lemma_11_needs_few_strays():
    # 26 expected visits, 18 real ones, M = 1e9: a third of the mean is not << N/K.
    M, mean, radius = 1e9, 26.0, 8.0
    printed = decoder_deviations(mean, radius=radius, K=1, M=M, eta_y=1.0, form="printed").sigma
    assert printed == pytest.approx(8 / 3)
    assert sigma_at(18.0, mean, M, 1.0) == pytest.approx(3.6269, abs=1e-4)
    # On the other side the printed bound is right all the same.
    assert abs(sigma_at(34.0, mean, M, 1.0)) < printed


def test_sigma_of_corollary_1_stays_within_its_bounds():
    rng, K, N, M, eta_y, delta = np.random.default_rng(3), 5, 10**5, 1000.0, 0.9, 0.1
    sigma = np.array(
        [
            visit_deviations(rng.multinomial(N, np.full(K, 1.0 / K)), M=M, eta_y=eta_y).sigma
            for _ in range(500)
        ]
    )
    assert np.all(sigma > -1.0)
    assert np.mean(np.abs(sigma) <= K / np.sqrt(N) * np.sqrt(np.log(1 / delta))) >= 1 - delta
    assert np.mean(np.abs(sigma) <= eta_y * np.sqrt(N * np.log(1 / delta))) >= 1 - delta


def test_visit_deviations_are_zero_for_equal_visits():
    theta, sigma = visit_deviations([20, 20, 20], M=50, eta_y=0.5)
    np.testing.assert_allclose([theta, sigma], 0.0, atol=1e-14)
    theta, sigma = visit_deviations([10, 30], M=50, eta_y=0.5)
    assert theta[0] < 0 < theta[1]
    assert sigma[1] < 0 < sigma[0]
    with pytest.raises(ValueError, match="visits must not all be 0"):
        visit_deviations([0, 0], M=50, eta_y=0.5)


def test_lemma_18_covers():
    P, T, delta = np.array([0.05, 0.25, 0.7]), 41, 0.1
    q = np.random.default_rng(1).multinomial(T - 1, P, 20000) / (T - 1)
    lower, upper = frequency_interval(P, length=T, delta=delta)
    assert lower[0] == 0.0
    assert np.all(np.mean((q >= lower) & (q <= upper), axis=0) >= 1 - delta)
    wide = frequency_interval(P, length=1e12, delta=delta)
    np.testing.assert_allclose(wide.upper - wide.lower, 0.0, atol=1e-5)


def test_squared_norm_is_biased_at_finite_length():
    P, T = np.full(100, 0.01), 129
    q = np.random.default_rng(2).multinomial(T - 1, P, 20000) / (T - 1)
    expected = expected_squared_norm(P, length=T)
    assert np.mean((q**2).sum(1)) == pytest.approx(expected, rel=2e-3)
    # T = 129 is large against 1, not against 1/|p|^2 = 100: the norm is 77% too large.
    assert expected / 0.01 == pytest.approx(1.773, abs=1e-3)
    assert expected_squared_norm(P, length=np.inf) == pytest.approx(0.01)


def test_losing_length_balances_sampled_drift():
    """The drift by sampling, the integrals over time by another rule."""
    p, T, t, at = np.array([0.3, 0.05, 0.1, 0.55]), 2001, 200.0, dict(K=2, M=1000, eta_y=0.9)
    rho, draws = 0.25, 400_000
    q = np.random.default_rng(3).multinomial(T - 1, p, draws) / (T - 1)
    f = q / np.linalg.norm(q, axis=1, keepdims=True)
    m = f.mean(0)
    drift = (T - 1) * (f * m - f**2 * (f @ m)[:, None]).mean(0) / (p**2 / (p @ p))

    def integral(part):
        def integrand(s):
            return gamma(s, **at) * getattr(plain_coefficients(s, rho=rho, **at), part)

        return quad(integrand, 1e-9, t, epsrel=1e-5)[0]

    found = losing_length(p, t, rho=rho, **at)
    expected = 1 - drift / rho * integral("iota") / integral("beta")
    np.testing.assert_allclose(found[:3], expected[:3], rtol=0.02)
    assert found[3] == 1.0 > expected[3]  # a frequent token gains at every length
    assert np.isnan(losing_length([*p, 0.0], t, rho=rho, **at)[-1])


@pytest.mark.parametrize("rho", [0.2, 0.3, 0.4])
def test_losing_length_grows_as_outputs_to_one_minus_overlap(rho):
    """At 10 t_0 up to powers of ln M: T* over M falls, T* over M^(1 - rho) hardly moves."""
    M = 10 ** np.arange(3, 6)
    found = np.array(
        [
            losing_length(
                [0.3, 0.05, 0.65],
                10 * transition_times(K=2, M=m, eta_y=0.9).t0,
                K=2,
                M=m,
                rho=rho,
                eta_y=0.9,
            )[1]
            for m in M
        ]
    )
    exponent = np.polyfit(np.log(M), np.log(found), 1)[0]
    assert exponent == pytest.approx(1 - rho, abs=0.03)
