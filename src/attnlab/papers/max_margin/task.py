"""TokenSelection: sequences of random unit vectors, of which the best token is to be found.

The instances are those of the released code; equal scores are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from attnlab.files.errors import require_choice, require_whole
from attnlab.tasks import Batch, Task

if TYPE_CHECKING:
    import jax

Query = Literal["cross", "self", "none"]
Scores = Literal["random", "equal"]
BEST, REST = 0.6, 0.1  # scores of the best token and of the others, where those are equal


@dataclass(frozen=True)
class TokenSelection(Task):
    """n sequences of T tokens with a query vector and a label y = +-1 each.

    Tokens x_it, queries z_i and values v are independent and uniform on the sphere, labels are fair
    signs. A token's score is gamma_it = y_i v^T x_it. The n sequences are the population.

    Parameters
    ----------
    sequences, length, vocab_size : int, optional
        n, T and d, the width of the vectors.
    query : {"cross", "self", "none"}, optional
        z_i is drawn, or x_i1, or the number 1: then W is a single vector p, (d, 1).
    scores : {"random", "equal"}, optional
        With "equal", the component of x_it along v is replaced so that one random token of each
        sequence has the score 0.6 and the others 0.1.
    """

    sequences: int = 4
    length: int = 5
    vocab_size: int = 8
    query: Query = "cross"
    scores: Scores = "random"

    def __post_init__(self) -> None:
        for name, least in (("sequences", 1), ("length", 2), ("vocab_size", 1)):
            require_whole(name, getattr(self, name), least)
        for name, known in (("query", Query), ("scores", Scores)):
            require_choice(name, getattr(self, name), get_args(known))

    @property
    def outputs(self) -> int:
        """One number for each sequence, whose sign predicts the label."""
        return 1

    @property
    def numbers(self) -> int:
        """Random numbers of an instance."""
        return sum(map(math.prod, self._shapes))

    def draw(self, key: jax.Array) -> dict[str, jax.Array]:
        """Draw x (n, T, d), z (n, k), y (n,) and, for each token, v^T x and its score (n, T)."""
        import jax

        # one call of the generator for everything: it takes long to compile
        return self.instance(jax.random.normal(key, (self.numbers,)))

    def instance(self, normal: Any) -> dict[str, Any]:
        """Return the instance of `numbers` standard normal numbers, an array of JAX or numpy."""
        xp = normal.__array_namespace__()
        n, T, _ = self._shapes[0]
        ends = np.cumsum([math.prod(shape) for shape in self._shapes])[:-1].tolist()
        x, z, v, sign, order = map(xp.reshape, xp.split(normal, ends), self._shapes)
        x, z, v = (of / xp.linalg.norm(of, axis=-1, keepdims=True) for of in (x, z, v))
        y = xp.where(sign < 0, -1.0, 1.0)
        values = x @ v
        if self.scores == "equal":
            best = xp.arange(T) == order.argmax(axis=1, keepdims=True)
            wanted = xp.where(best, BEST, REST) * y[:, None]
            x = x + (wanted - values)[..., None] * v
            # x @ v would be equal up to rounding only, and rounding decides late in training
            values = wanted
        z = {"cross": z, "self": x[:, 0], "none": xp.ones((n, 1), x.dtype)}[self.query]
        return {"x": x, "z": z, "y": y, "values": values, "scores": y[:, None] * values}

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        n, T, d = self.sequences, self.length, self.vocab_size
        return (n, T, d), (n, d), (d,), (n,), (n, T)

    def population(self, data: Any) -> Batch:
        """Return tokens, queries and values of the sequences, with their labels."""
        return Batch((data["x"], data["z"], data["values"]), data["y"])
