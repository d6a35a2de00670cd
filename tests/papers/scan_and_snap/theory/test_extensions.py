"""Sections 3, 5 and 7: LayerNorm, a residual connection; biases, positions and heads as priors."""

import numpy as np
import pytest

from attnlab.formulas import Setting, attention_weights, unit_attention
from attnlab.papers.scan_and_snap import theory


def test_layer_norm_velocity_is_the_gradient():
    P, M = np.array([[0.3, 0.5, 0.2, 0.0], [0.4, 0.0, 0.0, 0.6]]), 30
    z = np.array([[0.1, -0.3, 0.2, 0.05]])
    growth = theory.h(12.0, M=M, eta_y=0.8)
    Y = theory.decoder_weights(theory.centred_attention(Setting(P, M=M), z), growth, M=M)

    def objective(logits):
        total = 0.0
        for n, f in enumerate(theory.centred_attention(Setting(P, M=M), logits)):
            scores = f @ Y
            total += (scores[n] - np.log(np.exp(scores).sum())) / 2
        return total

    step = 1e-6
    slope = [
        (objective(z + step * unit) - objective(z - step * unit)) / (2 * step) for unit in np.eye(4)
    ]
    speed = theory.gamma(24.0, K=2, M=M, eta_y=0.8)
    np.testing.assert_allclose(
        theory.centred_velocity(Setting(P, M=M), z)[0] * speed, slope, atol=1e-9
    )
    f = theory.centred_attention(Setting(P, M=M), z)
    np.testing.assert_allclose(f.sum(1), 0.0, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(f, axis=1), 1.0)


def test_layer_norm_is_near_l2_for_a_large_vocabulary():
    P, z = np.array([[0.3, 0.7, 0.0], [0.3, 0.0, 0.7]]), np.zeros((1, 3))
    for M in (10**3, 10**4):
        ratio = theory.centred_velocity(Setting(P, M=M), z) / theory.attention_velocity(
            Setting(P, M=M), z
        )
        np.testing.assert_allclose(ratio, 1.0, atol=20 / M)
    with pytest.raises(ValueError, match="M must be at least the number of tokens"):
        theory.centred_attention(Setting(P, M=2))


PSI = np.array([0, 0, 1, 1])
# Token 0 is in all classes; 1 in classes 0 and 2, 2 in classes 1 and 3: distinct within a query.
SHARED_ACROSS = np.array(
    [
        [0.3, 0.3, 0.0, 0.4, 0.0, 0.0, 0.0],
        [0.3, 0.0, 0.3, 0.0, 0.4, 0.0, 0.0],
        [0.3, 0.3, 0.0, 0.0, 0.0, 0.4, 0.0],
        [0.3, 0.0, 0.3, 0.0, 0.0, 0.0, 0.4],
    ]
)


def test_local_roles():
    common, distinct = theory.local_roles(Setting(SHARED_ACROSS, psi=PSI))
    np.testing.assert_array_equal(common, [[True] + [False] * 6] * 2)
    assert distinct[0].tolist() == [False, True, False, True, False, False, False]


def residual_input(z):
    """f-bar in context tokens and then one coordinate per query token."""
    f = unit_attention(Setting(SHARED_ACROSS, psi=PSI), z)
    with_query = np.hstack([f, np.eye(2)[PSI]])
    return with_query / np.linalg.norm(with_query, axis=1, keepdims=True)


def test_residual_correlation_is_the_gram_matrix():
    z = np.random.default_rng(0).normal(size=(2, 7))
    F = residual_input(z)
    expected = F @ F.T - np.eye(4)
    found = theory.residual_correlation(Setting(SHARED_ACROSS, psi=PSI), z)
    np.testing.assert_allclose(found, expected, atol=1e-14)
    assert not theory.assumption_2(found, M=10**6).largest.holds


def test_residual_velocity_is_the_gradient_through_both_normalisations():
    M, eta_y, t = 40, 0.5, 20.0
    z = np.random.default_rng(1).normal(size=(2, 7))
    Y = theory.decoder_weights(residual_input(z), theory.h(t / 4, M=M, eta_y=eta_y), M=M)

    def mean_log_likelihood(flat):
        logits = residual_input(flat.reshape(2, 7)) @ Y
        return np.mean(logits[np.arange(4), np.arange(4)] - np.log(np.exp(logits).sum(1)))

    gradient = np.array(
        [
            (mean_log_likelihood(z.ravel() + e) - mean_log_likelihood(z.ravel() - e)) / 2e-6
            for e in 1e-6 * np.eye(14)
        ]
    ).reshape(2, 7)
    velocity = theory.residual_velocity(Setting(SHARED_ACROSS, psi=PSI, M=M), z)
    found = theory.gamma(t, K=4, M=M, eta_y=eta_y) * velocity
    np.testing.assert_allclose(found, gradient, atol=1e-8)


