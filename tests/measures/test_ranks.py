"""Stable ranks against singular values."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from quickly import quickly

from attnlab.files.errors import InputError
from attnlab.measures.ranks import stable_rank, stable_rank_of_qk, stable_rank_there, units_for
from attnlab.papers.joma import theory


def by_singular_values(matrix):
    s = np.linalg.svd(matrix, compute_uv=False)
    return (s**2).sum() / s[0] ** 2


@pytest.mark.parametrize("shape", [(5, 9), (9, 5)])
def test_stable_rank_is_that_of_the_singular_values(shape):
    W = np.random.default_rng(0).normal(size=shape)
    assert stable_rank(W) == pytest.approx(by_singular_values(W))
    assert stable_rank(torch.asarray(W)) == pytest.approx(by_singular_values(W))
    assert np.isnan(stable_rank(np.zeros(shape)))


@pytest.mark.parametrize("kind", ["spread", "one_direction", "low_rank"])
def test_large_matrices_and_the_theory_say_the_same(kind):
    """One formula: JoMA's, and here without singular values."""
    rng = np.random.default_rng(1)
    W = rng.normal(size=(2, 140, 160))
    if kind == "one_direction":
        W[0] += 3.0
    if kind == "low_rank":
        W = W[:, :, :5] @ rng.normal(size=(2, 5, 160))
    expected = theory.stable_rank(W)
    np.testing.assert_allclose(stable_rank(W), expected, rtol=1e-6)
    np.testing.assert_allclose(stable_rank(torch.asarray(W).float()), expected, rtol=1e-5)
    # as on an accelerator
    there = stable_rank_there(torch.asarray(W).float())
    np.testing.assert_allclose(there, expected, rtol=1e-4)
    np.testing.assert_allclose(stable_rank(W[:, :20]), theory.stable_rank(W[:, :20]), rtol=1e-6)


@pytest.mark.parametrize("size", [5, 140])
def test_what_is_not_finite_does_not_stop_the_others(size):
    W = np.random.default_rng(2).normal(size=(3, size, size))
    W[1, 0, 0], W[2, 1, 1] = np.nan, np.inf
    found = stable_rank(W)
    assert found[0] == pytest.approx(by_singular_values(W[0]), rel=1e-6)
    assert np.isnan(found[1:]).all()


def test_a_compiled_program_finds_them_too():
    rng, compiled = np.random.default_rng(1), quickly(stable_rank_there)
    near = np.diag([3.0, 2.999, 1.0, 0.0])  # two that are nearly the largest
    for matrices in (rng.normal(size=(3, 7, 5)), np.outer(range(4), range(1, 5)), near):
        values = np.linalg.svd(matrices, compute_uv=False)
        expected = (values**2).sum(-1) / values[..., 0] ** 2
        np.testing.assert_allclose(compiled(jnp.asarray(matrices)), expected, rtol=2e-4)


def test_queries_and_keys_without_their_product():
    rng = np.random.default_rng(0)
    W_Q, W_K = rng.normal(size=(4, 3, 10)), rng.normal(size=(2, 3, 10))
    expected = [by_singular_values(W_Q[h].T @ W_K[h // 2]) for h in range(4)]
    np.testing.assert_allclose(stable_rank_of_qk(W_Q, W_K), expected, rtol=1e-6)
    np.testing.assert_allclose(
        stable_rank_of_qk(torch.asarray(W_Q).float(), torch.asarray(W_K).float()),
        expected,
        rtol=1e-5,
    )
    with pytest.raises(InputError, match="head, width, model"):
        stable_rank_of_qk(W_Q, W_K[:, :2])
    with pytest.raises(InputError, match="divide"):
        stable_rank_of_qk(W_Q[:3], W_K)


def test_units_for_most_of_the_activation():
    rows = np.zeros((2, 3, 8))
    rows[0, 0, :4] = [10, -10, 0.1, 0.1]  # two hold 99 %
    rows[0, 1] = 1  # all are needed
    number, share = units_for(torch.asarray(rows))
    assert number == pytest.approx((2 + 8) / 2)  # silent rows are left out
    assert share == pytest.approx(number / 8)
    assert np.isnan(units_for(np.zeros((2, 8)))[0])
