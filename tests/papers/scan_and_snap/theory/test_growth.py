"""h and h* (Lemmas 5 to 7), gamma and the reduced time (Lemmas 8, 9, Eq. 128), and Theorem 4."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.optimize import minimize_scalar

from attnlab.formulas import Setting, momentum_steps, momentum_time, unit_attention
from attnlab.papers.scan_and_snap.theory import (
    attention_flow,
    attention_velocity,
    common_token_path,
    correlation,
    density_threshold,
    gamma,
    gamma_peak,
    gamma_stages,
    growth_bound,
    h,
    h_gap_bound,
    h_inverse,
    h_lead,
    h_star,
    omega_0,
    omega_1,
    reduced_time,
    snapping,
    transition_times,
    xi,
)


def root_of_eq_45(t: float, M: int, eta_y: float) -> float:
    with mpmath.workdps(60):
        target = mpmath.mpf(M) * mpmath.mpf(eta_y) * mpmath.mpf(t)
        x = mpmath.mpf(float(h(t, M=M, eta_y=eta_y))) * M
        for _ in range(50):
            x -= (mpmath.expm1(x) + (M - 1) * x - target) / (M - 1 + mpmath.exp(x))
        return float(x / M)


@pytest.mark.parametrize("M", [2, 10, 1000, 10**9])
@pytest.mark.parametrize("t", [1e-12, 1e-3, 1.0, 1e3, 1e15])
@pytest.mark.parametrize("eta_y", [1e-3, 0.5, 10.0])
def test_h_solves_eq_45(M, t, eta_y):
    assert h(t, M=M, eta_y=eta_y) == pytest.approx(root_of_eq_45(t, M, eta_y), rel=1e-14)


def test_h_obeys_its_differential_equation():
    t = np.geomspace(0.01, 1e4, 60)
    M, eta_y, d = 100, 0.3, 1e-5
    slope = (h(t * (1 + d), M=M, eta_y=eta_y) - h(t * (1 - d), M=M, eta_y=eta_y)) / (2 * d * t)
    expected = eta_y / (M - 1 + np.exp(M * h(t, M=M, eta_y=eta_y)))
    np.testing.assert_allclose(slope, expected, rtol=1e-8)


def test_limits_and_shapes():
    assert h(0.0, M=10, eta_y=1.0) == 0.0
    assert h(np.inf, M=10, eta_y=1.0) == np.inf
    assert isinstance(h(1.0, M=10, eta_y=1.0), float)
    assert h([1.0, 2.0], M=10, eta_y=1.0).shape == (2,)
    assert h(np.ones((3, 1)), M=np.array([10.0, 20.0]), eta_y=1.0).shape == (3, 2)


def test_inverse():
    t = np.geomspace(1e-6, 1e12, 40)
    np.testing.assert_allclose(h_inverse(h(t, M=500, eta_y=0.2), M=500, eta_y=0.2), t, rtol=1e-12)


def test_h_star_is_the_recursion_of_eq_33_in_any_order():
    M, eta_y = 7, 0.4
    value, path = 0.0, [0.0]
    for _ in range(50):
        value += eta_y / (M - 1 + np.exp(M * value))
        path.append(value)
    steps = np.array([[50, 3], [0, 3]])
    np.testing.assert_allclose(h_star(steps, M=M, eta_y=eta_y), np.array(path)[steps], rtol=1e-14)
    assert isinstance(h_star(3, M=M, eta_y=eta_y), float)


def test_h_star_does_not_overflow_at_large_rates():
    assert h_star(5, M=1000, eta_y=1e6) == pytest.approx(1e3, rel=1e-12)


def test_many_small_steps_are_the_flow():
    flow = h(20.0, M=100, eta_y=1.0)
    count = np.array([200, 400, 800, 1600])
    error = [h_star(int(n), M=100, eta_y=20.0 / n) - flow for n in count]
    slope = np.polyfit(np.log(count), np.log(error), 1)[0]
    # Euler's method has order 1; the band allows for its next order.
    assert -1.02 < slope < -0.98


@pytest.mark.parametrize("M", [4, 100, 10**5])
@pytest.mark.parametrize("eta_y", [0.1, 1.0, 10.0])
def test_lemma_7_and_its_tighter_bound(M, eta_y):
    s = np.arange(1, 2000)
    gap = h_star(s, M=M, eta_y=eta_y) - h(s, M=M, eta_y=eta_y)
    assert np.all(gap > 0)
    assert np.all(gap <= h_gap_bound(M=M, eta_y=eta_y))
    assert h_gap_bound(M=M, eta_y=eta_y, form="printed") == 2 * h_gap_bound(M=M, eta_y=eta_y)


def test_lemma_7_gap_is_eta_over_2e_m_for_small_rates():
    s = np.arange(1, 3000)
    gap = h_star(s, M=1000, eta_y=0.01) - h(s, M=1000, eta_y=0.01)
    assert gap.max() * 1000 / 0.01 == pytest.approx(1 / (2 * np.e), rel=2e-3)


def test_lemma_7b_gap_vanishes_like_ln_s_over_s():
    s = np.array([10**4, 10**5, 10**6])
    gap = 10 * (h_star(s, M=10, eta_y=1.0) - h(s, M=10, eta_y=1.0))
    # M gap = (ln s + const) / (2 s): the increments of 2 s M gap per decade are ln 10.
    np.testing.assert_allclose(np.diff(2 * s * gap), np.log(10), rtol=0.01)


def test_remark_2_fails_the_lead_grows_without_bound():
    s = np.array([10**4, 10**5, 10**6])
    lead = h_lead(s, M=10, eta_y=1.0)
    np.testing.assert_allclose(np.diff(lead), np.log(10) / 2, rtol=0.01)
    assert lead[-1] > 3 * np.log(10)


def test_bad_input_names_the_field():
    with pytest.raises(ValueError, match="eta_y must be > 0"):
        h(1.0, M=10, eta_y=0.0)
    with pytest.raises(ValueError, match="M must be >= 2"):
        h(1.0, M=1, eta_y=1.0)
    with pytest.raises(ValueError, match="t must be >= 0"):
        h(-1.0, M=10, eta_y=1.0)
    with pytest.raises(ValueError, match="steps must be integers"):
        h_star(1.5, M=10, eta_y=1.0)
    with pytest.raises(ValueError, match="form must be one of 'corrected', 'printed'"):
        h_gap_bound(M=10, eta_y=1.0, form="right")


RATES = {"K": 10, "M": 1000, "eta_y": 0.5}


def test_gamma_is_its_definition_and_has_its_limits():
    t = np.geomspace(1, 1e5, 30)
    x = h(t / 10, M=1000, eta_y=0.5)
    np.testing.assert_allclose(gamma(t, **RATES), 999**2 * x / (999 + np.exp(1000 * x)), rtol=1e-13)
    assert gamma(0.0, **RATES) == 0.0
    assert gamma(np.inf, **RATES) == 0.0
    late = gamma_stages(1e15, K=10, M=1e9, eta_y=0.5).late
    assert gamma(1e15, K=10, M=1e9, eta_y=0.5) == pytest.approx(late, rel=1e-8)


@pytest.mark.parametrize("M", [2, 10, 1000, 10**6])
def test_peak(M):
    t, value = gamma_peak(K=3, M=M, eta_y=0.7)
    found = minimize_scalar(
        lambda s: -gamma(s, K=3, M=M, eta_y=0.7), bracket=(t / 2, t, 2 * t), tol=1e-10
    )
    assert t == pytest.approx(found.x, rel=1e-6)
    assert value == pytest.approx(gamma(t, K=3, M=M, eta_y=0.7), rel=1e-13)


@pytest.mark.parametrize("M", [19, 1000, 10**9])
def test_peak_is_before_the_first_transition(M):
    assert gamma_peak(K=1, M=M, eta_y=1.0).t < transition_times(K=1, M=M, eta_y=1.0).t0_prime


def test_peak_is_after_the_first_transition_in_tiny_vocabularies():
    assert gamma_peak(K=1, M=18, eta_y=1.0).t > transition_times(K=1, M=18, eta_y=1.0).t0_prime


@pytest.mark.parametrize("M", [4, 100, 1000, 10**9])
def test_omegas_are_the_zeros_of_lemma_8(M):
    with mpmath.workdps(50):
        small = -mpmath.lambertw(mpmath.mpf(-1) / (M - 1), 0)
        large = -mpmath.lambertw(mpmath.mpf(-1) / (M - 1), -1)
        first = float(1 + mpmath.log(mpmath.re(small)) / mpmath.log(M))
        second = float(mpmath.re(large) / mpmath.log(M) - 1)
    assert omega_0(M) == pytest.approx(first, rel=1e-12)
    assert omega_1(M) == pytest.approx(second, rel=1e-12)


def test_omega_1_is_not_small():
    assert omega_1(1000) == pytest.approx(0.3198, abs=1e-4)
    with pytest.raises(ValueError, match="M must be"):
        omega_1(3)


@pytest.mark.parametrize("M", [100, 1000, 10**6])
def test_lemma_9_stages(M):
    t0_prime, t0 = transition_times(K=4, M=M, eta_y=0.5)
    rates = {"K": 4, "M": M, "eta_y": 0.5}
    early = np.linspace(1e-3, 1, 100) * t0_prime
    ratio = gamma(early, **rates) / gamma_stages(early, **rates).early
    assert np.all((ratio > 0.5) & (ratio < 1.0))
    late = np.geomspace(1, 1e9, 100) * t0
    ratio = gamma(late, **rates) / gamma_stages(late, **rates).late
    assert np.all((ratio > 1.0 - 2.0 / M) & (ratio < 2.0))
    assert np.all(np.exp(M * h(late / 4, M=M, eta_y=0.5)) >= M - 1)


def test_the_constant_of_lemma_9_tends_to_2_and_eq_52_fails_up_to_4():
    M = np.array([1e9, 1e30, 1e100, 1e150])
    rates = {"K": 4, "M": M, "eta_y": 0.5}
    t0 = transition_times(**rates).t0
    short_of_2 = 2.0 - gamma(t0, **rates) / gamma_stages(t0, **rates).late
    assert np.all((short_of_2 > 0) & (np.diff(short_of_2, append=0.0) < 0))
    assert short_of_2[-1] < 0.01
    few = np.arange(2.0, 1001.0)
    room = (few - 2.0 + (few - 1.0) * np.log(few - 1.0)) / few - np.log(few)  # Eq. 52
    assert few[room <= 0].tolist() == [2.0, 3.0, 4.0]


def test_theorem_1b_without_m_in_the_logarithm_is_not_uniform_in_m():
    ratios = []
    for M in (1e3, 1e6, 1e9):
        t0 = transition_times(K=1, M=M, eta_y=1.0).t0
        rates = {"K": 1, "M": M, "eta_y": 1.0}
        ratios.append(gamma(t0, **rates) / gamma_stages(t0, **rates, form="printed").late)
    assert ratios == pytest.approx([5.645, 8.951, 11.863], abs=1e-2)


def test_lemma_9_fails_near_zero():
    # exp(M h) <= (M - 1) M h cannot hold as h tends to 0; Remark 3 excludes it by t >= 1.
    x = 1000 * h(1e-4, M=1000, eta_y=1.0)
    assert np.exp(x) > 999 * x


def test_eq_128_is_the_integral_of_gamma():
    for t in (1.0, 100.0, 365.0, 1e4):
        integral = quad(lambda s: gamma(s, **RATES), 0, t, epsabs=1e-13, epsrel=1e-12, limit=200)[0]
        assert reduced_time(t, **RATES, eta_z=2.0) == pytest.approx(2 * integral, rel=1e-10)
    assert reduced_time(0.0, **RATES, eta_z=1.0) == 0.0
    assert reduced_time(np.inf, **RATES, eta_z=1.0) == np.inf


def test_eq_128_against_a_stiff_solver_of_both_equations():
    K, M, eta_y, eta_z = 5, 200, 0.8, 0.3

    def slope(_, state):
        grown = state[0]
        down = M - 1 + np.exp(M * grown)
        return [eta_y / down / K, eta_z * (M - 1) ** 2 * grown / down]

    t = np.geomspace(1, 1e5, 20)
    found = solve_ivp(slope, (0, t[-1]), [0.0, 0.0], "Radau", t_eval=t, rtol=1e-12, atol=1e-16).y
    np.testing.assert_allclose(h(t / K, M=M, eta_y=eta_y), found[0], rtol=1e-10)
    tau = reduced_time(t, K=K, M=M, eta_y=eta_y, eta_z=eta_z)
    np.testing.assert_allclose(tau, found[1], rtol=1e-10)


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.9, 0.99])
def test_momentum_time_adds_up_the_steps_of_a_constant_gradient(momentum):
    memory, moved = 0.0, [0.0]
    for _ in range(50):
        memory = momentum * memory + 1.0
        moved.append(moved[-1] + memory)
    steps = np.arange(51)
    np.testing.assert_allclose(
        momentum_time(steps, momentum=momentum), moved, rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(
        momentum_steps(moved, momentum=momentum), steps, rtol=1e-7, atol=1e-6
    )
    with pytest.raises(ValueError, match="momentum"):
        momentum_time(1.0, momentum=1.0)


FIG_3 = {"K": 10, "M": 1000, "eta_y": 0.5, "eta_z": 0.5}
C0 = 0.1


def test_b_n_is_the_integral_of_xi_under_theorem_4():
    def slope(t, state):
        z, _ = state
        rate = 0.5 * gamma(t, K=10, M=1000, eta_y=0.5) * np.exp(4 * z) / C0
        return [-rate, rate]

    t = np.array([1.0, 50.0, 200.0, 400.0, 1e4])
    found = solve_ivp(slope, (0, t[-1]), [0.0, 0.0], "DOP853", t_eval=t, rtol=1e-12, atol=1e-14).y
    np.testing.assert_allclose(growth_bound(t, **FIG_3, C0=C0), found[1], rtol=1e-9)
    printed = growth_bound(t, **FIG_3, C0=C0, form="printed")
    np.testing.assert_allclose(printed, found[1] + np.log(C0) / 4, rtol=1e-9)


def test_b_n_starts_at_zero_only_when_corrected():
    assert growth_bound(0.0, **FIG_3, C0=C0) == 0.0
    assert growth_bound(0.0, **FIG_3, C0=C0, form="printed") == pytest.approx(np.log(C0) / 4)
    assert growth_bound(np.inf, **FIG_3, C0=C0) == np.inf


def test_the_bound_on_chi_starts_at_one_only_when_corrected():
    at = {"K": 10, "M": 1000, "eta_y": 0.9, "eta_z": 0.03}
    share = 0.24  # f_l0(0)^2
    for C0, claims_too_much in ((12.8, True), (0.1, False)):
        printed = np.exp(2 * share * growth_bound(0.0, C0=C0, form="printed", **at))
        assert printed == pytest.approx(C0 ** (share / 2))
        assert (printed > 1.0) == claims_too_much
        assert np.exp(2 * share * growth_bound(0.0, C0=C0, **at)) == 1.0


def test_slope_of_b_n_is_eta_z_xi():
    # Eq. 123: xi = gamma / (C_0 + 4 Gamma); the constant does not change the slope.
    t = np.geomspace(1, 1e5, 20)
    tau = reduced_time(t, **FIG_3)
    expected = 0.5 * gamma(t, K=10, M=1000, eta_y=0.5) / (C0 + 4 * tau)
    for form in ("corrected", "printed"):
        up, down = (growth_bound(t * (1 + s), **FIG_3, C0=C0, form=form) for s in (1e-5, -1e-5))
        np.testing.assert_allclose((up - down) / (2e-5 * t), expected, rtol=1e-6)
    integral = quad(
        lambda s: 0.5 * gamma(s, K=10, M=1000, eta_y=0.5) / (C0 + 4 * reduced_time(s, **FIG_3)),
        0,
        300.0,
        epsrel=1e-12,
    )[0]
    assert growth_bound(300.0, **FIG_3, C0=C0) == pytest.approx(integral, rel=1e-10)


@pytest.mark.parametrize("form", ["corrected", "printed"])
def test_regimes_of_eq_14(form):
    t0_prime, t0 = transition_times(K=10, M=1000, eta_y=0.5)
    t = np.array([1.0, 0.99 * t0_prime, t0_prime, 0.99 * t0, t0, 1e6, 1e15])
    found = snapping(t, **FIG_3, C0=C0, form=form)
    assert found.regime.tolist() == ["scanning"] * 2 + ["between"] * 2 + ["snapping"] * 3
    assert (found.t0_prime, found.t0) == (t0_prime, t0)
    assert found.scanning[0] == pytest.approx(found.exact[0], rel=1e-3)
    # B goes like (1/2) ln h, so the 8% by which Eq. 14 misses h is at most 0.045 in B.
    assert abs(found.scanning[1] - found.exact[1]) < 0.045
    np.testing.assert_allclose(found.snapping[4:], found.exact[4:], atol=0.045)
    np.testing.assert_allclose(found.snapping[-1], found.exact[-1], rtol=1e-6)
    np.testing.assert_allclose(found.asymptotic[-1], found.exact[-1], rtol=1e-5)


def test_neglected_terms_of_h_at_the_transitions():
    t0_prime, t0 = transition_times(K=1, M=1000, eta_y=1.0)
    rates = {"K": 1, "M": 1000, "eta_y": 1.0, "eta_z": 1.0}
    grown = np.sqrt(2 * reduced_time(np.array([t0_prime, t0]), **rates)) * 1000 / 999
    assert grown[0] / np.log(1000) - 1 == pytest.approx(-0.0814, abs=1e-3)
    assert grown[1] / np.log(1000 * t0) - 1 == pytest.approx(-0.0706, abs=1e-3)


def test_growth_is_ln_t_then_ln_ln_t():
    early = np.geomspace(3, 30, 10)
    slope = np.polyfit(np.log(early), growth_bound(early, **FIG_3, C0=1e-4), 1)[0]
    assert 0.49 < slope < 0.51
    late = np.geomspace(1e8, 1e15, 10)
    slope = np.polyfit(np.log(np.log(1000 * 0.05 * late)), growth_bound(late, **FIG_3, C0=C0), 1)[0]
    assert 0.49 < slope < 0.51


def test_eq_132_has_the_right_limit_and_a_wrong_constant():
    t, at = 10.0 ** np.array([12, 48, 96]), {**FIG_3, "C0": 12.8}
    exact = growth_bound(t, **at)
    printed, corrected = (snapping(t, **at, form=f).asymptotic for f in ("printed", "corrected"))
    np.testing.assert_allclose(corrected - exact, 0.0, atol=0.01)
    np.testing.assert_allclose(printed - exact, np.log(12.8) / 4, atol=0.01)
    assert np.all(np.diff(printed / exact) < 0)
    assert printed[-1] / exact[-1] > 1.1  # the gap stays: the ratio tends to 1 as 1/(ln ln t)


def test_b_n_at_t0_needs_the_corrected_constant():
    rates = {"K": 2, "M": 1000, "eta_y": 0.11, "eta_z": 0.11 / 30, "C0": 6.57}
    t0 = transition_times(K=2, M=1000, eta_y=0.11).t0
    exact = growth_bound(t0, **rates)
    assert exact == pytest.approx(0.247, abs=1e-3)
    assert snapping(t0, **rates, form="printed").snapping == pytest.approx(0.741, abs=1e-3)
    assert snapping(t0, **rates).snapping == pytest.approx(exact, abs=0.045)


def test_both_rates_up_is_a_rescaling_of_time():
    rates = {"K": 10, "M": 1000, "C0": C0}
    slow = growth_bound(900.0, eta_y=0.5, eta_z=0.5, **rates)
    assert growth_bound(300.0, eta_y=1.5, eta_z=1.5, **rates) == pytest.approx(slow, rel=1e-13)
    # Hence B_n(t_0) depends on the ratio alone (end of Appendix F, part 2).
    at_t0 = [
        growth_bound(transition_times(K=10, M=1000, eta_y=s).t0, eta_y=s, eta_z=2 * s, **rates)
        for s in (0.1, 1.0, 8.0)
    ]
    np.testing.assert_allclose(at_t0, at_t0[0], rtol=1e-12)


@pytest.mark.parametrize("M", [10, 1000, 10**9])
def test_larger_eta_y_is_denser_only_after_a_threshold(M):
    t = density_threshold(K=10, M=M, eta_y=0.5)

    def change(time):
        up, down = (
            growth_bound(time, K=10, M=M, eta_y=0.5 * s, eta_z=0.5, C0=C0) for s in (1.0001, 0.9999)
        )
        return up - down

    assert change(0.99 * t) > 0 > change(1.01 * t)
    t0_prime, t0 = transition_times(K=10, M=M, eta_y=0.5)
    assert t0_prime < t < t0


def test_density_threshold_value():
    assert density_threshold(K=1, M=1000, eta_y=1.0) == pytest.approx(8.6027, abs=1e-4)


def test_eq_13_factors_of_k(one_common):
    # Weak overlap at the start: xi = gamma (K - 1) / rho_0^4, and dz/dt = -eta_Z xi at weight 1/K.
    K, M = 10, 10**7
    P = one_common(K, 50, 0.02)
    rho = correlation(P)[0, 1]
    v = attention_velocity(Setting(P, M=M), np.zeros(P.shape[1]))[0, 0]
    np.testing.assert_allclose(xi(correlation(P), M=M), (K - 1) * rho**2, rtol=0.2)
    assert v == pytest.approx(-(K - 1) * rho**2, rel=0.2)
    as_printed = attention_velocity(Setting(P, M=M), np.zeros(P.shape[1]), weight=1.0)[0, 0]
    assert as_printed == pytest.approx(-K * (K - 1) * rho**2, rel=0.2)


def test_distinct_tokens_share_what_the_common_token_loses(one_common):
    K = 5
    P = one_common(K, 4, 0.3, rising=True)
    for weight in (None, 1.0):
        flow = attention_flow(Setting(P, M=1000, eta_y=1, eta_z=1), [10.0, 1e4], weight=weight)
        z = flow.logits[:, 0]
        for n in range(K):
            gained = z[:, 1 + 4 * n : 5 + 4 * n].sum(1)
            np.testing.assert_allclose(gained, -z[:, 0] / K, rtol=1e-8)


def test_common_token_path_follows_the_flow_when_corrected(one_common):
    K, M, rates = 10, 1000, {"eta_y": 0.5, "eta_z": 0.5}
    P = one_common(K, 50, 0.02)
    rho0 = 1 / unit_attention(P)[0, 0]
    t = np.array([100.0, 1e3, 1e4])
    flow = attention_flow(Setting(P, M=M, **rates), t)
    found = common_token_path(t, K=K, M=M, rho0=rho0, **rates)
    np.testing.assert_allclose(found.logit, flow.logits[:, 0, 0], rtol=0.05)
    np.testing.assert_allclose(found.growth_bound, flow.growth_bound[:, 0], rtol=0.05)
    printed = common_token_path(t, K=K, M=M, rho0=rho0, form="printed", **rates)
    assert np.all(printed.growth_bound / flow.growth_bound[:, 0] > 0.95 * K)
    corrected = growth_bound(t, K=K, M=M, C0=rho0**4 / (K - 1), **rates)
    np.testing.assert_allclose(K * found.growth_bound, corrected, rtol=1e-12)
