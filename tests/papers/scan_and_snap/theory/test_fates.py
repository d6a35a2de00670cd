"""Theorem 2 and Corollary 2: signs of the velocity of Eq. 10."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attnlab.formulas import Setting, logit_gradient, unit_attention
from attnlab.papers.scan_and_snap.theory import (
    assumption_2,
    attention_path,
    attention_velocity,
    common_token_margin,
    corollary_2,
    correlation,
    sign_fates,
    token_fates,
)

exact = settings(max_examples=60, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)

# Two common tokens (0 and 1) of unequal probability, one distinct token each.
COUNTEREXAMPLE = np.array([[0.4, 0.10, 0.5, 0.0], [0.4, 0.01, 0.0, 0.59]])


@exact
@given(seed=seeds, K=st.integers(2, 6))
def test_theorem_2a_distinct_tokens_gain(random_classes, seed, K):
    P = random_classes(seed, K=K, overlap=0.1)
    queries = np.random.default_rng(seed).integers(0, 2, K)
    psi = np.unique(queries, return_inverse=True)[1]
    assume(correlation(P).sum(1).max() < 1)
    v = attention_velocity(Setting(P, psi=psi, M=1000), np.zeros((psi.max() + 1, P.shape[1])))
    assert np.all(v[token_fates(Setting(P, psi=psi)) > 0] > 0)


@exact
@given(seed=seeds, K=st.integers(2, 5), p=st.floats(0.05, 0.6))
def test_theorem_2b_the_single_common_token_loses(one_common, seed, K, p):
    rng = np.random.default_rng(seed)
    P = one_common(K, 3, p) * rng.uniform(0.5, 1.5, (K, 1 + 3 * K))
    psi = np.unique(rng.integers(0, 2, K), return_inverse=True)[1]
    z = rng.normal(size=(psi.max() + 1, P.shape[1]))
    v = attention_velocity(Setting(P, psi=psi, M=1000), z)
    fates = token_fates(Setting(P, psi=psi))
    assert fates[psi[0], 0] == -1
    assert np.all(v[fates < 0] < 0)
    if correlation(Setting(P, psi=psi), z).sum(1).max() < 1:
        assert np.all(v[fates > 0] > 0)


def test_theorem_2a_fails_with_the_printed_beta_at_tiny_overlap(one_common):
    P = one_common(2, 2, 0.015)
    assert 0 < correlation(P)[0, 1] < 1 / 1000
    v = attention_velocity(Setting(P, M=1000), np.zeros(5), form="printed")[0]
    assert np.all(v[1:] < 0)
    assert v[0] > 0
    v = attention_velocity(Setting(P, M=1000), np.zeros(5))[0]
    assert np.all(v[1:] > 0)
    assert v[0] < 0


def test_a_class_without_overlap_does_not_move():
    P = np.array([[0.5, 0.5, 0, 0, 0], [0.5, 0, 0.5, 0, 0], [0, 0, 0, 0.3, 0.7]])
    v = attention_velocity(Setting(P, M=100), np.zeros(5))[0]
    np.testing.assert_allclose(v[3:], 0.0, atol=1e-16)
    np.testing.assert_array_equal(token_fates(P)[0], [-1, 1, 1, 0, 0])


def test_a_common_token_can_grow_though_assumption_2_holds():
    E = correlation(COUNTEREXAMPLE)
    assert E[0, 1] == pytest.approx(23 / 66, rel=1e-12)
    assert assumption_2(E, M=1000).holds
    margin = common_token_margin(COUNTEREXAMPLE)
    v = attention_velocity(Setting(COUNTEREXAMPLE, M=1000), np.zeros(4))[0]
    assert margin[1] == pytest.approx(0.16816, abs=1e-4)
    assert v[1] == pytest.approx(8.0e-4, rel=0.05)
    assert margin[0] < 0
    assert v[0] < 0
    assert np.all(np.isnan(margin[2:]))
    assert token_fates(COUNTEREXAMPLE)[0].tolist() == [0, 0, 1, 1]


@exact
@given(seed=seeds)
def test_criterion_for_two_classes_decides_every_common_token(seed):
    rng = np.random.default_rng(seed)
    P = np.hstack([rng.uniform(0.01, 1, (2, 4)) ** 3, np.eye(2)])
    v = attention_velocity(Setting(P, M=500), np.zeros(6))[0, :4]
    assert np.array_equal(v > 0, common_token_margin(P)[:4] > 0)
    with pytest.raises(ValueError, match="exactly 2 classes"):
        common_token_margin(np.eye(3))


def test_the_criterion_decides_the_first_move_and_not_the_end():
    P = np.array([[0.33, 0.28, 0.07, 0.32, 0.0], [0.19, 0.04, 0.29, 0.0, 0.48]])
    assert assumption_2(correlation(P), M=1000).holds
    assert common_token_margin(P)[1] == pytest.approx(0.0355, abs=1e-4)
    path = attention_path(Setting(P, M=1000), [0.0, 1.0, 100.0])
    v = attention_velocity(Setting(P, M=1000), path.logits)[:, 0, 1]
    assert v[0] > 0 > v[-1]
    assert path.logits[-1, 0, 1] < 0
    now = [common_token_margin(P, z)[1] for z in path.logits]
    assert np.array_equal(np.sign(v), np.sign(now))


def test_corollary_2_along_the_flow():
    shared, own = np.array([0.05, 0.1, 0.25]), np.array([0.4, 0.2])
    P = np.zeros((3, 9))
    for n in range(3):
        P[n, :3] = shared
        P[n, 3 + 2 * n : 5 + 2 * n] = own
    assert corollary_2(P).holds
    path = attention_path(Setting(P, M=2000), [0.0, 1.0, 10.0, 100.0])
    v = attention_velocity(Setting(P, M=2000), path.logits)
    assert np.all(v[:, 0, :3] < 0)


def test_corollary_2_conditions_one_by_one(syn_small):
    assert corollary_2(syn_small).holds
    assert not corollary_2(Setting(syn_small, psi=[0, 1])).single_query
    assert not corollary_2(syn_small, z0=np.ones(30)).zero_start
    assert not corollary_2(COUNTEREXAMPLE).shared_probability
    assert not corollary_2(COUNTEREXAMPLE).symmetric


@exact
@given(seed=seeds)
def test_sign_descent_moves_rare_tokens_up(random_classes, seed):
    """Eq. 4 with the same g for every token of a class."""
    P = random_classes(seed, K=3, overlap=0.3)
    first = logit_gradient(unit_attention(P), (P > 0).astype(float))
    np.testing.assert_array_equal(np.sign(first), sign_fates(P))


def test_sign_descent_leaves_even_classes_alone():
    np.testing.assert_array_equal(sign_fates([[0.25, 0.25, 0.5, 0.0]]), [[1, 1, -1, 0]])
    assert not sign_fates([[0.5, 0.5]]).any()
