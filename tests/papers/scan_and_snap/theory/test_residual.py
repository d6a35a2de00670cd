"""Section 7: a residual connection."""

import numpy as np
import pytest

from attnlab.formulas import Setting, unit_attention
from attnlab.papers.scan_and_snap.theory import (
    assumption_2,
    attention_path,
    attention_velocity,
    correlation,
    decoder_weights,
    gamma,
    h,
    local_roles,
    residual_beta,
    residual_correlation,
    residual_velocity,
)

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
    common, distinct = local_roles(Setting(SHARED_ACROSS, psi=PSI))
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
    found = residual_correlation(Setting(SHARED_ACROSS, psi=PSI), z)
    np.testing.assert_allclose(found, expected, atol=1e-14)
    assert not assumption_2(found, M=10**6).largest.holds


def test_residual_velocity_is_the_gradient_through_both_normalisations():
    M, eta_y, t = 40, 0.5, 20.0
    z = np.random.default_rng(1).normal(size=(2, 7))
    Y = decoder_weights(residual_input(z), h(t / 4, M=M, eta_y=eta_y), M=M)

    def mean_log_likelihood(flat):
        logits = residual_input(flat.reshape(2, 7)) @ Y
        return np.mean(logits[np.arange(4), np.arange(4)] - np.log(np.exp(logits).sum(1)))

    gradient = np.array(
        [
            (mean_log_likelihood(z.ravel() + e) - mean_log_likelihood(z.ravel() - e)) / 2e-6
            for e in 1e-6 * np.eye(14)
        ]
    ).reshape(2, 7)
    velocity = residual_velocity(Setting(SHARED_ACROSS, psi=PSI, M=M), z)
    found = gamma(t, K=4, M=M, eta_y=eta_y) * velocity
    np.testing.assert_allclose(found, gradient, atol=1e-8)


def test_printed_residual_beta_keeps_classes_of_one_query():
    E = correlation(SHARED_ACROSS)
    b = residual_beta(Setting(SHARED_ACROSS, psi=PSI), form="printed")
    assert b[0, 1] == 1 + E[0, 1]
    assert b[0, 2] == b[0, 3] == b[0, 0] == 0.0


def test_local_roles_do_not_decide_fates_under_a_residual_connection():
    z = np.zeros((2, 7))
    printed = residual_velocity(Setting(SHARED_ACROSS, psi=PSI, M=1000), z, form="printed")
    assert np.all(printed[:, 1:3] > 0)
    # Exactly, the locally distinct tokens 1 and 2 lose: other queries still pull on them.
    found = residual_velocity(Setting(SHARED_ACROSS, psi=PSI, M=1000), z)
    np.testing.assert_allclose(found[:, 1:3], -0.0034, atol=1e-4)
    b = residual_beta(Setting(SHARED_ACROSS, psi=PSI, M=1000))
    assert b[0, 1] == pytest.approx(0.6199, abs=1e-3)
    assert b[0, 2] == pytest.approx(0.3218, abs=1e-3)
    assert b[0, 3] == pytest.approx(-0.2419, abs=1e-3)


def test_residual_velocity_at_leading_axes():
    z = np.random.default_rng(3).normal(size=(3, 2, 7))
    found = residual_velocity(Setting(SHARED_ACROSS, psi=PSI, M=50), z)
    np.testing.assert_allclose(
        found[2], residual_velocity(Setting(SHARED_ACROSS, psi=PSI, M=50), z[2])
    )
    plain = attention_velocity(Setting(SHARED_ACROSS, psi=PSI, M=50), z)
    assert found.shape == plain.shape
    assert attention_path(Setting(SHARED_ACROSS, psi=PSI, M=50), 1.0).logits.shape == (2, 7)
