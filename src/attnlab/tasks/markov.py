"""In-context Markov chains: each sequence has transition probabilities of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnlab.files.errors import InputError, require_whole
from attnlab.tasks.base import Batch, Task

if TYPE_CHECKING:
    import jax

MOST_SELECTED = 8  # symbols, above which a gather is quicker
SQUARINGS = 10  # P^1024 has the stationary distribution in its rows


@dataclass(frozen=True)
class MarkovChains(Task):
    """Next-token prediction on Markov chains that are new in each sequence (ICL-MC).

    Rows of P are Dirichlet(concentration), independent; x_{t+1} ~ P(x_t, .). Inputs are
    x_1..x_T, targets x_2..x_{T+1}. The best prediction is from the counts of the context.

    Parameters
    ----------
    vocab_size : int, optional
        k, symbols.
    length : int, optional
        T, positions.
    concentration : float, optional
        Of the Dirichlet distribution of each row.
    start : str, optional
        Distribution of x_1: "stationary" or "uniform". With "uniform" the rule `bigram` is the
        Bayes rule for concentration 1; with "stationary" x_1 adds a little information.
    """

    vocab_size: int = 3
    length: int = 64
    concentration: float = 1.0
    start: Literal["stationary", "uniform"] = "stationary"

    def __post_init__(self) -> None:
        require_whole("vocab_size", self.vocab_size, 2)
        require_whole("length", self.length, 1)
        if not 0 < self.concentration < float("inf"):
            raise InputError(f"concentration: expected more than 0, got {self.concentration}")
        if self.start not in ("stationary", "uniform"):
            raise InputError(f"start: expected 'stationary' or 'uniform', got {self.start!r}")

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Batch:
        """Draw `size` chains and one sequence of each."""
        import jax
        import jax.numpy as jnp

        k, T = self.vocab_size, self.length
        of_rows, of_first, of_steps = jax.random.split(key, 3)
        P = self._rows(of_rows, size)  # B k k
        first = jnp.full((size, k), 1 / k)
        if self.start == "stationary":
            first = stationary(P)
        # Draw where each step would lead from every symbol, f_t(a) ~ P(a, .), and compose these
        # maps by doubling: log T operations in a row instead of T.
        bounds = jnp.cumsum(P, -1)[..., :-1]  # B k k-1
        u = jax.random.uniform(of_steps, (T, size, k))
        maps = (u[..., None] > bounds).sum(-1)  # T B k
        reach = 1
        while reach < T:
            still = jnp.broadcast_to(jnp.arange(k), (reach, size, k))
            before = jnp.concatenate([still, maps[:-reach]])
            maps = _after(maps, before)  # f_t after ... after f_{t-reach}
            reach *= 2
        u = jax.random.uniform(of_first, (size, 1))
        x = (u > jnp.cumsum(first, -1)[:, :-1]).sum(-1)  # B
        later = jnp.take_along_axis(maps, jnp.broadcast_to(x[None, :, None], (T, size, 1)), -1)
        tokens = jnp.concatenate([x[:, None], later[..., 0].T], axis=1)  # B T+1
        return Batch(tokens[:, :-1], tokens[:, 1:])

    def references(self, data: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return uniform, unigram and bigram (add `concentration`) log-probabilities, (B, T, k)."""
        import jax
        import jax.numpy as jnp

        k, c = self.vocab_size, self.concentration
        x = jax.nn.one_hot(batch.inputs, k)  # B T k
        seen = jnp.cumsum(x, axis=1)
        pairs = x[:, :-1, :, None] * x[:, 1:, None, :]  # B T-1 k k
        pairs = jnp.pad(jnp.cumsum(pairs, axis=1), ((0, 0), (1, 0), (0, 0), (0, 0)))
        after = jnp.einsum("bta,btac->btc", x, pairs)  # counts of what followed x_t before
        counts = {"uniform": jnp.zeros_like(seen), "unigram": seen, "bigram": after}
        return {
            name: jnp.log((n + c) / (n.sum(-1, keepdims=True) + k * c))
            for name, n in counts.items()
        }

    def _rows(self, key: jax.Array, size: int) -> jax.Array:
        return dirichlet_rows(key, (size, self.vocab_size, self.vocab_size), self.concentration)


def dirichlet_rows(key: jax.Array, shape: tuple[int, ...], concentration: float) -> jax.Array:
    """Draw rows from Dirichlet(concentration), of shape (..., k)."""
    import jax
    import jax.numpy as jnp

    if concentration == 1.0:  # exponentials: no rejection, one pass
        draws = jax.random.exponential(key, shape)
        return draws / draws.sum(-1, keepdims=True)
    return jax.random.dirichlet(key, jnp.full(shape[-1], concentration), shape[:-1])


def stationary(P: jax.Array) -> jax.Array:
    """Return the stationary distributions (..., k) of transition matrices, the rows of P^1024."""
    for _ in range(SQUARINGS):
        P = P @ P
        P = P / P.sum(-1, keepdims=True)  # or rounding would add up
    return P[..., 0, :]


def _after(maps: jax.Array, before: jax.Array) -> jax.Array:
    """Return the maps a -> maps[before[a]] of few symbols, along the last axis."""
    import jax.numpy as jnp

    k = maps.shape[-1]
    if k > MOST_SELECTED:
        return jnp.take_along_axis(maps, before, axis=-1)
    # one comparison for each pair of symbols joins the operations around it; a gather does not
    chosen = before[..., None] == jnp.arange(k)
    return jnp.where(chosen, maps[..., None, :], 0).sum(-1)
