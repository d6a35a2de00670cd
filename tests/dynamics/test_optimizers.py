"""Optimisers against optax's."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab import Optimizer

TREE = {"a": jnp.array([1.0, -2.0, 0.5]), "b": (jnp.array([[3.0], [-1e-3]]),)}
CASES = {
    "sgd": (Optimizer(), optax.sgd),
    "momentum": (Optimizer(momentum=0.9), lambda rate: optax.sgd(rate, momentum=0.9)),
    "L2": (
        Optimizer(momentum=0.5, weight_decay=0.1),
        lambda rate: optax.chain(optax.add_decayed_weights(0.1), optax.sgd(rate, momentum=0.5)),
    ),
    "adam": (Optimizer("adam"), optax.adam),
    "adam, its constants": (
        Optimizer("adam", beta_1=0.5, beta_2=0.9, epsilon=1e-3),
        lambda rate: optax.adam(rate, 0.5, 0.9, 1e-3),
    ),
    "adam with L2": (
        Optimizer("adam", weight_decay=0.1),
        lambda rate: optax.chain(optax.add_decayed_weights(0.1), optax.adam(rate)),
    ),
    "adamw": (Optimizer("adamw"), lambda rate: optax.adamw(rate, weight_decay=0.01)),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_optax(name):
    optimizer, reference = CASES[name]

    @jax.jit  # powers are rounded as in the programs that train
    def step(i, ours, memory, theirs, state):
        gradient = jax.tree.map(lambda w: jnp.sin(3 * w + i), theirs)
        updates, state = reference(0.3).update(gradient, state, theirs)
        moved = optimizer.move(0.3, ours, gradient, memory)
        return *moved, optax.apply_updates(theirs, updates), state

    after = TREE, optimizer.remember(TREE), TREE, reference(0.3).init(TREE)
    for i in range(4):
        after = step(i, *after)
        ours, _, theirs, _ = after
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6), ours, theirs)
