"""Layouts: sparse, lumped and dense are the same problem."""

import numpy as np
import pytest

from attnlab.papers.scan_and_snap.classes import syn_medium, syn_small
from attnlab.simulation.exact.layout import dense_layout, sparse_layout
from attnlab.tasks.classes import SequenceClasses, random, single_common, zipf


def total_multiplicity(layout):
    return layout.shared_multiplicity.sum() + layout.exclusive_multiplicity.sum()


@pytest.mark.parametrize(
    "classes",
    [syn_small(), syn_medium(num_last=2), random(40, 4, overlap=0.5), single_common(3)],
    ids=lambda c: c.origin.split(":")[0],
)
@pytest.mark.parametrize("lump", [False, True])
def test_every_token_in_play_has_one_place_and_its_probabilities(classes, lump):
    layout, where = sparse_layout(classes, symmetric_start=True, lump=lump)
    np.testing.assert_array_equal(where.tokens, classes.in_play)
    assert total_multiplicity(layout) == classes.in_play.size
    probs = where.attention(
        np.exp(layout.shared_log_prob), np.exp(layout.exclusive_log_prob), classes.vocab_size
    )
    np.testing.assert_allclose(probs, classes.probs, rtol=1e-14)


def test_syn_small_lumps_its_ten_common_tokens():
    layout, _ = sparse_layout(syn_small(), symmetric_start=True, lump=True)
    np.testing.assert_array_equal(layout.shared_multiplicity, [10])
    assert layout.exclusive_multiplicity.shape == (2, 10)
    np.testing.assert_array_equal(layout.output_multiplicity, [1, 1, 32])


def test_banded_zipf_lumps_to_its_profiles():
    classes = zipf(100_000, 20, bands=1_000)
    layout, _ = sparse_layout(classes, symmetric_start=True, lump=True)
    assert (
        np.count_nonzero(layout.exclusive_multiplicity) + layout.shared_multiplicity.size <= 1_000
    )
    assert total_multiplicity(layout) == classes.in_play.size


def test_tokens_with_different_starts_are_not_lumped():
    classes = syn_small()
    start = np.zeros((2, classes.vocab_size))
    start[0, 3] = 1.0
    layout, _ = sparse_layout(classes, symmetric_start=True, lump=True, start_logits=start)
    np.testing.assert_array_equal(np.sort(layout.shared_multiplicity), [1, 9])


def test_a_lopsided_problem_is_not_padded_to_its_largest_class():
    wide = {t: 1 / 1000 for t in range(1000)}
    rows = [wide] + [{1000 + k: 1.0} for k in range(19)]
    classes = SequenceClasses(
        rows, query=[1100] * 20, next_token=1101 + np.arange(20), vocab_size=1200
    )
    layout, where = sparse_layout(classes, symmetric_start=True, lump=False)
    assert not layout.one_tile_per_class
    assert layout.exclusive_log_prob.size <= 3 * classes.num_nonzeros
    probs = where.attention(
        np.exp(layout.shared_log_prob), np.exp(layout.exclusive_log_prob), classes.vocab_size
    )
    np.testing.assert_allclose(probs, classes.probs, rtol=1e-14)


def test_own_tokens_stand_last_class_by_class():
    # tokens 0 and 6 belong to both classes; class 0 has one exclusive token more than class 1
    rows = [{0: 0.3, 6: 0.1, 1: 0.1, 3: 0.2, 5: 0.3}, {0: 0.2, 6: 0.2, 4: 0.3, 2: 0.3}]
    classes = SequenceClasses(rows, query=[7, 7], next_token=[8, 9], vocab_size=10)
    layout, where = dense_layout(classes, symmetric_start=True, by_class=True)
    assert (layout.exclusive_each, layout.before_exclusive) == (2, 3)
    by_place = where.tokens[np.argsort(where.position)]
    np.testing.assert_array_equal(by_place, [0, 5, 6, 1, 3, 2, 4])
    np.testing.assert_array_equal(layout.first_exclusive, [3, 5])
    probs = where.attention(np.exp(layout.shared_log_prob), np.zeros((2, 0)), 10)
    np.testing.assert_allclose(probs, classes.probs, rtol=1e-14)
    # a random start is drawn in the order of the plain layout, so that it is the same start
    _, plain_where = dense_layout(classes, symmetric_start=True)
    plain_tokens = plain_where.tokens[np.argsort(plain_where.position)]
    np.testing.assert_array_equal(plain_tokens[where.drawn], by_place)


def test_few_own_tokens_are_not_set_apart():
    wide = {t: 0.02 for t in range(49)}
    rows = [wide | {49: 0.02}, wide | {50: 0.02}]
    classes = SequenceClasses(rows, query=[60, 60], next_token=[61, 62], vocab_size=63)
    assert dense_layout(classes, symmetric_start=True, by_class=True)[0].exclusive_each == 0


def test_logits_go_in_and_come_out():
    classes = random(60, 5, overlap=0.3, queries=2)
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, classes.vocab_size))
    for layout, where in (
        dense_layout(classes, symmetric_start=True),
        dense_layout(classes, symmetric_start=True, by_class=True),
        sparse_layout(classes, symmetric_start=True, lump=False),
    ):
        shared, exclusive = where.blocks(z, classes.query_index, layout.exclusive_log_prob.shape)
        back = where.logits(shared, exclusive, z, classes.query_index)
        np.testing.assert_array_equal(back, z)


def test_outputs_that_are_targets_are_never_lumped():
    classes = syn_small()
    assert dense_layout(classes, symmetric_start=False)[0].output_multiplicity.size == 34
    everything = SequenceClasses([[1.0, 0], [0, 1.0]], query=[0, 0], next_token=[0, 1])
    layout, _ = sparse_layout(everything, symmetric_start=True, lump=True)
    np.testing.assert_array_equal(layout.output_multiplicity, [1, 1])
