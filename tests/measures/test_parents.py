"""Attention along a graph of positions."""

import numpy as np
import pytest

from attnlab.files.errors import InputError
from attnlab.measures import parent_attention, parent_recovery

MAPS = np.array([[1, 0, 0], [0.7, 0.3, 0], [0.1, 0.6, 0.3]], np.float32)


def test_attention_to_parents():
    np.testing.assert_array_equal(parent_attention(MAPS, [-1, 0, 0]), MAPS[[1, 2], 0])
    assert parent_recovery(MAPS, [-1, 0, 0]) == 0.5
    assert parent_recovery(np.stack([MAPS, MAPS]), [-1, 0, 1]).tolist() == [1.0, 1.0]
    with pytest.raises(InputError, match="no position has a parent"):
        parent_attention(MAPS, [-1, -1])


@pytest.mark.parametrize("kind", ["jax.numpy", "torch"])
def test_the_same_for_other_arrays(kind):
    xp = pytest.importorskip(kind)
    maps = xp.asarray(MAPS)
    np.testing.assert_array_equal(np.asarray(parent_attention(maps, [-1, 0, 0])), MAPS[[1, 2], 0])
    assert float(parent_recovery(maps, [-1, 0, 0])) == 0.5
