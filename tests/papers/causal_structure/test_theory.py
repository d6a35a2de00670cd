"""Formulas against brute force, limits and each other."""

import itertools

import numpy as np
import pytest

from attnlab.formulas.chains import stationary
from attnlab.papers.causal_structure import theory

CHAIN = np.arange(4) - 1
TREE = np.array([-1, 0, 0, 2, -1, 4])  # 1 and 2 are siblings, 3 is a grandchild, 4 a second root


def enumerated(pi, parents):
    """All sequences along a graph, of one chain, with their probabilities."""
    mu, S = stationary(pi), len(pi)
    tokens = np.array(list(itertools.product(range(S), repeat=len(parents) + 1)))
    weight = np.full(len(tokens), 1 / S)
    for i, parent in enumerate(parents):
        weight *= mu[tokens[:, i]] if parent < 0 else pi[tokens[:, parent], tokens[:, i]]
    return tokens, weight


def test_the_stationary_law_is_left_by_the_chain():
    pi = theory.sample_chains(4, 0.3, 50)
    mu = stationary(pi)
    np.testing.assert_allclose(np.einsum("na,nab->nb", mu, pi), mu, atol=1e-12)


def test_the_kernel_of_a_tree_is_that_of_all_its_sequences():
    pi = theory.sample_chains(2, 1.0, 1)[0]
    tokens, weight = enumerated(pi, TREE)
    assert weight.sum() == pytest.approx(1)
    mu = stationary(pi)
    ratio = pi / mu
    found = theory.expected_kernel(pi[None], TREE)
    for i in range(len(TREE)):
        for j in range(i + 1):
            g = weight @ ratio[tokens[:, j], tokens[:, i]] - 1
            assert found[i, j] == pytest.approx(g, abs=1e-12)
    assert (found[4:6, :4] == 0).all() and (found[-1] == 0).all()


def test_the_parents_kernel_is_the_mutual_information_and_the_spectrum():
    pi = theory.sample_chains(5, 0.5, 200)
    g = theory.kinship_kernel(pi, "parent")
    np.testing.assert_allclose(g, theory.chi_squared(theory.joint_law(pi, 0, 1)), rtol=1e-9)
    root = np.sqrt(stationary(pi))  # singular values of D^(1/2) pi D^(-1/2), but the first
    scaled = root[..., :, None] * pi / root[..., None, :]
    spectrum = np.linalg.svd(scaled, compute_uv=False)[..., 1:]
    np.testing.assert_allclose(g, (spectrum**2).sum(-1), rtol=1e-8)
    two = theory.sample_chains(2, 1.0, 50)
    second = np.trace(two, axis1=-2, axis2=-1) - 1  # the other eigenvalue
    np.testing.assert_allclose(theory.kinship_kernel(two, "parent"), second**2, atol=1e-12)


def test_kinship():
    pi = theory.sample_chains(3, 1.0, 500)
    of = {name: theory.kinship_kernel(pi, name) for name in theory.KINSHIPS}
    np.testing.assert_allclose(of["grandparent"], of["sibling"], atol=1e-12)
    np.testing.assert_allclose(of["self"], np.trace(pi, axis1=-2, axis2=-1) - 1, atol=1e-12)
    for name in ("grandparent", "great-grandparent", "sibling"):
        own = theory.chi_squared(theory.joint_law(pi, *theory.KINSHIPS[name]))
        bound = np.sqrt(own * of["parent"])
        assert (of[name] <= bound + 1e-12).all() and (bound <= of["parent"] + 1e-12).all()
    down, across = theory.distances(TREE)
    assert (down[3, 1], across[3, 1]) == (1, 2)  # a nephew, through the root of both
    assert (down[5, 3], across[5, 3]) == (-1, -1)


def test_rare_symbols_need_care():
    """The parent's g is at most S - 1; by a linear system for mu it is not, for sparse chains."""
    S = 3
    pi = theory.sample_chains(S, 0.1, 2000, seed=S)
    assert (theory.kinship_kernel(pi, "parent") <= S - 1 + 1e-9).all()
    system = np.swapaxes(np.eye(S) - pi + 1.0, -1, -2)
    naive = np.maximum(np.linalg.solve(system, np.ones((len(pi), S, 1)))[..., 0], 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        g = np.einsum("na,nab,nb->n", naive, pi**2, 1 / naive) - 1
    assert not (g <= S - 1 + 1e-9).all()
    never = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.3, 0.3, 0.4]])  # ends in symbol 0
    assert theory.kinship_kernel(never, "parent") == pytest.approx(0, abs=1e-12)


