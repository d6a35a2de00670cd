"""The loss of the decoder and its gradient, against automatic differentiation in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from attnlab.models.losses import aligned_cross_entropy, decoder_cross_entropy

ROWS, WIDTH, VOCAB = 6, 5, 11  # none a multiple of a tile
TARGETS = jnp.array([0, 10, 3, 3, 7, 1])


def drawn(scale=1.0):
    """x, weights and bias of logits of the size `scale`."""
    rng = np.random.default_rng(3)
    x, weights, bias = (rng.normal(size=s) for s in ((ROWS, WIDTH), (VOCAB, WIDTH), (VOCAB,)))
    return tuple(jnp.asarray(scale**0.5 * a, jnp.float32) for a in (x, weights, scale**0.5 * bias))


def expected(arrays):
    """Value and gradient by definition, in float64."""

    def loss(x, weights, bias):
        return -jax.nn.log_softmax(x @ weights.T + bias)[jnp.arange(ROWS), TARGETS].mean()

    with jax.enable_x64(True):
        doubles = tuple(jnp.asarray(array, jnp.float64) for array in arrays)
        return jax.tree.map(np.asarray, jax.value_and_grad(loss, (0, 1, 2))(*doubles))


def plain(x, weights, bias):
    return decoder_cross_entropy(x, weights, bias, TARGETS)


def aligned(dtype):
    return lambda x, weights, bias: aligned_cross_entropy(x, weights, bias, TARGETS, dtype)


@pytest.mark.parametrize(
    ("loss", "tolerance"),
    [(plain, 1e-6), (aligned("float32"), 1e-6), (aligned("bfloat16"), 1e-2)],
    ids=["plain", "aligned", "bfloat16"],
)
def test_loss_and_gradient(loss, tolerance):
    arrays = drawn()
    value, gradient = quickly(jax.value_and_grad(loss, (0, 1, 2)))(*arrays)
    right, right_gradient = expected(arrays)
    assert float(value) == pytest.approx(float(right), abs=tolerance)
    for found, wanted, array in zip(gradient, right_gradient, arrays, strict=True):
        assert found.dtype == jnp.float32
        assert found.shape == array.shape
        assert np.linalg.norm(found - wanted) < tolerance * np.linalg.norm(wanted)


def test_steep_logits_leave_a_finite_loss_and_the_right_gradient():
    arrays = drawn(1e4)
    right, right_gradient = expected(arrays)
    value, gradient = quickly(jax.value_and_grad(plain, (0, 1, 2)))(*arrays)
    assert 1e3 < float(value) < np.inf
    assert float(value) == pytest.approx(float(right), rel=1e-5)
    value, gradient = quickly(jax.value_and_grad(aligned("float32"), (0, 1, 2)))(*arrays)
    assert 50 < float(value) < 88  # it says where it ends
    for found, wanted in zip(gradient, right_gradient, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_logit_that_is_no_number_is_not_hidden(bad):
    x, weights, bias = drawn()
    for loss in (plain, aligned("float32"), aligned("bfloat16")):
        assert not np.isfinite(quickly(loss)(x.at[2, 1].set(bad), weights, bias))


def test_many_runs_at_once_are_each_alone():
    x, weights, bias = drawn()
    both = tuple(jnp.stack([array, 2 * array]) for array in (x, weights, bias))
    slopes = jax.value_and_grad(aligned("bfloat16"), (0, 1, 2))
    together = quickly(jax.vmap(slopes))(*both)
    alone = [quickly(slopes)(*(array[run] for array in both)) for run in range(2)]
    for run in range(2):
        jax.tree.map(
            lambda a, b, run=run: np.testing.assert_allclose(a[run], b, rtol=1e-2, atol=1e-3),
            together,
            alone[run],
        )
