"""E, E' and Assumption 2 (Lemmas 13 to 17)."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attnlab.formulas import Setting, unit_attention
from attnlab.papers.scan_and_snap.theory import (
    assumption_2,
    attention_flow,
    correlation,
    e_prime,
    spectrum_bounds,
)

exact = settings(max_examples=60, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 8)


def equal(K, rho):
    return rho * (np.ones((K, K)) - np.eye(K))


def test_correlation_ignores_tokens_out_of_play(syn_small):
    E = correlation(syn_small)
    f = unit_attention(syn_small)
    assert E[0, 1] == pytest.approx(f[0] @ f[1], rel=1e-14)
    assert E[0, 0] == 0.0
    wide = np.hstack([syn_small, np.zeros((2, 50))])
    np.testing.assert_allclose(correlation(wide), E, rtol=1e-14)


@exact
@given(seed=seeds, K=sizes)
def test_e_prime_identity(random_classes, seed, K):
    E = correlation(random_classes(seed, K=K))
    Ep, unit = e_prime(E), np.eye(K)
    np.testing.assert_allclose((unit + E) @ (unit - Ep), unit, atol=1e-12)
    np.testing.assert_allclose(Ep, Ep.T, atol=1e-12)
    np.testing.assert_allclose(e_prime(E, form="printed"), -Ep, rtol=1e-15)


@exact
@given(seed=seeds, K=sizes, overlap=st.floats(0.02, 0.3))
def test_lemmas_13_to_17(random_classes, seed, K, overlap):
    E = correlation(random_classes(seed, K=K, overlap=overlap))
    bounds = spectrum_bounds(E)
    Ep = e_prime(E)
    assert np.abs(E).max() <= bounds.entry + 1e-14
    assert np.abs(np.linalg.eigvalsh(Ep)).max() <= bounds.e_prime_radius + 1e-12
    assert np.abs(Ep - E).max() <= bounds.e_prime_gap + 1e-12
    overlaps = E.any(1)
    assert np.all(np.diagonal(Ep)[overlaps] < 0)
    np.testing.assert_allclose(np.diagonal(Ep)[~overlaps], 0.0, atol=1e-14)
    np.testing.assert_allclose((E * Ep).sum(1), -np.diagonal(Ep), atol=1e-12)


@exact
@given(seed=seeds, K=sizes, overlap=st.floats(0.02, 0.3))
def test_the_modified_update_changes_by_less_than_2_over_sqrt_3(random_classes, seed, K, overlap):
    f = unit_attention(random_classes(seed, K=K, overlap=overlap))
    E = f @ f.T - np.eye(K)
    radius = np.abs(np.linalg.eigvalsh(E)).max()
    assume(radius < 1.0)  # Assumption 2 asks for |lambda_1| < 1/K
    change = np.linalg.norm(f.T @ e_prime(E), axis=0).max()
    assert change <= radius / np.sqrt(1.0 - radius**2) + 1e-12
    pair = np.array([[1.0, 0.0], [0.4999, np.sqrt(1.0 - 0.4999**2)]])  # |lambda_1| just below 1/2
    most = np.linalg.norm(pair.T @ e_prime(pair @ pair.T - np.eye(2)), axis=0).max() / 0.4999
    assert most == pytest.approx(2 / np.sqrt(3), abs=1e-4)


@exact
@given(seed=seeds, K=sizes, overlap=st.floats(0.02, 0.3))
def test_f_has_full_column_rank(random_classes, seed, K, overlap):
    f = unit_attention(random_classes(seed, K=K, overlap=overlap))
    radius = np.abs(np.linalg.eigvalsh(f @ f.T - np.eye(K))).max()
    least = np.linalg.svd(f, compute_uv=False).min()
    assert least**2 >= 1.0 - radius - 1e-12
    twice = np.vstack([f, f[:1]])  # a class that is there twice
    assert np.linalg.matrix_rank(twice) == K


def test_printed_sign_of_e_prime_breaks_eqs_26_to_30(syn_small):
    f = unit_attention(syn_small)
    E = correlation(syn_small)
    for form, error in (("corrected", 0.0), ("printed", 2 * np.abs(E).max())):
        direction = f.T @ (np.eye(2) - e_prime(E, form=form))
        found = np.abs(f @ direction - np.eye(2)).max()
        assert found == pytest.approx(error, abs=1e-14)
    # Lemma 16 says that the diagonal of E' is negative.
    assert np.all(np.diagonal(e_prime(E, form="printed")) > 0)


def test_dependent_classes_are_refused():
    with pytest.raises(ValueError, match="E must leave I \\+ E invertible"):
        e_prime(equal(2, 1.0))


def test_assumption_2_parts_and_margins():
    found = assumption_2(equal(2, 0.4), M=1000)
    assert found.holds
    assert found.largest.margin == pytest.approx(0.1)
    assert found.smallest.margin == pytest.approx(0.4 - 6 / np.sqrt(1000))
    assert not assumption_2(equal(2, 0.6), M=1000).largest.holds
    assert not assumption_2(equal(2, 0.1), M=1000).smallest.holds


def test_assumption_2_is_impossible_in_fig_3_and_syn_small(syn_small):
    for K, M in ((10, 1000), (2, 30)):
        for rho in np.linspace(0.001, 0.999, 200):
            assert not assumption_2(equal(K, rho), M=M).holds
        assert not assumption_2(equal(K, 0.1), M=M).feasible.holds
    assert not assumption_2(correlation(syn_small), M=30).holds


def test_assumption_2_window_for_equal_overlaps():
    K, rho = 4, 1 / 12
    M = 36 / rho**2
    assert not assumption_2(equal(K, rho), M=2 * M).largest.holds
    assert assumption_2(equal(K, 0.99 * rho), M=1.05 * M).holds
    assert not assumption_2(equal(K, 0.99 * rho), M=M).smallest.holds


def test_overlaps_pass_below_the_floor_along_eq_10():
    """Assumption 2 cannot hold at every t: the common token shrinks, and the overlap with it."""
    P = [[0.3, 0.7, 0.0], [0.3, 0.0, 0.7]]
    z = attention_flow(Setting(P, M=5000, eta_y=0.9, eta_z=0.03), [0.0, 1e3, 1e6, 1e12]).logits
    overlap = correlation(P, z)[:, 0, 1]
    assert assumption_2(correlation(P), M=5000).holds
    assert np.all(np.diff(overlap) < 0)
    assert overlap[-1] < 6 / np.sqrt(5000)
