"""A learner whose flow is known: a quadratic loss in two groups of parameters."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from attnlab.simulation import Learner


@dataclass(frozen=True)
class Bowl(Learner):
    """L = sum_i c_i (x_i - y_0)^2 / 2 + |y|^2 / 2, with c drawn by seed; batches add noise."""

    curvature: float = 1.0

    def draw(self, key):
        return self.curvature * (1 + jax.random.uniform(key, (3,)))

    def init(self, key, data):
        return {"x": jnp.ones(3), "y": jnp.full(2, 0.5)}

    def batch(self, data, key, step, size):
        return jax.random.normal(key, (size,)).mean()

    def loss(self, data, params, batch, key):
        noise = batch if not isinstance(batch, tuple) else 0.0
        x, y = params["x"], params["y"]
        return (data * (x - y[0]) ** 2).sum() / 2 + (y**2).sum() / 2 + noise * x.sum()

    def capture(self, data, params, probe):
        return {"distance": jnp.abs(params["x"] - params["y"][0]).max()}
