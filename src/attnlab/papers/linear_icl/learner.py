"""Learners of in-context regression on moments: a step does not depend on the number of sequences.

`PopulationRegression` has the expected loss, where the blocks of labels stay zero and A is all that
counts. `SampleRegression` has a fixed training set, through the Gram matrix of the cubic features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.files.errors import InputError
from attnlab.models.base import Params
from attnlab.simulation.learner import Learner
from attnlab.tasks import Batch

from .model import LABEL_BLOCKS, LinearAttention
from .task import InContextRegression

if TYPE_CHECKING:
    from attnlab.simulation.simulation import Simulation

TEST_SEQUENCES = 10_000


class Moments(NamedTuple):
    """Moments of a set of sequences: E[f f^T], E[f y_q], E[y_q^2] of their features f."""

    gram: jax.Array
    cross: jax.Array
    power: jax.Array

    def loss(self, T: jax.Array) -> jax.Array:
        """Return E (y_q - f . T)^2 of coefficients T of the features.

        The Gram matrix is symmetric, so that one product serves the loss and its gradient.
        """
        held = jax.lax.stop_gradient(T)
        product = self.gram @ held
        return self.power + 2 * (product - self.cross) @ T - held @ product


def moments(batch: Batch) -> Moments:
    """Return the moments of the features (X X^T/N)_ab x_qc with a <= b, (D + 1)(D + 2) D/2."""
    sequences, y = batch.inputs, batch.target
    P, N, D = len(y), sequences.shape[1] - 1, sequences.shape[2] - 1
    second = jnp.einsum("pna,pnb->pab", sequences, sequences) / N
    a, b = np.triu_indices(D + 1)
    f = (second[:, a, b, None] * sequences[:, N, None, :D]).reshape(P, -1)
    return Moments(f.T @ f / P, y @ f / P, (y**2).mean())


@dataclass(frozen=True)
class RegressionLearner(Learner):
    """Base of the population learner and the sample learner.

    Parameters
    ----------
    tasks : tuple of InContextRegression
        Tasks in as many dimensions each, which run in one program, along `setting`.
    model : LinearAttention
        Heads, rank and start.
    """

    tasks: tuple[InContextRegression, ...]
    model: LinearAttention

    def __post_init__(self) -> None:
        if len({len(of.spectrum) for of in self.tasks}) != 1:
            raise InputError("tasks: expected tasks in as many dimensions as the first")

    def tables(self, run: Simulation) -> list[Any]:
        """Return lambda and gamma of each task, and its number."""
        return [
            {"lam": of.regression.eigenvalues, "gamma": of.regression.gamma, "number": np.int32(i)}
            for i, of in enumerate(self.tasks)
        ]

    def runs_at_once(self, run: Simulation) -> int:
        """Return all runs: operations are so small that their number decides."""
        return run.grid.runs * len(self.tasks)

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of A and of the components."""
        return {**self.model.dims, "learned": ("component",)}

    def init(self, key: jax.Array, data: Any) -> Params:
        """Return the model's weights at the start."""
        return self.model.init(key, self.tasks[0], data)


@dataclass(frozen=True)
class PopulationRegression(RegressionLearner):
    """The expected loss of linear attention whose blocks of labels are zero.

    L(A) = tr Lambda - 2 tr(Lambda^2 A) + tr(Lambda A^T Lambda Gamma A). In the population the
    blocks stay zero: y_hat - y_q is odd in w, and the factor beside it in their gradient is even.
    The paper's flow, dW/dt = -1/2 dL/dW, is ``Flow(time, learning_rate=0.5)``.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(of.fresh < 1 or of.noise for of in self.tasks):
            raise InputError(
                "tasks: with a shared task or noise the blocks of labels leave zero, and the "
                "expected loss is not one of A; use SampleRegression"
            )

    def data(self, tables: Any, drawn: Any) -> Any:
        """Return lambda and gamma."""
        return tables

    def init(self, key: jax.Array, data: Any) -> Params:
        """Return the model's weights at the start, without the blocks that stay zero."""
        drawn = super().init(key, data)
        return {name: of for name, of in drawn.items() if name not in LABEL_BLOCKS}

    def loss(self, data: Any, params: Params, batch: Any, key: jax.Array | None) -> jax.Array:
        """Return L(A)."""
        lam, A = data["lam"], self._matrix(params)
        square = ((lam * data["gamma"])[:, None] * A**2 * lam).sum()
        return lam.sum() - 2 * lam**2 @ jnp.diag(A) + square

    def capture(self, data: Any, params: Params, probe: Any) -> dict[str, jax.Array]:
        """Return A and a_d = gamma_d A_dd, which goes from 0 to 1 as component d is learned."""
        A = self._matrix(params)
        return {"matrix": A, "learned": data["gamma"] * jnp.diag(A)}

    def _matrix(self, params: Params) -> jax.Array:
        if self.model.rank is None:
            return jnp.einsum("h,hcd->cd", params["value"], params["key_query"])
        return jnp.einsum("h,hrc,hrd->cd", params["value"], params["key"], params["query"])


@dataclass(frozen=True)
class SampleRegression(RegressionLearner):
    """Linear attention on a fixed training set, with all its blocks.

    Where some sequences share a task, there are two test losses, of new sequences:
    `in_context_loss`, with tasks of their own, and `in_weight_loss`, with the shared task and a
    context of noise.
    """

    @property
    def tests(self) -> dict[str, InContextRegression]:
        """The tasks of the test sets."""
        if all(of.fresh == 1 for of in self.tasks):
            return {}
        return {
            "in_context": replace(self.tasks[0], fresh=1.0, noise=False),
            "in_weight": replace(self.tasks[0], fresh=0.0, noise=True),
        }

    def draw(self, key: jax.Array) -> dict[str, Moments]:
        """Draw a training set of each task and the test sets, and return their moments."""
        of_training, *others = jax.random.split(key, 3)
        sets = [moments(task.draw(of_training)) for task in self.tasks]
        found = {"training": jax.tree.map(lambda *of: jnp.stack(of), *sets)}
        for of, (name, task) in zip(others, self.tests.items(), strict=False):
            found[name] = moments(task.batch((), of, jnp.int32(0), TEST_SEQUENCES))
        return found

    def data(self, tables: Any, drawn: Any) -> Any:
        """Return the moments, those of one training set, and gamma."""
        own = jax.tree.map(lambda of: of[tables["number"]], drawn["training"])
        return {**drawn, "training": own, "gamma": tables["gamma"]}

    def loss(self, data: Any, params: Params, batch: Any, key: jax.Array | None) -> jax.Array:
        """Return the mean loss of the training set."""
        return data["training"].loss(self._coefficients(params))

    def capture(self, data: Any, params: Params, probe: Any) -> dict[str, jax.Array]:
        """Return A, a_d = gamma_d A_dd, the leak into the blocks of labels and the test losses."""
        found = self.model.measures(params)
        T = self._coefficients(params)
        learned = data["gamma"] * jnp.diag(found["matrix"])
        tests = {f"{name}_loss": data[name].loss(T) for name in self.tests}
        return {**found, "learned": learned, **tests}

    def _coefficients(self, params: Params) -> jax.Array:
        W, M = self.model.weights(params)
        T = jnp.einsum("ha,hbc->abc", W, M)
        a, b = np.triu_indices(T.shape[0])
        return (T[a, b] + jnp.where(a < b, 1, 0)[:, None] * T[b, a]).ravel()
