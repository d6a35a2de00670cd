"""Measures of plain maps: by hand, of every kind of array, and the floor of entropy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnlab.files.errors import InputError
from attnlab.measures import maps, positions, received

ROW = np.array([0.5, 0.25, 0.125, 0.125, 0.0])
KINDS = pytest.mark.parametrize("kind", [np.asarray, jnp.asarray, torch.asarray])


@KINDS
def test_a_row_by_hand(kind):
    row = kind(ROW.astype(np.float32))
    h = 1.75 * np.log(2)
    assert float(maps.entropy(row)) == pytest.approx(h)
    assert float(maps.relative_entropy(maps.entropy(row), 4)) == pytest.approx(h / np.log(4))
    assert np.isnan(float(maps.relative_entropy(maps.entropy(row), 1)))
    assert float(maps.effective_tokens(maps.entropy(row))) == pytest.approx(2**1.75)
    assert float(maps.participation(row)) == pytest.approx(1 / (0.25 + 0.0625 + 2 / 64))
    np.testing.assert_allclose(maps.top_mass(row), [0.5, 1, 1, 1])
    np.testing.assert_allclose(maps.top_mass(row, (2, 3)), [0.75, 0.875])
    np.testing.assert_array_equal(maps.keys_for(row, (0.5, 0.51, 0.99)), [1, 2, 4])
    # of what goes to keys: a learnable sink that takes half leaves the count as it is
    np.testing.assert_array_equal(maps.keys_for(row / 2, (0.5, 0.51, 0.99)), [1, 2, 4])
    other = kind(np.roll(ROW, 1).astype(np.float32))
    assert float(maps.total_variation(row, other)) == pytest.approx(
        np.abs(ROW - np.roll(ROW, 1)).sum() / 2
    )


def test_certainty_has_entropy_zero_and_nan_stays():
    assert np.copysign(1, maps.entropy(np.array([0.0, 1.0]))) == 1
    assert np.isnan(maps.entropy(np.array([np.nan, 1.0])))


def test_what_is_no_array_is_refused():
    with pytest.raises(InputError, match="np.asarray"):
        maps.entropy([0.5, 0.5])


def test_measures_run_inside_jit():
    whole = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    distance = jax.jit(positions.mean_distance)(jnp.asarray(whole))
    np.testing.assert_allclose(distance, np.arange(6) / 2, rtol=1e-6)


# -- the floor ----------------------------------------------------------------------------------

LOGITS = arrays(np.float64, st.integers(2, 40), elements=st.floats(-30, 30))


@given(LOGITS)
@settings(max_examples=200)
def test_entropy_is_never_below_its_floor(logits):
    p = np.exp(logits - logits.max())
    p /= p.sum()
    floor = maps.entropy_floor(maps.logit_norm(logits), logits.size)
    assert maps.entropy(p) >= floor - 1e-9


@given(st.integers(2, 500), st.floats(0, 40))
@settings(max_examples=100)
def test_the_floor_is_reached_where_one_key_stands_out(keys, gap):
    logits = np.zeros(keys)
    logits[0] = gap
    p = np.exp(logits - gap)
    p /= p.sum()
    norm = maps.logit_norm(logits)
    assert norm == pytest.approx(gap * np.sqrt((keys - 1) / keys), rel=1e-9, abs=1e-12)
    assert maps.entropy_floor(norm, keys) == pytest.approx(maps.entropy(p), rel=1e-6, abs=1e-9)


def test_the_floor_of_one_key_is_zero_and_hidden_keys_do_not_count():
    assert maps.entropy_floor(np.array(0.0), 1) == 0
    logits, seen = np.array([1.0, 3.0, -np.inf]), np.array([True, True, False])
    assert maps.logit_norm(logits, seen) == pytest.approx(np.sqrt(2))


# -- places -------------------------------------------------------------------------------------


@KINDS
def test_places_by_hand(kind):
    whole = np.array([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.2, 0.7, 0], [0.1, 0.2, 0.3, 0.4]])
    m = kind(whole.astype(np.float32))
    np.testing.assert_allclose(positions.self_mass(m), [1, 0.5, 0.7, 0.4])
    np.testing.assert_allclose(positions.previous_mass(m), [0, 0.5, 0.2, 0.3])
    np.testing.assert_allclose(positions.local_mass(m, 2), [1, 1, 0.9, 0.7])
    np.testing.assert_allclose(positions.mean_distance(m), [0, 0.5, 0.4, 1.0], rtol=1e-6)
    np.testing.assert_allclose(positions.sink_mass(m, (1, 2))[3], [0.1, 0.3], rtol=1e-6)
    np.testing.assert_allclose(positions.sink_mass(m, (1, 2), start=1)[3], [0.2, 0.5], rtol=1e-6)
    # the last two queries alone stand where they stood
    np.testing.assert_allclose(positions.self_mass(m[2:]), [0.7, 0.4])
    np.testing.assert_array_equal(positions.sink_rate(m[:, 0]), [1, 1, 0, 0])


@KINDS
def test_induction_and_duplicates_by_hand(kind):
    """a b c a b: the last b saw a b before; after it came c."""
    tokens = kind(np.array([0, 1, 2, 0, 1]))
    whole = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None]
    whole[4] = [0.1, 0.2, 0.6, 0.1, 0.0]
    m = kind(whole.astype(np.float32))
    after = np.asarray(positions.induction_mass(m, tokens))
    before = np.asarray(positions.duplicate_mass(m, tokens))
    assert np.isnan(after[:3]).all()  # nothing has occurred before
    assert after[3] == pytest.approx(0, abs=1e-6)  # even attention is chance
    assert after[4] == pytest.approx(0.6 - 0.2, rel=1e-5)
    assert before[4] == pytest.approx(0.2 - 0.2, abs=1e-6)
    assert np.isnan(np.asarray(positions.duplicate_mass(m, tokens, start=2))[4])  # another text


# -- received -----------------------------------------------------------------------------------


def test_received_counts_the_queries_that_see_a_key():
    whole = np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]])
    seen = np.tril(np.ones((3, 3), bool))
    np.testing.assert_allclose(received.received(whole, seen), [1.7 / 3, 0.4, 0.5])
    np.testing.assert_allclose(received.received(whole), whole.mean(0))
    tensor = torch.asarray(whole)
    np.testing.assert_allclose(received.received(tensor, torch.asarray(seen)), [1.7 / 3, 0.4, 0.5])


def test_heavy_hitters_and_their_overlap():
    total = np.arange(20.0)
    total[3] = np.nan  # padding
    heavy = received.heavy_hitters(total)
    assert np.flatnonzero(heavy).tolist() == [18, 19]
    later = total.copy()
    later[0] = 100
    assert received.overlap(total, later) == 0.5
    assert received.overlap(total, total) == 1
    assert received.heavy_hitters(np.array([1.0, 2.0])).sum() == 1
    assert np.isnan(received.overlap(total, np.full(20, np.nan)))


def test_tokens_are_counted_where_they_are_present():
    tokens = np.array([[7, 7, 3], [7, 5, 3]])
    present = np.array([[True, True, True], [True, True, False]])
    often, sequences = received.token_counts(tokens, present)
    assert often[0].tolist() == [3, 3, 1]
    assert sequences[0].tolist() == [2, 2, 1]
    with pytest.raises(InputError, match="tokens"):
        received.token_counts(tokens[:1], present)
