"""The model trained on real windows, against a plain forward pass and automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly
from small_text import read_corpus

from attnlab.papers.scan_and_snap.fit import fit_windows
from attnlab.tasks.text.windows import classes_of, find_windows

ASKED = {"queries": 2, "following": 2, "context": 11, "min_count": 5}


def plain_loss(parameters, counts, query, target):
    """Mean cross entropy of Eqs. 1 and 2 over the whole vocabulary, a window at a time."""
    Y, Z = parameters

    def one(count, m, n):
        weight = count * jnp.exp(Z[m])
        mixture = weight / weight.sum()
        return -jax.nn.log_softmax(Y.T @ (mixture / jnp.linalg.norm(mixture)))[n]

    return jax.vmap(one)(counts, query, target).mean()


def test_steps_on_windows_are_those_of_the_plain_model(tmp_path):
    windows = find_windows(read_corpus(tmp_path), **ASKED)
    classes = classes_of(windows)
    eta_y, eta_z, batch = 2.0, 1.0, 128
    result = fit_windows(windows, classes, eta_y=eta_y, eta_z=eta_z, steps=3, seeds=2)

    M = classes.vocab_size
    Y, Z = jnp.zeros((M, M)), jnp.zeros((M, M))
    counts = windows.counts().astype(np.float32)
    query = classes.query[windows.sequence_class]
    target = classes.next_token[windows.sequence_class]
    gradient = quickly(jax.grad(plain_loss))
    for i in range(3):
        drawn = jax.random.randint(
            jax.random.fold_in(jax.random.key(0), i), (batch,), 0, len(windows)
        )
        slope = gradient((Y, Z), counts[drawn], query[drawn], target[drawn])
        Y, Z = Y - eta_y * slope[0], Z - eta_z * slope[1]
    z = result["attention_logits"].isel(seed=0)
    np.testing.assert_allclose(z, np.asarray(Z)[classes.queries], atol=2e-6)
    assert abs(z).max() > 1e-3
    loss = quickly(plain_loss)((Y, Z), counts, query, target)
    np.testing.assert_allclose(result["loss"].isel(seed=0), loss, rtol=1e-5)

    weight = counts * np.exp(np.asarray(Z)[query])
    attention = weight / weight.sum(axis=1, keepdims=True)
    for k in range(len(classes)):
        own = attention[windows.sequence_class == k].mean(axis=0)
        np.testing.assert_allclose(result["attention"].isel(seed=0, sequence_class=k), own, 1e-4)


def test_rates_that_are_too_large_are_refused(tmp_path):
    windows = find_windows(read_corpus(tmp_path), **ASKED)
    with pytest.raises(ValueError, match="eta_y, eta_z: .* take smaller ones"):
        fit_windows(windows, classes_of(windows), eta_y=1e38, eta_z=1e38, steps=3, seeds=2)
