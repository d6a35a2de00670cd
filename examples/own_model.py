"""A model of your own: attention logits of low rank, z = A B^T.

    python examples/own_model.py

How many directions does attention need to leave the common tokens? On Syn-Medium one is enough:
queries share no distinct token. docs/guides/own_model.md explains it.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import attnlab
from attnlab.dynamics import Parameters, decode, dense_block, dense_parameters


@dataclass(frozen=True)
class LowRank(attnlab.Model):
    """Y as in the paper; Z = A B^T with A (query, rank) and B (token, rank), both at rate eta_z."""

    rank: int = 1

    def begin(self, layout, start, random, key):
        """Y(0) = 0 and, unless it is random, B(0) = 0: z(0) = 0, while A lets it move."""
        key_a, key_b = jax.random.split(key)
        dtype = layout.prior.dtype
        A = jax.random.normal(key_a, (layout.num_queries, self.rank), dtype) / self.rank**0.5
        B = jax.random.normal(key_b, (layout.num_shared, self.rank), dtype) * float(random)
        Y = jnp.zeros((layout.num_shared, layout.num_outputs), dtype)
        return None, Parameters(Y, (A, B))

    def outputs(self, layout, rows, trained, fixed):
        """The decoder's logits of each row; loss and gradient follow from them."""
        A, B = trained.Z
        return decode(layout, rows, dense_parameters(layout, trained.Y, A @ B.T))

    def attention_logits(self, layout, trained, fixed):
        """z, as it is recorded; attention follows from it."""
        A, B = trained.Z
        return dense_block(layout, A @ B.T)


if __name__ == "__main__":
    simulation = attnlab.Simulation(
        "syn-medium:num_last=4", attnlab.Limit(), model=LowRank(2), eta_z=10.0, steps=500
    )
    attnlab.save(attnlab.simulate(simulation), "low_rank.nc")
    assert attnlab.Simulation.of(attnlab.load("low_rank.nc")) == simulation
    swept = attnlab.sweep(simulation, grid={"model.rank": [1, 2, 4]}, seeds=5)
    common = swept["common_mass"].mean(["seed", "sequence_class"]).isel(step=[0, -1])
    for rank, (first, last) in zip(common["rank"].values, common.values, strict=True):
        print(f"rank {rank}: common tokens have {first:.3f} of attention, then {last:.3f}")
