"""Lemma 1 against finite differences of the log-likelihood of an explicit transformer."""

import numpy as np
import pytest

from attnlab.formulas import logit_gradient, sample_gradient


def log_likelihood(sequence, z, Y, target):
    """Eqs. 1 and 2 token by token: softmax over positions, normalisation, decoder."""
    score = np.exp(z[sequence])
    b = score / score.sum()
    mixed = np.bincount(sequence, weights=b, minlength=len(z))
    logits = Y.T @ (mixed / np.linalg.norm(mixed))
    return logits[target] - np.log(np.exp(logits).sum())


@pytest.mark.parametrize("seed", range(3))
def test_lemma_1_at_finite_length(seed):
    rng = np.random.default_rng(seed)
    L, M, target = 6, 8, 2
    sequence = rng.integers(0, L, 15)
    z, Y = rng.normal(size=L), rng.normal(size=(L, M))
    q = np.bincount(sequence, minlength=L) / len(sequence)
    found = sample_gradient(q, z, Y, target=target)
    step = 1e-6
    for token in range(L):
        e = step * np.eye(L)[token]
        up, down = (log_likelihood(sequence, z + s * e, Y, target) for s in (1, -1))
        assert found.logits[token] == pytest.approx((up - down) / (2 * step), abs=1e-8)
        for j in range(M):
            d = np.zeros((L, M))
            d[token, j] = step
            up, down = (log_likelihood(sequence, z, Y + s * d, target) for s in (1, -1))
            assert found.decoder[token, j] == pytest.approx((up - down) / (2 * step), abs=1e-8)


def test_rows_keep_a_zero_sum_and_columns_do_not():
    rng = np.random.default_rng(0)
    found = sample_gradient(rng.random(6), rng.normal(size=6), rng.normal(size=(6, 8)), target=1)
    np.testing.assert_allclose(found.decoder.sum(1), 0.0, atol=1e-15)
    assert found.logits.sum() == pytest.approx(0.0, abs=1e-15)
    assert np.abs(found.decoder.sum(0)).max() > 1e-2


def test_logit_gradient_kills_f_itself():
    f = np.array([[0.6, 0.8], [1.0, 0.0]])
    np.testing.assert_allclose(logit_gradient(f, 3 * f), 0.0, atol=1e-15)
