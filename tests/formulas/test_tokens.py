"""Attention of Eq. 5 and the roles of tokens."""

import numpy as np
import pytest

from attnlab.formulas import Setting, attention_weights, token_roles, unit_attention


def test_attention_at_the_start_is_the_data(syn_small):
    np.testing.assert_allclose(attention_weights(syn_small), syn_small, rtol=1e-14)


def test_attention_is_eq_5_with_queries_and_leading_axes():
    rng = np.random.default_rng(0)
    P, z, psi = rng.random((3, 5)), rng.normal(size=(4, 2, 5)), np.array([0, 1, 1])
    raw = P * np.exp(z[:, psi, :])
    np.testing.assert_allclose(
        attention_weights(Setting(P, psi=psi), z), raw / raw.sum(-1, keepdims=True), rtol=1e-13
    )
    f = unit_attention(Setting(P, psi=psi), z)
    np.testing.assert_allclose(f, raw / np.linalg.norm(raw, axis=-1, keepdims=True), rtol=1e-13)


def test_large_logits_do_not_overflow():
    c = attention_weights([[0.5, 0.5, 0.0]], [[1e4, 0.0, 1e5]])
    np.testing.assert_array_equal(c, [[1.0, 0.0, 0.0]])


def test_roles(syn_small):
    common, distinct = token_roles(syn_small)
    np.testing.assert_array_equal(np.flatnonzero(common), np.arange(10))
    np.testing.assert_array_equal(np.flatnonzero(distinct[1]), np.arange(20, 30))


def test_bad_input_names_the_field():
    with pytest.raises(ValueError, match="P must be finite"):
        attention_weights([[0.0, 0.0]])
    with pytest.raises(ValueError, match="psi must give one query row"):
        attention_weights(Setting(np.eye(2), psi=[0]), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="z must have a row for each query"):
        attention_weights(Setting(np.eye(2), psi=[0, 1]), np.zeros((1, 2)))
