"""Sections 5 and 7: biases, positions and heads are priors on tokens."""

import numpy as np
import pytest

from attnlab.formulas import Setting, attention_weights
from attnlab.papers.scan_and_snap.theory import (
    attention_flow,
    dominant_tokens,
    head_flows,
    logit_prior,
    position_prior,
)


def test_bias_is_a_prior_on_tokens(syn_small):
    bias = np.random.default_rng(2).normal(size=(1, 30))
    rates = {"psi": None, "M": 30, "eta_y": 0.5, "eta_z": 0.5}
    started = attention_flow(Setting(syn_small, **rates), 500.0, z0=bias).logits
    tilted = attention_flow(Setting(logit_prior(syn_small, bias), **rates), 500.0).logits
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
    np.testing.assert_allclose(position_prior(same, bias), syn_small, rtol=1e-13)
    near, far = np.eye(2)[None, 0], np.eye(2)[None, 1]
    found = position_prior(np.stack([near, far]), [0.0, -1.0])
    np.testing.assert_allclose(found, [[1, np.exp(-1)]] / (1 + np.exp(-1)), rtol=1e-13)
    with pytest.raises(ValueError, match="P must be"):
        position_prior(syn_small, bias)


def test_heads_are_flows_from_different_starts(syn_small):
    z0 = np.zeros((2, 1, 30))
    z0[1, 0, 14] = 1.5
    winners = dominant_tokens(syn_small, z0)
    np.testing.assert_array_equal(winners, [[19, 29], [14, 29]])
    flows = head_flows(Setting(syn_small, M=30, eta_y=0.2, eta_z=2.0), 1e6, z0=z0)
    for head, flow in enumerate(flows):
        c = attention_weights(syn_small, flow.logits)
        assert c[0].argmax() == winners[head, 0]
    np.testing.assert_array_equal(dominant_tokens([[0.5, 0.5], [0.5, 0.5]]), [-1, -1])
    with pytest.raises(ValueError, match="z0 must be"):
        head_flows(Setting(syn_small, M=30, eta_y=1, eta_z=1), 1.0, z0=z0[0])
