"""In-context Markov chains from other priors: doubly stochastic, unigram, mixtures, n-grams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab.files.errors import refuse_if, require_whole
from attnlab.tasks import Batch, MarkovChains, Task
from attnlab.tasks.markov import dirichlet_rows

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class MixedChains(MarkovChains):
    """Markov chains of which a share is doubly stochastic, and a share is without memory.

    Doubly stochastic matrices are uniform: their stationary law is uniform, and unigrams predict
    nothing. A unigram chain has equal rows, Dirichlet(concentration): bigrams add nothing. All
    others are those of `MarkovChains`. Rules of reference are those of `MarkovChains`, too.

    Parameters
    ----------
    doubly : float, optional
        Share of doubly stochastic chains, of 2 or 3 symbols.
    unigram : float, optional
        Share of unigram chains.
    """

    doubly: float = 0.0
    unigram: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("doubly", "unigram"):
            share = getattr(self, name)
            refuse_if(not 0 <= share <= 1, name, "a share in [0, 1]", share)
        total, k = self.doubly + self.unigram, self.vocab_size
        refuse_if(total > 1, "doubly, unigram", "shares that add up to at most 1", total)
        wrong = self.doubly > 0 and k > 3
        refuse_if(wrong, "vocab_size", "2 or 3 symbols of doubly stochastic chains", k)

    def _rows(self, key: jax.Array, size: int) -> jax.Array:
        import jax
        import jax.numpy as jnp

        of_kind, of_rows, of_doubly = jax.random.split(key, 3)
        rows = super()._rows(of_rows, size)
        kind = jax.random.uniform(of_kind, (size, 1, 1))
        if self.unigram:
            rows = jnp.where(kind < self.unigram, rows[:, :1], rows)
        if self.doubly:
            doubly = doubly_stochastic(of_doubly, self.vocab_size, size)
            rows = jnp.where(kind >= 1 - self.doubly, doubly, rows)
        return rows


def doubly_stochastic(key: jax.Array, k: int, size: int) -> jax.Array:
    """Draw uniform doubly stochastic matrices (size, k, k) of 2 or 3 symbols.

    They are mixtures of permutation matrices. Of 3 symbols, the sum of the even permutations is
    that of the odd ones, so that the polytope is made of three simplices of equal volume, each
    without one of the even permutations: choose one, and draw from it uniformly.
    """
    import jax
    import jax.numpy as jnp

    of_weights, of_left_out = jax.random.split(key)
    symbols = range(k)
    even = [[(i + shift) % k for i in symbols] for shift in symbols]
    odd = [[(shift - i) % k for i in symbols] for shift in symbols] if k == 3 else []
    vertices = jnp.eye(k)[jnp.asarray(even + odd)]  # vertex row column
    weights = jax.random.exponential(of_weights, (size, len(vertices)))
    if odd:
        left_out = jax.random.randint(of_left_out, (size, 1), 0, k)
        weights = jnp.where(jnp.arange(len(vertices)) == left_out, 0.0, weights)
    return jnp.einsum("bv,vij->bij", weights / weights.sum(-1, keepdims=True), vertices)


@dataclass(frozen=True)
class NGrams(Task):
    """Chains whose next symbol depends on the last `order` - 1; new in each sequence.

    Each row of the transition table is Dirichlet(1); the first symbols are uniform.

    Parameters
    ----------
    vocab_size : int, optional
        k, symbols.
    length : int, optional
        T, positions.
    order : int, optional
        n: 2 for Markov chains.
    """

    vocab_size: int = 2
    length: int = 50
    order: int = 3

    def __post_init__(self) -> None:
        require_whole("vocab_size", self.vocab_size, 2)
        require_whole("order", self.order, 2)
        require_whole("length", self.length, self.order)

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Batch:
        """Draw `size` chains and one sequence of each."""
        import jax
        import jax.numpy as jnp

        k, memory = self.vocab_size, self.order - 1
        of_rows, of_first, of_steps = jax.random.split(key, 3)
        rows = dirichlet_rows(of_rows, (size, k**memory, k), 1.0)
        bounds = jnp.cumsum(rows, -1)[..., :-1]
        first = jax.random.randint(of_first, (size, memory), 0, k)
        # As in `MarkovChains`: where each step would lead from every state, composed.
        u = jax.random.uniform(of_steps, (self.length + 1 - memory, size, k**memory, 1))
        x = (u > bounds).sum(-1)
        maps = (jnp.arange(k**memory) * k + x) % k**memory
        maps = jax.lax.associative_scan(lambda f, g: jnp.take_along_axis(g, f, -1), maps)
        state = first @ (k ** jnp.arange(memory)[::-1])
        later = jnp.take_along_axis(maps, state[None, :, None], -1)[..., 0] % k
        tokens = jnp.concatenate([first, later.T], axis=1)
        return Batch(tokens[:, :-1], tokens[:, 1:])

    def references(self, data: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return add-one log-probabilities of uniform, unigram, bigram, ... rules, (B, T, k)."""
        import jax
        import jax.numpy as jnp

        k, (size, T) = self.vocab_size, batch.inputs.shape
        x = jax.nn.one_hot(batch.inputs, k)
        counts = {"uniform": jnp.zeros_like(x), "unigram": jnp.cumsum(x, axis=1)}
        earlier = jnp.tri(T, k=-1)[None]  # query s: s before t
        same = jnp.ones((size, T, T))  # the last symbols before s + 1 are those at t
        for n in range(2, self.order + 1):
            shifted = jnp.pad(batch.inputs, ((0, 0), (n - 2, 0)), constant_values=-n)[:, :T]
            same = same * (shifted[:, :, None] == shifted[:, None])
            following = jnp.pad(x[:, 1:], ((0, 0), (0, 1), (0, 0)))
            name = {2: "bigram", 3: "trigram"}.get(n, f"gram_{n}")
            counts[name] = (same * earlier) @ following
        return {
            name: jnp.log((of + 1.0) / (of.sum(-1, keepdims=True) + k))
            for name, of in counts.items()
        }
