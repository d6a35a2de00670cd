"""Latents behind tokens: co-occurrence by formula, by enumeration and by sampling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from attnlab.papers.joma.classes import LatentLayers, LatentTree, hblt, hierarchy
from attnlab.tasks.classes import SequenceClasses, from_preset

TREES = [
    LatentTree((2, 2, 2), 0.8, ((0.9, 0.1), (0.2, 0.7))),
    LatentTree((3, 1, 2), 0.3, ((0.5, 0.6, 1.0),)),
    LatentTree((1, 4), -0.5, ((0.3,), (0.0,), (0.8,))),
    LatentTree((4,), 0.9, ((0.1, 0.2, 0.3, 0.4),)),
    LatentTree((2, 3), 0.0, ((0.9, 0.4), (0.1, 0.4))),
    LatentTree((2, 3), 1.0, ((0.9, 0.4), (0.1, 0.4))),
]


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.branching))
def test_the_formula_is_the_sum_over_all_settings(tree: LatentTree) -> None:
    np.testing.assert_allclose(tree.co_occurrence(), tree.enumerate(), rtol=1e-12, atol=1e-15)


def test_sequences_occur_together_as_often_as_the_formula_says() -> None:
    tree, count = TREES[0], 40_000
    drawn = tree.sample(count, seed=3)
    assert [level.shape[1] for level in drawn.levels] == [2, 4, 8]
    for label in range(tree.labels):
        leaves = drawn.leaves[drawn.labels == label].astype(float)
        seen = leaves.T @ leaves / len(leaves)
        assert np.abs(seen - tree.co_occurrence()[label]).max() < 4.5 * 0.5 / len(leaves) ** 0.5
    np.testing.assert_array_equal(drawn.leaves, tree.sample(count, seed=3).leaves)
    assert np.any(drawn.leaves != tree.sample(count, seed=4).leaves)


def test_heights_are_levels_up_to_the_common_ancestor() -> None:
    heights = LatentTree((2, 2, 2), 0.8, ((0.5, 0.5),)).heights()
    assert heights[0].tolist() == [0, 1, 2, 2, 3, 3, 3, 3]
    assert np.all(heights == heights.T)


def test_a_tree_too_large_to_enumerate_is_refused() -> None:
    with pytest.raises(ValueError, match="30 nodes"):
        LatentTree((2, 2, 2, 2), 0.5, ((0.5, 0.5),)).enumerate()


def test_siblings_of_the_query_are_the_most_frequent() -> None:
    classes = hblt(labels=2, depth=3, branching=2, rho=0.7, strength=0.6, queries=8)
    assert (len(classes), classes.queries.size) == (16, 8)
    assert not classes.has_psi
    heights = LatentTree((2, 2, 2), 0.7, ((0.5, 0.5),)).heights()
    for k, row in enumerate(classes.probs[:, :8]):
        query = k // 2
        assert row[query] == 0
        by_height = [row[heights[query] == H] for H in (1, 2)]
        assert np.ptp(by_height[1]) < 1e-15
        assert by_height[0].min() > by_height[1].max()


def test_the_classes_are_those_of_drawn_sequences() -> None:
    """P(l | m, n) and the prior, from sequences in which the query's leaf is on."""
    classes = hblt(labels=2, depth=2, branching=2, rho=0.6, strength=0.5, queries=2)
    tree = LatentTree((2, 2), 0.6, ((0.75, 0.25), (0.25, 0.75)))
    drawn = tree.sample(100_000, seed=0)
    seen = [(drawn.labels == n) & drawn.leaves[:, m] for m in range(2) for n in range(2)]
    for k, rows in enumerate(seen):
        counts = drawn.leaves[rows].sum(0).astype(float)
        counts[k // 2] = 0
        np.testing.assert_allclose(classes.probs[k, :4], counts / counts.sum(), atol=0.01)
    often = np.array([rows.sum() for rows in seen], dtype=float)
    np.testing.assert_allclose(classes.prior, often / often.sum(), atol=0.01)


def test_a_label_turns_on_all_that_is_below_it() -> None:
    layers = LatentLayers((4, 5, 6, 30), children=2, seed=1)
    links = layers.links()
    assert [link.sum(1).tolist() for link in links] == [[2] * 4, [2] * 5, [2] * 6]
    upper, lower, tokens = layers.active()
    for label in range(4):
        assert np.all(upper[label] == links[0][label])
        assert np.all(lower[label] == links[1][upper[label]].any(0))
        assert np.all(tokens[label] == links[2][lower[label]].any(0))
    classes = hierarchy(4, 5, 6, 30, children=2, seed=1)
    np.testing.assert_array_equal(classes.probs[:, :30] > 0, tokens)
    for k in range(4):
        assert np.ptp(classes.probabilities(k)) == 0


@pytest.mark.parametrize(
    "classes", [hblt(), hblt(3, 2, 3, rho=0.5, strength=0.9, queries=9), hierarchy(), hierarchy(5)]
)
def test_origin_makes_equal_classes_again(classes: SequenceClasses) -> None:
    assert from_preset(classes.origin) == classes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hblt(labels=3), "labels: 3 labels for 2 children"),
        (lambda: hblt(rho=1.0), "rho: expected a finite number between 0 and 1"),
        (lambda: hblt(strength=0.0), "strength: expected a finite number between 0 and 1"),
        (lambda: hblt(queries=9), "queries: 9 queries for 8 leaves"),
        (lambda: hblt(depth=60), "depth, branching: "),
        (lambda: hierarchy(children=11), "children: 11 children in a layer of 10"),
        (lambda: LatentTree((2,), 2.0, ((0.5, 0.5),)), "rho: expected a number from -1 to 1"),
        (lambda: LatentTree((2,), 0.5, ((0.5,),)), "on: expected a row of 2"),
        (lambda: LatentTree((), 0.5, ()), "branching: expected"),
    ],
)
def test_bad_trees_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
