"""A task and a model of your own: in-context Markov chains and an attention-only model.

Trains 3 learning rates x 5 seeds as one program and draws attention, into own_task.png.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

from attnlab import Batches, Model, Record, Simulation, Steps, Task, simulate
from attnlab.tasks import Batch


@dataclass(frozen=True)
class Chains(Task):
    # every sequence has a transition matrix of its own
    vocab_size: int = 3
    length: int = 32

    def batch(self, data, key, step, size):
        rows, walk = jax.random.split(key)
        P = jax.random.dirichlet(rows, jnp.ones(self.vocab_size), (size, self.vocab_size))

        def move(x, key):
            return (jax.random.categorical(key, jnp.log(P[jnp.arange(size), x])),) * 2

        x = jax.lax.scan(move, jnp.zeros(size, int), jax.random.split(walk, self.length + 1))[1].T
        return Batch(x[:, :-1], x[:, 1:])


@dataclass(frozen=True)
class TwoLayers(Model):
    """Layer 1 attends by distance, layer 2 by token to what layer 1 found; no MLP."""

    dims: ClassVar = {"attention": ("layer", "sequence", "head", "query", "key")}

    def init(self, key, task, data):
        return {"second": jnp.full((task.vocab_size,) * 2, 0.01), "first": jnp.zeros(task.length)}

    def apply(self, params, inputs, *, key=None):
        e, t = jax.nn.one_hot(inputs, len(params["second"])), jnp.arange(inputs.shape[1])
        lag = t[:, None] - t
        first = jax.nn.softmax(jnp.where(lag >= 0, params["first"][lag], -jnp.inf))
        score = jnp.einsum("bta,ac,sr,brc->bts", e, params["second"], first, e)
        second = jnp.where(lag >= 0, score, 0.0)  # linear attention
        maps = jnp.stack([jnp.broadcast_to(first, second.shape), second])[:, :, None]
        return second @ e, {"attention": maps}


rates = {"second": [0.01, 0.02, 0.04], "first": 10.0}
record = Record(every=50, what=("previous_mass", "attention"), probe=1)
run = Simulation(Chains(), TwoLayers(), Steps(300), Batches(32), rates, seeds=5, record=record)
result = simulate(run)
print(result["previous_mass"].isel(step=-1, layer=0, head=0).mean("seed").to_series())
maps = result["attention"].isel(seed=0, step=[0, 2, -1], layer=0, head=0, sequence=0)
maps.plot(col="step", row="learning_rate_second", yincrease=False)
plt.savefig("own_task.png")
