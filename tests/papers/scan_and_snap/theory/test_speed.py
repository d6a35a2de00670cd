"""gamma, its peak and its stages (Lemmas 8 and 9), and the reduced time (Eq. 128)."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.optimize import minimize_scalar

from attnlab.formulas import momentum_steps, momentum_time
from attnlab.papers.scan_and_snap.theory import (
    gamma,
    gamma_peak,
    gamma_stages,
    h,
    omega_0,
    omega_1,
    reduced_time,
    transition_times,
)

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