def test_printed_residual_beta_keeps_classes_of_one_query():
    E = theory.correlation(SHARED_ACROSS)
    b = theory.residual_beta(Setting(SHARED_ACROSS, psi=PSI), form="printed")
    assert b[0, 1] == 1 + E[0, 1]
    assert b[0, 2] == b[0, 3] == b[0, 0] == 0.0


def test_local_roles_do_not_decide_fates_under_a_residual_connection():
    z = np.zeros((2, 7))
    printed = theory.residual_velocity(Setting(SHARED_ACROSS, psi=PSI, M=1000), z, form="printed")
    assert np.all(printed[:, 1:3] > 0)
    # Exactly, the locally distinct tokens 1 and 2 lose: other queries still pull on them.
    found = theory.residual_velocity(Setting(SHARED_ACROSS, psi=PSI, M=1000), z)
    np.testing.assert_allclose(found[:, 1:3], -0.0034, atol=1e-4)
    b = theory.residual_beta(Setting(SHARED_ACROSS, psi=PSI, M=1000))
    assert b[0, 1] == pytest.approx(0.6199, abs=1e-3)
    assert b[0, 2] == pytest.approx(0.3218, abs=1e-3)
    assert b[0, 3] == pytest.approx(-0.2419, abs=1e-3)


def test_residual_velocity_at_leading_axes():
    z = np.random.default_rng(3).normal(size=(3, 2, 7))
    found = theory.residual_velocity(Setting(SHARED_ACROSS, psi=PSI, M=50), z)
    np.testing.assert_allclose(
        found[2], theory.residual_velocity(Setting(SHARED_ACROSS, psi=PSI, M=50), z[2])
    )
    plain = theory.attention_velocity(Setting(SHARED_ACROSS, psi=PSI, M=50), z)
    assert found.shape == plain.shape
    assert theory.attention_path(Setting(SHARED_ACROSS, psi=PSI, M=50), 1.0).logits.shape == (2, 7)


def test_bias_is_a_prior_on_tokens(syn_small):
    bias = np.random.default_rng(2).normal(size=(1, 30))
    rates = {"psi": None, "M": 30, "eta_y": 0.5, "eta_z": 0.5}
    started = theory.attention_flow(Setting(syn_small, **rates), 500.0, z0=bias).logits
    tilted = theory.attention_flow(
        Setting(theory.logit_prior(syn_small, bias), **rates), 500.0
    ).logits
    np.testing.assert_allclose(started, tilted + bias, atol=1e-8)


def test_alibi_keeps_few_positions_at_any_length():
    """Mean attention forgets the bias; attention in one sequence does not become its mean."""
    rng, p = np.random.default_rng(0), np.array([0.2, 0.8])
    for length in (200, 2000):
        w = np.exp(-0.5 * np.arange(length))
        first = rng.random((4000, length)) < p[0]
        attention = (first * w).sum(1) / w.sum()
        assert attention.mean() == pytest.approx(p[0], abs=0.02)
        count = p[0] * p[1] / attention.var()
        assert count == pytest.approx(1 / np.tanh(0.25), rel=0.1)  # 4.1 positions


def test_position_bias_needs_tokens_that_depend_on_position(syn_small):
    bias = np.array([0.0, -1.0, -2.0])
    same = np.stack([syn_small] * 3)
    np.testing.assert_allclose(theory.position_prior(same, bias), syn_small, rtol=1e-13)
    near, far = np.eye(2)[None, 0], np.eye(2)[None, 1]
    found = theory.position_prior(np.stack([near, far]), [0.0, -1.0])
    np.testing.assert_allclose(found, [[1, np.exp(-1)]] / (1 + np.exp(-1)), rtol=1e-13)
    with pytest.raises(ValueError, match="P must be"):
        theory.position_prior(syn_small, bias)


def test_heads_are_flows_from_different_starts(syn_small):
    z0 = np.zeros((2, 1, 30))
    z0[1, 0, 14] = 1.5
    winners = theory.dominant_tokens(syn_small, z0)
    np.testing.assert_array_equal(winners, [[19, 29], [14, 29]])
    flows = theory.head_flows(Setting(syn_small, M=30, eta_y=0.2, eta_z=2.0), 1e6, z0=z0)
    for head, flow in enumerate(flows):
        c = attention_weights(syn_small, flow.logits)
        assert c[0].argmax() == winners[head, 0]
    np.testing.assert_array_equal(theory.dominant_tokens([[0.5, 0.5], [0.5, 0.5]]), [-1, -1])
    with pytest.raises(ValueError, match="z0 must be"):
        theory.head_flows(Setting(syn_small, M=30, eta_y=1, eta_z=1), 1.0, z0=z0[0])
