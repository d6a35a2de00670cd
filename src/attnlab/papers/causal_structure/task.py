"""Tasks: sequences whose positions depend on earlier ones by a hidden graph, the same in all.

The transition probabilities are new in each sequence, so that a model has to read them from the
context, and has to know the graph to do so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from attnlab.files.errors import refuse_if, require_choice, require_whole
from attnlab.tasks import Batch, Task
from attnlab.tasks.markov import dirichlet_rows, stationary

if TYPE_CHECKING:
    import jax

Graph = Literal["chain", "pairs", "random", "half"]
ROOT = -1


@dataclass(frozen=True)
class Forest(Task):
    """Sequences along a forest on the positions 0..T-2, and a test token at T-1.

    Rows of P are (1 - stickiness) Dirichlet(concentration) + stickiness e_a, new in each sequence;
    roots are drawn from the stationary law of P, others from the row of their parent's token. The
    test token is uniform, and the target is its whole row of P.

    Parameters
    ----------
    vocab_size : int, optional
        S, symbols.
    length : int, optional
        T, positions with that of the test token.
    concentration : float, optional
        alpha of the Dirichlet law of each row.
    graph : str, optional
        "chain" (the parent is the position before), "pairs" (1 depends on 0, 3 on 2, ...), "random"
        (uniform over none and the positions before), "half" (uniform over the positions before,
        then each is made a root with probability 1/2). Random graphs are drawn by seed.
    stickiness : float, optional
        Share of the identity in P; the hypothesis that E[P] is constant asks for 0.
    """

    vocab_size: int = 3
    length: int = 10
    concentration: float = 1.0
    graph: Graph = "chain"
    stickiness: float = 0.0

    def __post_init__(self) -> None:
        _check_sizes(self)
        require_choice("graph", self.graph, get_args(Graph))
        s = self.stickiness
        refuse_if(not 0 <= s < 1, "stickiness", "0 <= x < 1", s)

    def draw(self, key: jax.Array) -> dict[str, jax.Array]:
        """Draw the graph: the parent of each position but the last; -1 is a root."""
        import jax
        import jax.numpy as jnp

        position = jnp.arange(self.length - 1)
        if self.graph == "chain":
            return {"parents": position - 1}
        if self.graph == "pairs":
            return {"parents": jnp.where(position % 2 == 1, position - 1, ROOT)}
        of_parents, of_roots = jax.random.split(key)
        if self.graph == "random":
            return {"parents": jax.random.randint(of_parents, position.shape, ROOT, position)}
        before = jax.random.randint(of_parents, position.shape, 0, jnp.maximum(position, 1))
        root = jax.random.bernoulli(of_roots, 0.5, position.shape) | (position == 0)
        return {"parents": jnp.where(root, ROOT, before)}

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Batch:
        """Draw `size` transition matrices and a sequence of each."""
        import jax
        import jax.numpy as jnp

        S, T = self.vocab_size, self.length
        of_rows, of_tokens, of_test = jax.random.split(key, 3)
        P = dirichlet_rows(of_rows, (size, S, S), self.concentration)
        P = (1 - self.stickiness) * P + self.stickiness * jnp.eye(S)
        mu = stationary(P)
        every = jnp.arange(size)

        def law(tokens: jax.Array, parent: jax.Array) -> jax.Array:
            # a root reads the last column, whatever is there
            return jnp.where(parent == ROOT, mu, P[every, tokens[:, parent]])

        u = jax.random.uniform(of_tokens, (T - 1, size, 1))
        tokens = _along(jnp.zeros((size, T), int), jnp.arange(T - 1), data["parents"], u, law)
        test = jax.random.randint(of_test, (size,), 0, S)
        return Batch(tokens.at[:, -1].set(test), P[every, test])

    def references(self, data: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return log-probabilities of the count predictor and of what released code compares with.

        `counts` is (n_b + alpha) / (n + S alpha), n_b being the children of the test token's symbol
        that are b. `released` counts roots as well, as children of the last token of the context.
        """
        import jax
        import jax.numpy as jnp

        parents = data["parents"]
        tokens = jax.nn.one_hot(batch.inputs, self.vocab_size)
        children = tokens[:, :-1]
        found = {}
        for name, of in (
            ("counts", jnp.where(parents[:, None] == ROOT, 0.0, tokens[:, parents])),
            ("released", tokens[:, jnp.where(parents == ROOT, self.length - 2, parents)]),
        ):
            chosen = jnp.einsum("bis,bs->bi", of, tokens[:, -1])
            n = jnp.einsum("bi,bis->bs", chosen, children)
            found[name] = _log_share(n, self.concentration)
        return found


