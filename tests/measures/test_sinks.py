"""Measures of a first position against loops, for all three kinds of arrays."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from attnlab.measures import positions

KINDS = [np.asarray, jnp.asarray, torch.tensor]


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
