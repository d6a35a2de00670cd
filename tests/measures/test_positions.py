"""Measures by position against loops, for all three kinds of arrays."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from attnlab.files.errors import InputError
from attnlab.measures import parent_attention, parent_recovery, positions

KINDS = [np.asarray, jnp.asarray, torch.tensor]
MAPS = np.array([[1, 0, 0], [0.7, 0.3, 0], [0.1, 0.6, 0.3]], np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("queries", [6, 4])
def test_sink_logit_is_that_of_loops(kind, queries):
    """Hidden keys may be minus infinity; the last query is the last key."""
    logits = np.random.default_rng(0).normal(size=(2, queries, 6)).astype(np.float32)
    logits[:, np.arange(6) > np.arange(queries)[:, None] + 6 - queries] = -np.inf
    found = np.asarray(positions.sink_logit(kind(logits)))
    for i in range(queries):
        at = i + 6 - queries
        if at == 0:
            assert np.isnan(found[:, i]).all()
        else:
            expected = logits[:, i, 0] - logits[:, i, 1 : at + 1].mean(-1)
            np.testing.assert_allclose(found[:, i], expected, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_first_ratio(kind):
    found = positions.first_ratio(kind(np.array([[1.0, 2.0, 6.0], [8.0, 1.0, 3.0]])))
    np.testing.assert_allclose(np.asarray(found), [0.25, 4.0])
    padded = kind(np.array([[9.0, 2.0, 6.0, 2.0], [9.0, 9.0, 9.0, 2.0]]))
    found = positions.first_ratio(padded, kind(np.array([[0, 1, 1, 1], [0, 0, 0, 1]])))
    np.testing.assert_allclose(np.asarray(found), [0.5, np.nan])


@pytest.mark.parametrize("kind", KINDS)
def test_attention_along_a_graph_of_positions(kind):
    maps = kind(MAPS)
    np.testing.assert_array_equal(np.asarray(parent_attention(maps, [-1, 0, 0])), MAPS[[1, 2], 0])
    assert float(parent_recovery(maps, [-1, 0, 0])) == 0.5
    assert parent_recovery(kind(np.stack([MAPS, MAPS])), [-1, 0, 1]).tolist() == [1.0, 1.0]
    with pytest.raises(InputError, match="no position has a parent"):
        parent_attention(maps, [-1, -1])
