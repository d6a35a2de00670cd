"""Eq. 10 and its solution: velocity against brute force, flow against its exact consequences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from attnlab.formulas import Setting, logit_gradient, sample_gradient, unit_attention
from attnlab.papers.scan_and_snap.theory import (
    attention_flow,
    attention_path,
    attention_velocity,
    back_gradient,
    beta,
    correlation,
    decoder_weights,
    gamma,
    h,
    reduced_time,
    xi,
)

exact = settings(max_examples=40, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)
RATES = {"eta_y": 0.5, "eta_z": 0.3}


@exact
@given(seed=seeds, K=st.integers(2, 6))
def test_velocity_is_eq_97_and_eq_96(random_classes, seed, K):
    rng = np.random.default_rng(seed)
    P, M = random_classes(seed, K=K), 100
    psi = rng.integers(0, 2, K)
    z = rng.normal(size=(2, P.shape[1]))
    f = unit_attention(Setting(P, psi=psi), z)
    b = beta(correlation(Setting(P, psi=psi), z), M=M)
    expected = np.zeros_like(z)
    for n in range(K):
        for other in range(K):
            if other != n:
                inner = (f[n] @ f[other]) * f[n] - f[other]
                expected[psi[n]] += b[n, other] * f[n] * inner
    found = attention_velocity(Setting(P, psi=psi, M=M), z, weight=1.0)
    np.testing.assert_allclose(found, expected, atol=1e-13)
    np.testing.assert_allclose(
        attention_velocity(Setting(P, psi=psi, M=M), z), expected / K, atol=1e-13
    )
    gradient = logit_gradient(f, back_gradient(f, M=M))
    np.testing.assert_allclose(found[0], gradient[psi == 0].sum(0), atol=1e-12)
    np.testing.assert_allclose(found.sum(1), 0.0, atol=1e-13)


def test_class_weight_is_what_batch_one_steps_need(syn_small):
    # The mean over classes of Lemma 1's gradient, at Theorem 5's decoder, is Eq. 10 with 1/K.
    M, eta_y, t = 30, 0.5, 12.0
    f = unit_attention(syn_small)
    Y = decoder_weights(f, h(t / 2, M=M, eta_y=eta_y), M=M)
    z = np.zeros(30)
    mean = np.mean([sample_gradient(P, z, Y, target=n).logits for n, P in enumerate(syn_small)], 0)
    speed = gamma(t, K=2, M=M, eta_y=eta_y)
    found = speed * attention_velocity(Setting(syn_small, M=M), z)[0]
    np.testing.assert_allclose(found, mean, atol=1e-14)
    printed = speed * attention_velocity(Setting(syn_small, M=M), z, weight=1.0)[0]
    np.testing.assert_allclose(printed, 2 * mean, atol=1e-14)


def test_leading_axes_and_weights(syn_small):
    z = np.random.default_rng(0).normal(size=(5, 2, 30))
    found = attention_velocity(Setting(syn_small, psi=[0, 1], M=30), z, weight=[0.2, 0.8])
    assert found.shape == z.shape
    np.testing.assert_allclose(
        found[3], attention_velocity(Setting(syn_small, psi=[0, 1], M=30), z[3], weight=[0.2, 0.8])
    )


def test_flow_solves_eq_10_in_steps(syn_small):
    M, t = 30, np.array([1.0, 30.0, 400.0])

    def slope(time, z):
        speed = RATES["eta_z"] * gamma(time, K=2, M=M, eta_y=RATES["eta_y"])
        return speed * attention_velocity(Setting(syn_small, M=M), z)[0]

    z = solve_ivp(slope, (0, t[-1]), np.zeros(30), "DOP853", t_eval=t, rtol=1e-11, atol=1e-13).y.T
    flow = attention_flow(Setting(syn_small, M=M, **RATES), t)
    np.testing.assert_allclose(flow.logits[:, 0], z, atol=1e-9)
    np.testing.assert_allclose(flow.reduced_time, reduced_time(t, K=2, M=M, **RATES), rtol=1e-14)


def test_growth_bound_is_the_integral_of_xi(syn_small):
    tau = np.linspace(0, 20, 2001)
    path = attention_path(Setting(syn_small, M=30), tau)
    rate = xi(correlation(syn_small, path.logits), M=30) / 2
    integral = np.trapezoid(rate, tau, axis=0)
    np.testing.assert_allclose(path.growth_bound[-1], integral, rtol=1e-5)
    np.testing.assert_array_equal(path.growth_bound[0], 0.0)


def test_flow_limits_shapes_and_order(syn_small):
    start = np.random.default_rng(1).normal(size=(1, 30))
    flow = attention_flow(Setting(syn_small, M=30, **RATES), 0.0, z0=start)
    np.testing.assert_array_equal(flow.logits, start)
    t = np.array([[50.0, 2.0], [2.0, 9.0]])
    flow = attention_flow(Setting(syn_small, M=30, **RATES), t)
    assert flow.logits.shape == (2, 2, 1, 30)
    assert flow.growth_bound.shape == (2, 2, 2)
    np.testing.assert_array_equal(flow.logits[0, 1], flow.logits[1, 0])
    with pytest.raises(ValueError, match="tau must be finite"):
        attention_flow(Setting(syn_small, M=30, **RATES), np.inf)


def test_unseen_logits_stay_and_rows_keep_their_sum(one_common):
    P = one_common(4, 3, 0.3, rising=True)
    psi = np.array([0, 0, 2, 2])
    start = np.full((3, P.shape[1]), 0.25)
    flow = attention_flow(Setting(P, psi=psi, M=100, **RATES), 1e4, z0=start)
    seen = np.zeros_like(start, dtype=bool)
    for n in range(4):
        seen[psi[n]] |= P[n] > 0
    np.testing.assert_array_equal(flow.logits[~seen], 0.25)
    np.testing.assert_allclose(flow.logits.sum(1), start.sum(1), atol=1e-10)


def test_path_is_the_same_whatever_the_rates(syn_small):
    # Both rates up by 3 is time scaled by 3; the ratio alone scales tau.
    slow = attention_flow(Setting(syn_small, M=30, eta_y=0.2, eta_z=0.1), 300.0)
    fast = attention_flow(Setting(syn_small, M=30, eta_y=0.6, eta_z=0.3), 100.0)
    np.testing.assert_allclose(slow.logits, fast.logits, rtol=1e-12)


def test_long_times_and_large_vocabularies(one_common):
    P = one_common(5, 4, 0.1, rising=True)
    flow = attention_flow(Setting(P, M=1e9, eta_y=1.0, eta_z=1.0), [1e3, 1e15])
    assert np.all(np.isfinite(flow.logits))
    assert np.all(np.diff(flow.growth_bound, axis=0) > 0)


def test_times_near_the_smallest_number_end(syn_small):
    # the solver's own steps round to nothing there
    tau = np.array([0.0, 1e-320, 1e-310])
    path = attention_path(Setting(syn_small, M=30), tau)
    velocity = attention_velocity(Setting(syn_small, M=30), np.zeros(30), weight=1 / 2)
    np.testing.assert_allclose(path.logits[2], 1e-310 * velocity, rtol=1e-9)
    np.testing.assert_array_equal(path.logits[0], 0.0)


def test_bad_weight():
    with pytest.raises(ValueError, match="weight must be one number or one per class"):
        attention_velocity(Setting(np.eye(3), M=10), np.zeros(3), weight=[1.0, 2.0])


def test_an_explicit_solver_gives_the_same_path(syn_small, monkeypatch):
    given = {"tau": [0.0, 1.0, 20.0], "rtol": 1e-8, "atol": 1e-10}
    default = attention_path(Setting(syn_small, M=200), **given)
    monkeypatch.setattr("attnlab.formulas.solving.MOST_IMPLICIT", 0)
    explicit = attention_path(Setting(syn_small, M=200), **given)
    np.testing.assert_allclose(explicit.logits, default.logits, atol=1e-6)
