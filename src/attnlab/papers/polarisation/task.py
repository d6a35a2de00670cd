"""Tasks without a sequence to read: one fixed target, or the next token of a sticky chain.

`Direction`, `Regression` and `Distribution` are one example each. A model has a vector f and
returns X f, with X the example's inputs; the loss is the task's own (``loss="task"``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab.files.errors import refuse_if, require_whole
from attnlab.tasks import Batch, Task

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class FixedTarget(Task):
    """One example: a matrix X (r, dim) that reads the model's vector f, and a target (r,).

    Parameters
    ----------
    dim : int, optional
        Numbers in the vector f.
    """

    dim: int = 8

    def __post_init__(self) -> None:
        require_whole("dim", self.dim, 1)

    def population(self, data: Any) -> Batch:
        """Return the one example: inputs (1, r, dim), target (1, r)."""
        X, target = data
        return Batch(X[None], target[None])


@dataclass(frozen=True)
class Direction(FixedTarget):
    """The logistic loss log(1 + exp(-beta . f)) of a random unit vector beta (released code)."""

    def draw(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Draw beta, as the one row of X; its label is 1."""
        import jax
        import jax.numpy as jnp

        beta = jax.random.normal(key, (1, self.dim))
        return beta / jnp.linalg.norm(beta), jnp.ones(1)

    def loss(self, data: Any, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Return log(1 + exp(-y beta . f))."""
        import jax

        return jax.nn.softplus(-batch.target * outputs).sum(-1)


@dataclass(frozen=True)
class Regression(FixedTarget):
    """The square loss |beta - X f|^2, without a half (released code).

    The loss with a half is the same flow at half the learning rate.

    Parameters
    ----------
    condition : float, optional
        kappa: X has singular values evenly spaced from 1 to 1 / kappa. X is diagonal, since a
        rotation of a Gaussian beta and of Gaussian values changes nothing.
    norm : float, optional
        |beta|; by default beta is N(0, I).
    """

    dim: int = 20
    condition: float = 1.0
    norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        finite = 1 <= self.condition < math.inf
        refuse_if(not finite, "condition", "a number of at least 1", self.condition)
        _require_positive("norm", self.norm)

    def draw(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Draw beta."""
        import jax
        import jax.numpy as jnp

        beta = jax.random.normal(key, (self.dim,))
        if self.norm is not None:
            beta = beta * self.norm / jnp.linalg.norm(beta)
        return jnp.diag(jnp.linspace(1.0, 1.0 / self.condition, self.dim)), beta

    def loss(self, data: Any, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Return |beta - X f|^2."""
        return ((outputs - batch.target) ** 2).sum(-1)


@dataclass(frozen=True)
class Distribution(FixedTarget):
    """Cross entropy of softmax(f) against p* = softmax(sharpness * uniform) (released code).

    Parameters
    ----------
    sharpness : float or None, optional
        Range of the logits of p*; None for a one-hot target.
    """

    dim: int = 10
    sharpness: float | None = 10.0

    def __post_init__(self) -> None:
        require_whole("dim", self.dim, 2)
        _require_positive("sharpness", self.sharpness)

    def draw(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Draw p*; X is the identity."""
        import jax
        import jax.numpy as jnp

        uniform = jax.random.uniform(key, (self.dim,))
        if self.sharpness is None:
            return jnp.eye(self.dim), jax.nn.one_hot(uniform.argmax(), self.dim)
        return jnp.eye(self.dim), jax.nn.softmax(self.sharpness * uniform)

    def loss(self, data: Any, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Return -sum_y p_y log softmax(f)_y, as sum_y p_y log(1 + sum_{k != y} exp(f_k - f_y)).

        Its gradient at a certain target is minus the sum of the other errors. That of a softmax is
        1 minus nearly 1, which late in training has no digits left.
        """
        import jax
        import jax.numpy as jnp

        gaps = outputs[..., None, :] - outputs[..., :, None]  # example, y, k
        gaps = jnp.where(jnp.eye(self.dim, dtype=bool), -jnp.inf, gaps)
        return (batch.target * jax.nn.softplus(jax.nn.logsumexp(gaps, -1))).sum(-1)


@dataclass(frozen=True)
class StickyChain(Task):
    """The next token of a chain P = lambda I + (1 - lambda) 1 pi^T (as we know it).

    Examples are the last tokens q, as often as pi says. Inputs are q and the token frequencies of
    an infinite sequence, targets the rows of P.

    Parameters
    ----------
    frequencies : tuple of float, optional
        pi.
    stickiness : float, optional
        lambda, between 0 and 1. The value used in the paper is not known to us.
    """

    frequencies: tuple[float, ...] = (0.75, 0.19, 0.05, 0.01)
    stickiness: float = 0.5

    def __post_init__(self) -> None:
        pi = self.frequencies
        wrong = len(pi) < 2 or min(pi) <= 0 or abs(sum(pi) - 1) > 1e-9
        refuse_if(wrong, "frequencies", "two or more numbers above 0 with sum 1", pi)
        lam = self.stickiness
        refuse_if(not 0 < lam < 1, "stickiness", "between 0 and 1", lam)

    @property
    def outputs(self) -> int:
        """Number of tokens."""
        return len(self.frequencies)

    def population(self, data: Any) -> Batch:
        """Return every last token, with its frequency as weight."""
        import jax.numpy as jnp

        pi, d = jnp.asarray(self.frequencies), self.outputs
        P = self.stickiness * jnp.eye(d) + (1 - self.stickiness) * pi
        return Batch((jnp.arange(d), jnp.tile(pi, (d, 1))), P, weight=pi)

    def references(self, data: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return the log-probabilities of uniform, of the frequencies and of the chain itself."""
        import jax.numpy as jnp

        _, pi = batch.inputs
        uniform = jnp.full_like(pi, -math.log(self.outputs))
        return {"uniform": uniform, "unigram": jnp.log(pi), "bayes": jnp.log(batch.target)}


def _require_positive(name: str, value: float | None) -> None:
    wrong = value is not None and not 0 < value < math.inf
    refuse_if(wrong, name, "a number above 0, or None", value)
