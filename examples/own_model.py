"""A model of your own on sequence classes: attention logits of low rank, z = A B^T.

    python examples/own_model.py

How many directions does attention need to leave the common tokens? On Syn-Medium one is enough:
queries share no distinct token. docs/guides/own_task.md explains it.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

import attnlab
from attnlab.models.sequence import SequenceModel, token_mass


@dataclass(frozen=True)
class LowRank(SequenceModel):
    """Y as in the paper; Z = A B^T with A (query, rank) and B (token, rank)."""

    dims: ClassVar = {"attention": ("sequence", "token")}
    rank: int = 1

    def init(self, key, task, data):
        """Y(0) = 0 and B(0) = 0, so that z(0) = 0, while A lets it move."""
        M = task.vocab_size
        A = jax.random.normal(key, (M, self.rank)) / self.rank**0.5
        return {"decoder": jnp.zeros((M, M)), "attention": {"A": A, "B": jnp.zeros((M, self.rank))}}

    def apply(self, params, inputs, *, key=None):
        """Attend by Eq. 5 to the tokens of a sequence, or of a class for T to infinity; decode."""
        A, B = params["attention"]["A"], params["attention"]["B"]
        mass, query = token_mass(inputs, len(B))
        attention = mass * jnp.exp(A[query] @ B.T)
        attention /= attention.sum(-1, keepdims=True)
        f = attention / jnp.linalg.norm(attention, axis=-1, keepdims=True)
        return f @ params["decoder"], {"attention": attention}


if __name__ == "__main__":
    classes = attnlab.classes_from("syn-medium:num_last=4")
    run = attnlab.Simulation(
        classes,
        LowRank(2),
        gradient="population",
        motion=attnlab.Steps(500),
        eta_z=10.0,
        record=attnlab.Record(what="attention", at=(0, 500)),
    )
    attnlab.save(attnlab.simulate(run), "low_rank.nc")
    assert attnlab.Simulation.of(attnlab.load("low_rank.nc")) == run
    swept = attnlab.sweep(run, grid={"rank": [1, 2, 4]}, seeds=5)
    common = swept["attention"].isel(token=classes.common_tokens()).sum("token")
    for rank, of in common.mean(["seed", "sequence"]).groupby("rank"):
        first, last = of.values.ravel()
        print(f"rank {rank}: common tokens have {first:.3f} of attention, then {last:.3f}")
