"""Eq. 10 and its solution, the signs of its velocity (Theorem 2, Corollary 2), and Theorem 3."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from attnlab.formulas import Setting, logit_gradient, sample_gradient, unit_attention
from attnlab.papers.scan_and_snap import theory

exact = settings(max_examples=60, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)
RATES = {"eta_y": 0.5, "eta_z": 0.3}


@pytest.mark.slow
@settings(exact, max_examples=40)
@given(seed=seeds, K=st.integers(2, 6))
def test_velocity_is_eq_97_and_eq_96(random_classes, seed, K):
    rng = np.random.default_rng(seed)
    P, M = random_classes(seed, K=K), 100
    psi = rng.integers(0, 2, K)
    z = rng.normal(size=(2, P.shape[1]))
    f = unit_attention(Setting(P, psi=psi), z)
    b = theory.beta(theory.correlation(Setting(P, psi=psi), z), M=M)
    expected = np.zeros_like(z)
    for n in range(K):
        for other in range(K):
            if other != n:
                inner = (f[n] @ f[other]) * f[n] - f[other]
                expected[psi[n]] += b[n, other] * f[n] * inner
    found = theory.attention_velocity(Setting(P, psi=psi, M=M), z, weight=1.0)
    np.testing.assert_allclose(found, expected, atol=1e-13)
    np.testing.assert_allclose(
        theory.attention_velocity(Setting(P, psi=psi, M=M), z), expected / K, atol=1e-13
    )
    gradient = logit_gradient(f, theory.back_gradient(f, M=M))
    np.testing.assert_allclose(found[0], gradient[psi == 0].sum(0), atol=1e-12)
    np.testing.assert_allclose(found.sum(1), 0.0, atol=1e-13)


def test_class_weight_is_what_batch_one_steps_need(syn_small):
    # The mean over classes of Lemma 1's gradient, at Theorem 5's decoder, is Eq. 10 with 1/K.
    M, eta_y, t = 30, 0.5, 12.0
    f = unit_attention(syn_small)
    Y = theory.decoder_weights(f, theory.h(t / 2, M=M, eta_y=eta_y), M=M)
    z = np.zeros(30)
    mean = np.mean([sample_gradient(P, z, Y, target=n).logits for n, P in enumerate(syn_small)], 0)
    speed = theory.gamma(t, K=2, M=M, eta_y=eta_y)
    found = speed * theory.attention_velocity(Setting(syn_small, M=M), z)[0]
    np.testing.assert_allclose(found, mean, atol=1e-14)
    printed = speed * theory.attention_velocity(Setting(syn_small, M=M), z, weight=1.0)[0]
    np.testing.assert_allclose(printed, 2 * mean, atol=1e-14)


def test_leading_axes_and_weights(syn_small):
    z = np.random.default_rng(0).normal(size=(5, 2, 30))
    found = theory.attention_velocity(Setting(syn_small, psi=[0, 1], M=30), z, weight=[0.2, 0.8])
    assert found.shape == z.shape
    np.testing.assert_allclose(
        found[3],
        theory.attention_velocity(Setting(syn_small, psi=[0, 1], M=30), z[3], weight=[0.2, 0.8]),
    )


def test_flow_solves_eq_10_in_steps(syn_small):
    M, t = 30, np.array([1.0, 30.0, 400.0])

    def slope(time, z):
        speed = RATES["eta_z"] * theory.gamma(time, K=2, M=M, eta_y=RATES["eta_y"])
        return speed * theory.attention_velocity(Setting(syn_small, M=M), z)[0]

    z = solve_ivp(slope, (0, t[-1]), np.zeros(30), "DOP853", t_eval=t, rtol=1e-11, atol=1e-13).y.T
    flow = theory.attention_flow(Setting(syn_small, M=M, **RATES), t)
    np.testing.assert_allclose(flow.logits[:, 0], z, atol=1e-9)
    np.testing.assert_allclose(
        flow.reduced_time, theory.reduced_time(t, K=2, M=M, **RATES), rtol=1e-14
    )


def test_growth_bound_is_the_integral_of_xi(syn_small):
    tau = np.linspace(0, 20, 2001)
    path = theory.attention_path(Setting(syn_small, M=30), tau)
    rate = theory.xi(theory.correlation(syn_small, path.logits), M=30) / 2
    integral = np.trapezoid(rate, tau, axis=0)
    np.testing.assert_allclose(path.growth_bound[-1], integral, rtol=1e-5)
    np.testing.assert_array_equal(path.growth_bound[0], 0.0)


def test_flow_limits_shapes_and_order(syn_small):
    start = np.random.default_rng(1).normal(size=(1, 30))
    flow = theory.attention_flow(Setting(syn_small, M=30, **RATES), 0.0, z0=start)
    np.testing.assert_array_equal(flow.logits, start)
    t = np.array([[50.0, 2.0], [2.0, 9.0]])
    flow = theory.attention_flow(Setting(syn_small, M=30, **RATES), t)
    assert flow.logits.shape == (2, 2, 1, 30)
    assert flow.growth_bound.shape == (2, 2, 2)
    np.testing.assert_array_equal(flow.logits[0, 1], flow.logits[1, 0])
    with pytest.raises(ValueError, match="tau must be finite"):
        theory.attention_flow(Setting(syn_small, M=30, **RATES), np.inf)


def test_unseen_logits_stay_and_rows_keep_their_sum(one_common):
    P = one_common(4, 3, 0.3, rising=True)
    psi = np.array([0, 0, 2, 2])
    start = np.full((3, P.shape[1]), 0.25)
    flow = theory.attention_flow(Setting(P, psi=psi, M=100, **RATES), 1e4, z0=start)
    seen = np.zeros_like(start, dtype=bool)
    for n in range(4):
        seen[psi[n]] |= P[n] > 0
    np.testing.assert_array_equal(flow.logits[~seen], 0.25)
    np.testing.assert_allclose(flow.logits.sum(1), start.sum(1), atol=1e-10)


def test_path_is_the_same_whatever_the_rates(syn_small):
    # Both rates up by 3 is time scaled by 3; the ratio alone scales tau.
    slow = theory.attention_flow(Setting(syn_small, M=30, eta_y=0.2, eta_z=0.1), 300.0)
    fast = theory.attention_flow(Setting(syn_small, M=30, eta_y=0.6, eta_z=0.3), 100.0)
    np.testing.assert_allclose(slow.logits, fast.logits, rtol=1e-12)


def test_long_times_and_large_vocabularies(one_common):
    P = one_common(5, 4, 0.1, rising=True)
    flow = theory.attention_flow(Setting(P, M=1e9, eta_y=1.0, eta_z=1.0), [1e3, 1e15])
    assert np.all(np.isfinite(flow.logits))
    assert np.all(np.diff(flow.growth_bound, axis=0) > 0)


def test_times_near_the_smallest_number_end(syn_small):
    # the solver's own steps round to nothing there
    tau = np.array([0.0, 1e-320, 1e-310])
    path = theory.attention_path(Setting(syn_small, M=30), tau)
    velocity = theory.attention_velocity(Setting(syn_small, M=30), np.zeros(30), weight=1 / 2)
    np.testing.assert_allclose(path.logits[2], 1e-310 * velocity, rtol=1e-9)
    np.testing.assert_array_equal(path.logits[0], 0.0)


def test_bad_weight():
    with pytest.raises(ValueError, match="weight must be one number or one per class"):
        theory.attention_velocity(Setting(np.eye(3), M=10), np.zeros(3), weight=[1.0, 2.0])


def test_an_explicit_solver_gives_the_same_path(syn_small, monkeypatch):
    given = {"tau": [0.0, 1.0, 20.0], "rtol": 1e-8, "atol": 1e-10}
    default = theory.attention_path(Setting(syn_small, M=200), **given)
    monkeypatch.setattr("attnlab.formulas.solving.MOST_IMPLICIT", 0)
    explicit = theory.attention_path(Setting(syn_small, M=200), **given)
    np.testing.assert_allclose(explicit.logits, default.logits, atol=1e-6)


# Two common tokens (0 and 1) of unequal probability, one distinct token each.
COUNTEREXAMPLE = np.array([[0.4, 0.10, 0.5, 0.0], [0.4, 0.01, 0.0, 0.59]])


@exact
@given(seed=seeds, K=st.integers(2, 6))
def test_theorem_2a_distinct_tokens_gain(random_classes, seed, K):
    P = random_classes(seed, K=K, overlap=0.1)
    queries = np.random.default_rng(seed).integers(0, 2, K)
    psi = np.unique(queries, return_inverse=True)[1]
    assume(theory.correlation(P).sum(1).max() < 1)
    v = theory.attention_velocity(
        Setting(P, psi=psi, M=1000), np.zeros((psi.max() + 1, P.shape[1]))
    )
    assert np.all(v[theory.token_fates(Setting(P, psi=psi)) > 0] > 0)


@exact
@given(seed=seeds, K=st.integers(2, 5), p=st.floats(0.05, 0.6))
def test_theorem_2b_the_single_common_token_loses(one_common, seed, K, p):
    rng = np.random.default_rng(seed)
    P = one_common(K, 3, p) * rng.uniform(0.5, 1.5, (K, 1 + 3 * K))
    psi = np.unique(rng.integers(0, 2, K), return_inverse=True)[1]
    z = rng.normal(size=(psi.max() + 1, P.shape[1]))
    v = theory.attention_velocity(Setting(P, psi=psi, M=1000), z)
    fates = theory.token_fates(Setting(P, psi=psi))
    assert fates[psi[0], 0] == -1
    assert np.all(v[fates < 0] < 0)
    if theory.correlation(Setting(P, psi=psi), z).sum(1).max() < 1:
        assert np.all(v[fates > 0] > 0)


def test_theorem_2a_fails_with_the_printed_beta_at_tiny_overlap(one_common):
    P = one_common(2, 2, 0.015)
    assert 0 < theory.correlation(P)[0, 1] < 1 / 1000
    v = theory.attention_velocity(Setting(P, M=1000), np.zeros(5), form="printed")[0]
    assert np.all(v[1:] < 0)
    assert v[0] > 0
    v = theory.attention_velocity(Setting(P, M=1000), np.zeros(5))[0]
    assert np.all(v[1:] > 0)
    assert v[0] < 0


def test_a_class_without_overlap_does_not_move():
    P = np.array([[0.5, 0.5, 0, 0, 0], [0.5, 0, 0.5, 0, 0], [0, 0, 0, 0.3, 0.7]])
    v = theory.attention_velocity(Setting(P, M=100), np.zeros(5))[0]
    np.testing.assert_allclose(v[3:], 0.0, atol=1e-16)
    np.testing.assert_array_equal(theory.token_fates(P)[0], [-1, 1, 1, 0, 0])


def test_a_common_token_can_grow_though_assumption_2_holds():
    E = theory.correlation(COUNTEREXAMPLE)
    assert E[0, 1] == pytest.approx(23 / 66, rel=1e-12)
    assert theory.assumption_2(E, M=1000).holds
    margin = theory.common_token_margin(COUNTEREXAMPLE)
    v = theory.attention_velocity(Setting(COUNTEREXAMPLE, M=1000), np.zeros(4))[0]
    assert margin[1] == pytest.approx(0.16816, abs=1e-4)
    assert v[1] == pytest.approx(8.0e-4, rel=0.05)
    assert margin[0] < 0
    assert v[0] < 0
    assert np.all(np.isnan(margin[2:]))
    assert theory.token_fates(COUNTEREXAMPLE)[0].tolist() == [0, 0, 1, 1]


@exact
@given(seed=seeds)
def test_criterion_for_two_classes_decides_every_common_token(seed):
    rng = np.random.default_rng(seed)
    P = np.hstack([rng.uniform(0.01, 1, (2, 4)) ** 3, np.eye(2)])
    v = theory.attention_velocity(Setting(P, M=500), np.zeros(6))[0, :4]
    assert np.array_equal(v > 0, theory.common_token_margin(P)[:4] > 0)
    with pytest.raises(ValueError, match="exactly 2 classes"):
        theory.common_token_margin(np.eye(3))


def test_the_criterion_decides_the_first_move_and_not_the_end():
    P = np.array([[0.33, 0.28, 0.07, 0.32, 0.0], [0.19, 0.04, 0.29, 0.0, 0.48]])
    assert theory.assumption_2(theory.correlation(P), M=1000).holds
    assert theory.common_token_margin(P)[1] == pytest.approx(0.0355, abs=1e-4)
    path = theory.attention_path(Setting(P, M=1000), [0.0, 1.0, 100.0])
    v = theory.attention_velocity(Setting(P, M=1000), path.logits)[:, 0, 1]
    assert v[0] > 0 > v[-1]
    assert path.logits[-1, 0, 1] < 0
    now = [theory.common_token_margin(P, z)[1] for z in path.logits]
    assert np.array_equal(np.sign(v), np.sign(now))


def test_corollary_2_along_the_flow():
    shared, own = np.array([0.05, 0.1, 0.25]), np.array([0.4, 0.2])
    P = np.zeros((3, 9))
    for n in range(3):
        P[n, :3] = shared
        P[n, 3 + 2 * n : 5 + 2 * n] = own
    assert theory.corollary_2(P).holds
    path = theory.attention_path(Setting(P, M=2000), [0.0, 1.0, 10.0, 100.0])
    v = theory.attention_velocity(Setting(P, M=2000), path.logits)
    assert np.all(v[:, 0, :3] < 0)


def test_corollary_2_conditions_one_by_one(syn_small):
    assert theory.corollary_2(syn_small).holds
    for found in (
        theory.corollary_2(Setting(syn_small, psi=[0, 1])),
        theory.corollary_2(syn_small, z0=np.ones(30)),
        theory.corollary_2(COUNTEREXAMPLE),
    ):
        assert not found.holds
    assert theory.corollary_2(Setting(syn_small, psi=[0, 1])).queries == 2
    assert theory.corollary_2(syn_small, z0=np.ones(30)).start == 1
    assert found.spread > 0.01 and found.asymmetry > 0.01


@exact
@given(seed=seeds)
def test_sign_descent_moves_rare_tokens_up(random_classes, seed):
    """Eq. 4 with the same g for every token of a class."""
    P = random_classes(seed, K=3, overlap=0.3)
    first = logit_gradient(unit_attention(P), (P > 0).astype(float))
    np.testing.assert_array_equal(np.sign(first), theory.sign_fates(P))


def test_sign_descent_leaves_even_classes_alone():
    np.testing.assert_array_equal(theory.sign_fates([[0.25, 0.25, 0.5, 0.0]]), [[1, 1, -1, 0]])
    assert not theory.sign_fates([[0.5, 0.5]]).any()


TAU = np.array([0.0, 0.5, 5.0, 50.0, 500.0])


@pytest.fixture(scope="module")
def path(syn_small):
    return theory.attention_path(Setting(syn_small, M=30), TAU)


def test_relative_gain_is_its_definition(syn_small):
    gain = theory.relative_gain(syn_small, reference=[19, 29])
    f = unit_attention(syn_small)
    assert gain[0, 12] == pytest.approx(f[0, 12] ** 2 / f[0, 19] ** 2 - 1)
    assert gain[0, 19] == 0.0
    assert gain[0, 25] == -1.0
    assert np.all(np.isnan(theory.relative_gain(syn_small, reference=25)[0]))


def test_eq_11_along_the_flow(syn_small, path):
    for n, tokens in ((0, slice(10, 20)), (1, slice(20, 30))):
        for reference in (10 * (n + 1), 10 * (n + 1) + 6):
            now = theory.relative_gain(syn_small, path.logits, reference=reference)[:, n, tokens]
            start = theory.relative_gain(syn_small, reference=reference)[n, tokens]
            growth = theory.growth_factor(path.logits)[:, 0, tokens]
            np.testing.assert_allclose(now, start * growth, rtol=1e-9, atol=1e-11)


def test_invariant(syn_small, path):
    value = theory.gain_invariant(syn_small, path.logits)[:, 0, 10:20]
    differences = value - value[:, -1:]
    np.testing.assert_allclose(
        differences, np.broadcast_to(differences[0], differences.shape), rtol=1e-9
    )


def test_growth_of_one_token_gives_all_others(syn_small, path):
    chi = theory.growth_factor(path.logits)[:, 0]
    gain = -theory.relative_gain(syn_small, reference=19)[0, 10:19]
    # r_{l0/l} from r_{l/l0}: 1 + r_{l0/l} = 1 / (1 + r_{l/l0}).
    gain = 1 / (1 - gain) - 1
    np.testing.assert_allclose(
        theory.distinct_growth(chi[:, 19:20], gain), chi[:, 10:19], rtol=1e-9
    )
    assert theory.distinct_growth(np.inf, 1.0) == 2.0


def test_eq_12_and_monotone_dominance(one_common):
    P = one_common(3, 5, 0.3, rising=True)
    path = theory.attention_path(Setting(P, M=1000), TAU)
    f = unit_attention(P, path.logits)
    dominant = 5
    assert np.all(np.diff(f[:, 0, dominant]) > 0)
    lower, upper = theory.growth_bounds(path.growth_bound[:, 0], f[0, 0, dominant] ** 2)
    chi = theory.growth_factor(path.logits[:, 0, dominant])
    assert np.all(lower[1:] < chi[1:])
    assert np.all(chi[1:] < upper[1:])
    assert lower[0] == chi[0] == upper[0] == 1.0


def test_speed_of_a_distinct_token_is_its_squared_weight(syn_small):
    # Against the summary's "lower-frequency tokens gain faster".
    v = theory.attention_velocity(Setting(syn_small, M=30), np.zeros(30))[0, 10:20]
    f = unit_attention(syn_small)[0, 10:20]
    np.testing.assert_allclose(v / v[0], (f / f[0]) ** 2, rtol=1e-12)
    # Against the slides: rare distinct tokens gain too, they only gain less.
    assert np.all(v > 0)
