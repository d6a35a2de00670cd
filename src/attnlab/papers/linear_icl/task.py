"""InContextRegression: each sequence is a linear regression problem with its own weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.files.errors import InputError, require_whole
from attnlab.tasks import Batch, Task

from .theory import Regression

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class InContextRegression(Task):
    """Predict the label of a query input from N labelled examples, (x_n, w . x_n).

    Inputs x_1..x_N and x_q are N(0, diag(spectrum)), in the eigenbasis of their covariance: a
    rotation changes no result, since the start of the models has no preferred direction. A
    sequence, (N + 1, D + 1), has a row (x_n, y_n) for each example and a last row (x_q, 0); the
    target is y_q = w . x_q. A share `fresh` of the sequences has its own w ~ N(0, I), the others
    have w = (1, ..., 1), of norm sqrt(D), which can be learned in the weights of a model.

    The training set is fixed. As published, its own tasks have mean 0 and covariance exactly I, and
    its inputs have mean 0 at each position. Batches are fresh draws without these corrections.

    Parameters
    ----------
    spectrum : tuple of float, optional
        Eigenvalues of the input covariance, largest first.
    examples : int, optional
        N. The published 32 positions count the query.
    sequences : int, optional
        P, sequences in the training set.
    fresh : float, optional
        Share of sequences with a task of their own.
    noise : bool, optional
        Draw the context's labels from N(0, tr(spectrum)), independent of the task: a test that only
        in-weight learning passes.
    """

    spectrum: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)
    examples: int = 31
    sequences: int = 5000
    fresh: float = 1.0
    noise: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "spectrum", tuple(float(of) for of in self.spectrum))
        if not self.spectrum or not np.isfinite(self.spectrum).all():
            raise InputError(f"spectrum: expected eigenvalues above 0, got {self.spectrum}")
        _ = self.regression  # which checks them
        require_whole("sequences", self.sequences, 1)
        if not 0 <= self.fresh <= 1:
            raise InputError(f"fresh: expected a share from 0 to 1, got {self.fresh}")
        if 0 < self._own(self.sequences) <= len(self.spectrum):
            raise InputError(
                f"sequences: {self._own(self.sequences)} tasks of their own cannot have covariance "
                f"I in {len(self.spectrum)} dimensions; take more sequences"
            )

    @property
    def regression(self) -> Regression:
        """Spectrum and number of examples, as the theory takes them."""
        return Regression(self.spectrum, self.examples)

    def draw(self, key: jax.Array) -> Batch:
        """Draw the training set."""
        return self._draw(key, self.sequences, exact=True)

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Batch:
        """Draw `size` new sequences."""
        return self._draw(key, size, exact=False)

    def population(self, data: Any) -> Batch:
        """Return the training set."""
        return Batch(*data)

    def _own(self, size: int) -> int:
        """Return the number of sequences with a task of their own."""
        return math.floor(self.fresh * size + 0.5)

    def _draw(self, key: jax.Array, size: int, exact: bool) -> Batch:
        import jax
        import jax.numpy as jnp

        N, D = self.examples, len(self.spectrum)
        of_tasks, of_inputs, of_noise = jax.random.split(key, 3)
        own = jax.random.normal(of_tasks, (self._own(size), D))
        x = jax.random.normal(of_inputs, (size, N + 1, D)) * jnp.sqrt(jnp.asarray(self.spectrum))
        if exact:
            x = x - x.mean(0)
            own = _whitened(own) if len(own) else own
        w = jnp.concatenate([own, jnp.ones((size - len(own), D))])
        y = jnp.einsum("pd,pnd->pn", w, x)
        shown = y.at[:, N].set(0.0)
        if self.noise:
            noise = math.sqrt(sum(self.spectrum)) * jax.random.normal(of_noise, (size, N))
            shown = shown.at[:, :N].set(noise)
        return Batch(jnp.concatenate([x, shown[..., None]], axis=-1), y[:, N])


def _whitened(w: jax.Array) -> jax.Array:
    """Return vectors (P, D) with mean 0 and covariance I, up to rounding."""
    import jax
    import jax.numpy as jnp

    w = w - w.mean(0)
    root = jnp.linalg.cholesky(w.T @ w / len(w))
    return jax.scipy.linalg.solve_triangular(root, w.T, lower=True).T
