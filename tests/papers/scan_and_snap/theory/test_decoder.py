"""E, E', Assumption 2 (Lemmas 13 to 17); iota, beta, xi (Theorem 1); decoders (Theorem 5).

The coefficients are compared with linear algebra on the decoder, decoders with ones trained here.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from attnlab.formulas import Setting, unit_attention
from attnlab.papers.scan_and_snap.theory import (
    assumption_2,
    attention_flow,
    back_gradient,
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
    iota,
    plain_coefficients,
    plain_decoder,
    spectrum_bounds,
    steps_to_error,
    transition_times,
    visit_deviations,
    xi,
)

exact = settings(max_examples=60, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 8)


def equal(K, rho):
    return rho * (np.ones((K, K)) - np.eye(K))


def test_correlation_ignores_tokens_out_of_play(syn_small):
    E = correlation(syn_small)
    f = unit_attention(syn_small)
    assert E[0, 1] == pytest.approx(f[0] @ f[1], rel=1e-14)
    assert E[0, 0] == 0.0
    wide = np.hstack([syn_small, np.zeros((2, 50))])
    np.testing.assert_allclose(correlation(wide), E, rtol=1e-14)


@pytest.mark.slow
@exact
@given(seed=seeds, K=sizes)
def test_e_prime_identity(random_classes, seed, K):
    E = correlation(random_classes(seed, K=K))
    Ep, unit = e_prime(E), np.eye(K)
    np.testing.assert_allclose((unit + E) @ (unit - Ep), unit, atol=1e-12)
    np.testing.assert_allclose(Ep, Ep.T, atol=1e-12)
    np.testing.assert_allclose(e_prime(E, form="printed"), -Ep, rtol=1e-15)


@exact
@given(seed=seeds, K=sizes, overlap=st.floats(0.02, 0.3))
def test_lemmas_13_to_17(random_classes, seed, K, overlap):
    E = correlation(random_classes(seed, K=K, overlap=overlap))
    bounds = spectrum_bounds(E)
    Ep = e_prime(E)
    assert np.abs(E).max() <= bounds.entry + 1e-14
    assert np.abs(np.linalg.eigvalsh(Ep)).max() <= bounds.e_prime_radius + 1e-12
    assert np.abs(Ep - E).max() <= bounds.e_prime_gap + 1e-12
    overlaps = E.any(1)
    assert np.all(np.diagonal(Ep)[overlaps] < 0)
    np.testing.assert_allclose(np.diagonal(Ep)[~overlaps], 0.0, atol=1e-14)
    np.testing.assert_allclose((E * Ep).sum(1), -np.diagonal(Ep), atol=1e-12)


@exact
@given(seed=seeds, K=sizes, overlap=st.floats(0.02, 0.3))
def test_the_modified_update_changes_by_less_than_2_over_sqrt_3(random_classes, seed, K, overlap):
    f = unit_attention(random_classes(seed, K=K, overlap=overlap))
    E = f @ f.T - np.eye(K)
    radius = np.abs(np.linalg.eigvalsh(E)).max()
    assume(radius < 1.0)  # Assumption 2 asks for |lambda_1| < 1/K
    change = np.linalg.norm(f.T @ e_prime(E), axis=0).max()
    assert change <= radius / np.sqrt(1.0 - radius**2) + 1e-12
    pair = np.array([[1.0, 0.0], [0.4999, np.sqrt(1.0 - 0.4999**2)]])  # |lambda_1| just below 1/2
    most = np.linalg.norm(pair.T @ e_prime(pair @ pair.T - np.eye(2)), axis=0).max() / 0.4999
    assert most == pytest.approx(2 / np.sqrt(3), abs=1e-4)


@exact
@given(seed=seeds, K=sizes, overlap=st.floats(0.02, 0.3))
def test_f_has_full_column_rank(random_classes, seed, K, overlap):
    f = unit_attention(random_classes(seed, K=K, overlap=overlap))
    radius = np.abs(np.linalg.eigvalsh(f @ f.T - np.eye(K))).max()
    least = np.linalg.svd(f, compute_uv=False).min()
    assert least**2 >= 1.0 - radius - 1e-12
    twice = np.vstack([f, f[:1]])  # a class that is there twice
    assert np.linalg.matrix_rank(twice) == K


def test_printed_sign_of_e_prime_breaks_eqs_26_to_30(syn_small):
    f = unit_attention(syn_small)
    E = correlation(syn_small)
    for form, error in (("corrected", 0.0), ("printed", 2 * np.abs(E).max())):
        direction = f.T @ (np.eye(2) - e_prime(E, form=form))
        found = np.abs(f @ direction - np.eye(2)).max()
        assert found == pytest.approx(error, abs=1e-14)
    # Lemma 16 says that the diagonal of E' is negative.
    assert np.all(np.diagonal(e_prime(E, form="printed")) > 0)


def test_dependent_classes_are_refused():
    with pytest.raises(ValueError, match="E must leave I \\+ E invertible"):
        e_prime(equal(2, 1.0))


def test_assumption_2_parts_and_margins():
    found = assumption_2(equal(2, 0.4), M=1000)
    assert found.holds
    assert found.largest.margin == pytest.approx(0.1)
    assert found.smallest.margin == pytest.approx(0.4 - 6 / np.sqrt(1000))
    assert not assumption_2(equal(2, 0.6), M=1000).largest.holds
    assert not assumption_2(equal(2, 0.1), M=1000).smallest.holds


def test_assumption_2_is_impossible_in_fig_3_and_syn_small(syn_small):
    for K, M in ((10, 1000), (2, 30)):
        for rho in np.linspace(0.001, 0.999, 200):
            assert not assumption_2(equal(K, rho), M=M).holds
        assert not assumption_2(equal(K, 0.1), M=M).feasible.holds
    assert not assumption_2(correlation(syn_small), M=30).holds


def test_assumption_2_window_for_equal_overlaps():
    K, rho = 4, 1 / 12
    M = 36 / rho**2
    assert not assumption_2(equal(K, rho), M=2 * M).largest.holds
    assert assumption_2(equal(K, 0.99 * rho), M=1.05 * M).holds
    assert not assumption_2(equal(K, 0.99 * rho), M=M).smallest.holds


def test_overlaps_pass_below_the_floor_along_eq_10():
    """Assumption 2 cannot hold at every t: the common token shrinks, and the overlap with it."""
    P = [[0.3, 0.7, 0.0], [0.3, 0.0, 0.7]]
    z = attention_flow(Setting(P, M=5000, eta_y=0.9, eta_z=0.03), [0.0, 1e3, 1e6, 1e12]).logits
    overlap = correlation(P, z)[:, 0, 1]
    assert assumption_2(correlation(P), M=5000).holds
    assert np.all(np.diff(overlap) < 0)
    assert overlap[-1] < 6 / np.sqrt(5000)


fewer = st.integers(2, 7)


def brute_force(f, visits, M, eta_y):
    """Y of Theorem 5 and g[n] = Y (e_n - alpha_n), with nothing but matrix products."""
    Y = decoder_weights(f, h(visits, M=M, eta_y=eta_y), M=M)
    odds = np.exp(f @ Y)
    error = np.eye(M)[: len(f)] - odds / odds.sum(1, keepdims=True)
    return Y, error @ Y.T


@exact
@given(seed=seeds, K=fewer, M=st.integers(8, 60))
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
@given(seed=seeds, K=fewer, M=st.integers(8, 10**6), overlap=st.floats(1e-6, 0.2))
def test_xi_is_positive_wherever_row_sums_are_below_one(random_classes, seed, K, M, overlap):
    E = correlation(random_classes(seed, K=K, overlap=overlap))
    found = xi(E, M=M)
    if E.sum(1).max() < 1:
        assert np.all(found[E.any(1)] > 0)
    np.testing.assert_allclose(found[~E.any(1)], 0.0, atol=1e-15)


@exact
@given(seed=seeds, K=fewer, M=st.integers(8, 10**4))
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