def test_the_gradient_is_a_finite_difference():
    of = theory.sample_sequences(CHAIN, 3, 1.0, 50)
    A1 = np.tril(np.random.default_rng(0).normal(size=(5, 5)))

    def loss(A1):
        a = theory.second_weights(of, theory.softmax_rows(A1), 0.7)
        return -(of.target * np.log(theory.outputs(of, a) + 0.05)).sum(-1).mean()

    gradient = theory.first_gradient(of, A1, beta0=0.7, eps=0.05)
    for at in ((1, 0), (3, 1), (4, 4)):
        step = np.zeros((5, 5))
        step[at] = 1e-5
        slope = (loss(A1 + step) - loss(A1 - step)) / 2e-5
        assert gradient[at] == pytest.approx(-slope, rel=1e-6, abs=1e-10)
    np.testing.assert_allclose(gradient.sum(-1), 0, atol=1e-15)


def test_the_leading_term_is_the_limit():
    """At a small beta0, and in longer contexts, the gradient comes to the kernel."""
    pi, off = theory.sample_chains(3, 1.0, 4000), []
    for length in (10, 40):
        parents = np.arange(length - 1) - 1
        of = theory.sample_sequences(parents, 3, 1.0, 8192)
        got = theory.first_gradient(of, np.zeros((length, length)), beta0=0.01) / 0.01
        want = theory.leading_gradient(pi, parents)
        low = np.tril_indices(length - 1)
        assert np.corrcoef(got[low], want[low])[0, 1] > 0.9
        off.append(abs((got[low] @ want[low]) / (want[low] @ want[low]) - 1))
    assert off[1] < off[0]


def test_descent_begins_with_the_gradient():
    of = theory.sample_sequences(CHAIN, 3, 1.0, 100)
    A1 = np.zeros((5, 5))
    path = theory.descend(of, A1, [0, 1, 2], rate=3.0)
    np.testing.assert_array_equal(path[0], A1)
    np.testing.assert_allclose(path[1], 3 * theory.first_gradient(of, A1, eps=0.05), atol=1e-15)
    np.testing.assert_allclose(
        path[2] - path[1], 3 * theory.first_gradient(of, path[1], eps=0.05), atol=1e-15
    )


def test_counts_by_hand():
    of = theory.Sample(np.array([[0, 1, 0, 2, 0]]), np.full((1, 3), 1 / 3))
    parents = np.array([-1, 0, 1, 2])
    np.testing.assert_allclose(
        theory.count_predictor(of, parents, 0.5), [[0.5 / 3.5, 1.5 / 3.5] * 1 + [1.5 / 3.5]]
    )
    roots = np.array([-1, 0, -1, 2])
    right = theory.count_predictor(of, roots, 1.0)
    np.testing.assert_allclose(right, [[1 / 5, 2 / 5, 2 / 5]])
    last = theory.Sample(np.array([[0, 1, 2, 0, 0]]), of.target)  # ends in the test symbol
    released = theory.count_predictor(last, np.array([-1, 0, -1, 2]), 1.0, released=True)
    np.testing.assert_allclose(released, [[2 / 6, 2 / 6, 2 / 6]])  # roots 0 and 2 and the child 1


def test_the_ideal_end_counts_children_and_what_reads_itself():
    parents = np.array([-1, 0, 1, 2])
    of = theory.Sample(np.array([[1, 0, 2, 0, 0]]), np.full((1, 3), 1 / 3))
    np.testing.assert_allclose(theory.ideal_outputs(of, parents), [[0, 0, 1]])
    of = theory.Sample(np.array([[0, 1, 2, 1, 0]]), np.full((1, 3), 1 / 3))
    np.testing.assert_allclose(theory.ideal_outputs(of, parents), [[0.5, 0.5, 0]])
    large = theory.sample_sequences(CHAIN, 3, 1.0, 200)
    rows = np.tri(5) / np.tri(5).sum(-1, keepdims=True)
    rows[[1, 2, 3]] = np.eye(5)[[0, 1, 2]]
    a = theory.second_weights(large, rows, 1e4)
    np.testing.assert_allclose(
        theory.ideal_outputs(large, CHAIN), theory.outputs(large, a), atol=1e-12
    )
