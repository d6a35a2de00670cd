"""A call of attention is checked where it is made, and says what is wrong."""

import numpy as np
import pytest
import torch

from attnlab.files.errors import InputError
from attnlab.observing.call import AttentionCall

Q, K = np.ones((2, 4, 5, 8)), np.ones((2, 2, 7, 8))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": Q[0]}, r"of batch, head, query, width, got .*; one head: query\[:, None\]"),
        ({"query": Q.astype(int)}, "query: expected floating-point"),
        ({"query": Q[:1]}, "key: expected batch 1"),
        ({"query": Q[..., :4]}, "width 4"),
        ({"query": Q[:, :, :0]}, "nothing to attend"),
        ({"key": np.ones((2, 3, 7, 8))}, "3 heads do not divide"),
        ({"value": K[:, :, :3]}, "value: expected"),
        ({"scale": -1.0}, "scale"),
        ({"scale": "1"}, "scale: expected a positive number, got '1'"),
        ({"mask": [[True]]}, "mask: a list beside queries that are a ndarray"),
        ({"sinks": [0.0] * 4}, "sinks: a list beside"),
        ({"layer": -1}, "layer"),
        ({"window": 0}, "window"),
        ({"softcap": 0.0}, "softcap"),
        ({"sinks": np.ones(3)}, "sinks: expected one logit for each of the 4 heads"),
        ({"mask": np.ones((2, 7), bool)}, r"mask\[:, None, None, :\]"),
        ({"mask": np.ones((2, 1, 1, 7), int)}, "mask != 0"),
        ({"cross": True, "causal": True}, "cross"),
        ({"mask": torch.ones(7)}, "mask: a Tensor beside queries that are a ndarray"),
    ],
)
def test_wrong_calls_are_refused_with_a_remedy(changed, message):
    given = {"query": Q, "key": K, "value": K, "scale": 0.5, "layer": 0, **changed}
    with pytest.raises(InputError, match=message):
        AttentionCall(**given)


def test_shapes_and_spans():
    call = AttentionCall(Q, K, None, 0.5, 1, mask=np.ones((5, 7), bool), causal=True, window=3)
    assert call.shape == (2, 4, 5, 7)
    assert call.full_mask.shape == (1, 1, 5, 7)
    first, last = call.span(np.array([0, 6]))
    assert (first.tolist(), last.tolist()) == ([-2, 4], [0, 6])
    half = AttentionCall(
        torch.ones(1, 1, 2, 4, dtype=torch.bfloat16), torch.ones(1, 1, 2, 4), None, 1.0, 0
    )
    assert half.full_mask is None
