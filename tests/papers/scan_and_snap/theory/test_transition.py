"""Theorem 4: B_n as printed and corrected, its regimes, and what it says about learning rates."""

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

from attnlab.formulas import Setting, unit_attention
from attnlab.papers.scan_and_snap.theory import (
    attention_flow,
    attention_velocity,
    common_token_path,
    correlation,
    density_threshold,
    gamma,
    growth_bound,
    reduced_time,
    snapping,
    transition_times,
    xi,
)

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
