"""iota, beta and xi (Theorem 1, Eqs. 81 to 89) against linear algebra on the decoder itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.formulas import unit_attention
from attnlab.papers.scan_and_snap.theory import (
    assumption_2,
    back_gradient,
    beta,
    correlation,
    decoder_weights,
    gamma,
    gradient_coefficients,
    h,
    iota,
    visit_deviations,
    xi,
)

exact = settings(max_examples=60, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 7)


def equal(K, rho):
    return rho * (np.ones((K, K)) - np.eye(K))


def brute_force(f, visits, M, eta_y):
    """Y of Theorem 5 and g[n] = Y (e_n - alpha_n), with nothing but matrix products."""
    Y = decoder_weights(f, h(visits, M=M, eta_y=eta_y), M=M)
    odds = np.exp(f @ Y)
    error = np.eye(M)[: len(f)] - odds / odds.sum(1, keepdims=True)
    return Y, error @ Y.T


@exact
@given(seed=seeds, K=sizes, M=st.integers(8, 60))
def test_eq_88_corrected_is_the_linear_algebra(random_classes, seed, K, M):
    f = unit_attention(random_classes(seed, K=K))
    visits = np.random.default_rng(seed).integers(5, 60, K)
    eta_y = 0.3
    Y, g = brute_force(f, visits, M, eta_y)
    E = correlation(f)
    theta, sigma = visit_deviations(visits, M=M, eta_y=eta_y)
    speed = gamma(K * visits.mean(), K=K, M=M, eta_y=eta_y)
    np.testing.assert_allclose(
        speed * back_gradient(f, M=M, theta=theta, sigma=sigma), g, atol=1e-11 * np.abs(g).max()
    )
    coefficient = gradient_coefficients(f @ Y, E) / speed
    found = beta(E, M=M, theta=theta, sigma=sigma)
    scale = 1e-11 * np.abs(coefficient).max()
    np.testing.assert_allclose(
        np.diagonal(coefficient), iota(E, M=M, theta=theta, sigma=sigma), atol=scale
    )
    np.testing.assert_allclose(found, -coefficient * (1 - np.eye(K)), atol=scale)
    printed = beta(E, M=M, theta=theta, sigma=sigma, form="printed")
    # What is printed differs by -2 q0 (1 + theta_n') (1 + sigma_n) exactly.
    missing = 2 * M / (M - 1) ** 2 * np.outer(1 + sigma, 1 + theta) * (1 - np.eye(K))
    np.testing.assert_allclose(found - printed, missing, atol=scale)


@exact
@given(seed=seeds, K=sizes, M=st.integers(8, 10**6), overlap=st.floats(1e-6, 0.2))
def test_xi_is_positive_wherever_row_sums_are_below_one(random_classes, seed, K, M, overlap):
    E = correlation(random_classes(seed, K=K, overlap=overlap))
    found = xi(E, M=M)
    if E.sum(1).max() < 1:
        assert np.all(found[E.any(1)] > 0)
    np.testing.assert_allclose(found[~E.any(1)], 0.0, atol=1e-15)


@exact
@given(seed=seeds, K=sizes, M=st.integers(8, 10**4))
def test_xi_closed_form(random_classes, seed, K, M):
    E = correlation(random_classes(seed, K=K))
    inverse = np.linalg.inv(np.eye(K) + E)
    own = np.diagonal(inverse)
    expected = M / (M - 1) * (own - 1) + M / (M - 1) ** 2 * (own - inverse.sum(1))
    np.testing.assert_allclose(xi(E, M=M), expected, rtol=1e-9, atol=1e-13)


def test_printed_xi_is_negative_below_overlap_one_over_m():
    M = 1000
    assert np.all(xi(equal(2, 0.9 / M), M=M, form="printed") < 0)
    assert np.all(xi(equal(2, 0.9 / M), M=M) > 0)
    assert np.all(xi(equal(2, 1.1 / M), M=M, form="printed") > 0)


def test_a_single_beta_can_be_negative_where_xi_is_positive():
    """A chain of four classes within Assumption 2: neighbours overlap, others do not."""
    E = 0.15 * (np.eye(4, k=1) + np.eye(4, k=-1))
    assert assumption_2(E, M=10**4).holds
    assert beta(E, M=10**4)[0, 2] == pytest.approx(-0.024, abs=1e-3)
    assert np.all(xi(E, M=10**4) > 0)


def test_printed_xi_is_positive_under_assumption_2_and_a_weaker_floor():
    for M in (200, 1000, 10**5):
        # The last line of the proof needs min lambda^2 > 6/M, less than Assumption 2's 36/M.
        rho = 1.001 * np.sqrt(6 / M)
        assert rho < 6 / np.sqrt(M)
        assert np.all(xi(equal(2, rho), M=M, form="printed") > 0)
        assert not assumption_2(equal(2, rho), M=M).smallest.holds


def test_corrected_xi_can_be_negative_when_correlations_are_strong():
    # Class 0 touches only class 1, which overlaps 2 and 3 strongly: row sums above 1.
    E = np.zeros((4, 4))
    E[0, 1] = E[1, 0] = 0.001
    E[1, 2] = E[2, 1] = E[1, 3] = E[3, 1] = 0.6
    assert np.linalg.eigvalsh(np.eye(4) + E).min() > 0.15
    assert xi(E, M=100)[0] == pytest.approx(-3.6804e-06, rel=1e-4)


@pytest.mark.parametrize("M", [30, 1000])
def test_plain_update_starts_with_beta_one_over_m(random_classes, M):
    # One expected-gradient step of Eq. 7 from Y = 0, for any correlations.
    f = unit_attention(random_classes(3, K=4))
    eta = 1e-6
    Y = eta / 4 * f.T @ (np.eye(M)[:4] - 1 / M)
    coefficient = gradient_coefficients(f @ Y, correlation(f)) / gamma(1, K=4, M=M, eta_y=eta)
    off = -coefficient[~np.eye(4, dtype=bool)]
    np.testing.assert_allclose(off, M / (M - 1) ** 2, rtol=1e-4)
    assert beta(correlation(f), M=M).max() > 3 / M


def test_remainders_of_eqs_87_and_89_are_below_3_over_m():
    M, q1 = 1000.0, 1000.0 / 999.0
    for rho in (0.05, 0.3, 0.49):
        E = np.array([[0.0, rho], [rho, 0.0]])
        Ep = np.eye(2) - np.linalg.inv(np.eye(2) + E)
        second = iota(E, M=M) - q1 * (1.0 - np.diagonal(Ep))
        third = beta(E, M=M)[0, 1] - q1 * Ep[0, 1]
        # by hand, q_0 = -M/(M-1)^2: delta_2 = -q_0 E'_12, delta_3 = -q_0 (1 - E'_22)
        np.testing.assert_allclose(second, M / (M - 1) ** 2 * Ep[0, 1], rtol=1e-9)
        assert third == pytest.approx(M / (M - 1) ** 2 * (1.0 - Ep[1, 1]), rel=1e-9)
        assert max(np.abs(second).max(), abs(third)) < 3.0 / M


def test_leading_axes():
    E = np.stack([equal(3, 0.1), equal(3, 0.2)])
    np.testing.assert_allclose(beta(E, M=50)[1], beta(E[1], M=50))
    np.testing.assert_allclose(xi(E, M=50)[0], xi(E[0], M=50))
    np.testing.assert_allclose(iota(E, M=50)[1], iota(E[1], M=50))


def test_bad_input_names_the_field():
    with pytest.raises(ValueError, match="form must be one of"):
        beta(equal(2, 0.1), M=10, form="paper")
    with pytest.raises(ValueError, match="M must be >= 2"):
        xi(equal(2, 0.1), M=1)