@dataclass(frozen=True)
class TwoParents(Task):
    """Position i depends on positions (i - 1) // 2 and i - 1; the target is the law of position T.

    P has a row for each pair of symbols, Dirichlet(concentration), new in each sequence. Position 0
    is uniform.

    Parameters
    ----------
    vocab_size : int, optional
        S, symbols.
    length : int, optional
        T, positions.
    concentration : float, optional
        alpha of the Dirichlet law of each row.
    """

    vocab_size: int = 5
    length: int = 32
    concentration: float = 0.1

    def __post_init__(self) -> None:
        _check_sizes(self)

    @property
    def parents(self) -> np.ndarray:
        """Both parents of positions 1..T, (T, 2)."""
        position = np.arange(1, self.length + 1)
        return np.stack([(position - 1) // 2, position - 1], 1)

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Batch:
        """Draw `size` tables of transition probabilities and a sequence of each."""
        import jax
        import jax.numpy as jnp

        S, T = self.vocab_size, self.length
        of_rows, of_tokens, of_root = jax.random.split(key, 3)
        P = dirichlet_rows(of_rows, (size, S, S, S), self.concentration)
        every = jnp.arange(size)

        def law(tokens: jax.Array, parents: jax.Array) -> jax.Array:
            return P[every, tokens[:, parents[0]], tokens[:, parents[1]]]

        parents = jnp.asarray(self.parents)
        first = jax.random.randint(of_root, (size,), 0, S)
        tokens = jnp.zeros((size, T), int).at[:, 0].set(first)
        u = jax.random.uniform(of_tokens, (T - 1, size, 1))
        tokens = _along(tokens, jnp.arange(1, T), parents[:-1], u, law)
        return Batch(tokens, law(tokens, parents[-1]))

    def references(self, data: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return log-probabilities from the counts of both parents, and of the nearer one alone."""
        import jax
        import jax.numpy as jnp

        tokens, parents = batch.inputs, self.parents
        same = [tokens[:, parents[:-1, k]] == tokens[:, parents[-1:, k]] for k in (0, 1)]
        children = jax.nn.one_hot(tokens[:, 1:], self.vocab_size)
        found = {}
        for name, chosen in (("counts", same[0] & same[1]), ("one_parent", same[1])):
            n = jnp.einsum("bi,bis->bs", chosen.astype(children.dtype), children)
            found[name] = _log_share(n, self.concentration)
        return found


def _check_sizes(task: Forest | TwoParents) -> None:
    require_whole("vocab_size", task.vocab_size, 2)
    require_whole("length", task.length, 3)
    alpha = task.concentration
    refuse_if(not 0 < alpha < float("inf"), "concentration", "more than 0", alpha)


def _along(
    tokens: jax.Array,
    positions: jax.Array,
    parents: jax.Array,
    u: jax.Array,
    law: Callable[[jax.Array, jax.Array], jax.Array],
) -> jax.Array:
    """Return tokens, drawn position by position: at the quantile u of the law of their parents."""
    import jax
    import jax.numpy as jnp

    def draw(tokens: jax.Array, now: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        position, above, u = now
        drawn = (u > jnp.cumsum(law(tokens, above), -1)[:, :-1]).sum(-1)
        return tokens.at[:, position].set(drawn), None

    return jax.lax.scan(draw, tokens, (positions, parents, u))[0]


def _log_share(n: jax.Array, alpha: float) -> jax.Array:
    """Return the log-probabilities of symbols that were counted n times, alpha added to each."""
    import jax.numpy as jnp

    return jnp.log((n + alpha) / (n.sum(-1, keepdims=True) + n.shape[-1] * alpha))
