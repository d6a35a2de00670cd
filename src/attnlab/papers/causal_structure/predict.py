"""Theories of stage 1 of the reduced model: from the facts of a run to the first layer's logits.

`CausalKernel`: the leading term of the first gradient, kept as it is; nothing of the sequences is
left in it but the tree and the prior of the chains. `CausalGradient`: the exact gradient at every
step, on sequences that the theory draws itself. Both are ours, and nothing is fitted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.simulation import Simulation
from attnlab.theory import Facts, Hypothesis, Theory
from attnlab.theory.relation import AT_MOST, much_greater
from attnlab.theory.theory import Labelled, require_descent

from . import theory
from .model import Reduced
from .task import Forest

EVEN = "E[pi] is constant: share of the identity in pi"
CHAINS, SEQUENCES = 4000, 8192  # that the theories draw
LONG = 10.0  # T over S, what counts as long; we know no number of the paper's


class _StageOne(Theory):
    """A level about A1, with A2 as it started."""

    def check(self, run: Simulation) -> None:
        if not (isinstance(run.task, Forest) and isinstance(run.model, Reduced)):
            raise InputError("task, model: stage 1 is about Forest() and Reduced(); give these")
        require_descent(run)
        if run.grid.schedules or run.grid.moving != ("first",) or run.momentum:
            raise InputError(
                "learning_rate: stage 1 moves A1 alone, by plain steps at a constant learning "
                "rate; give {first: a number, second: None}"
            )

    def assumptions(self, facts: Facts) -> tuple[Hypothesis, ...]:
        """Ask for E[pi] constant."""
        return (Hypothesis("here", EVEN, facts.run.task.stickiness, AT_MOST, 0.0),)

    def predict(self, facts: Facts, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        logits = self.logits(facts, t, facts.learning_rates["first"])
        weights = np.stack([theory.softmax_rows(A1) for A1 in logits])
        return {
            "first_attention": (("time", "query", "key"), weights),
            "parameters.first": (("time", "parameters.first_0", "parameters.first_1"), logits),
        }

    @abstractmethod
    def logits(self, facts: Facts, t: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
        """Return A1 at t, (time, query, key)."""


class CausalKernel(_StageOne):
    """A1 grows in a straight line along the kernel: beta0 / (S T) E g, through the softmax."""

    name = "causal-kernel"
    leans_on = "a gradient that stays as it starts, in a long context"

    def assumptions(self, facts: Facts) -> tuple[Hypothesis, ...]:
        """Ask for contexts much longer than the symbols are many, and for a small start, too."""
        long = facts.run.task.length / facts.run.task.vocab_size
        return (
            *super().assumptions(facts),
            Hypothesis("here", "a long context: T over S", long, much_greater(LONG), 1.0),
            Hypothesis("here", "a small beta0", facts.run.model.beta0, AT_MOST, 1.0 / LONG),
        )

    def logits(self, facts: Facts, t: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
        task = facts.run.task
        of = (task.vocab_size, task.concentration, CHAINS)
        chains = theory.sample_chains(*of, stickiness=task.stickiness)
        parents, beta0 = facts.data["parents"], facts.run.model.beta0
        slope = theory.leading_gradient(chains, parents, beta0=beta0)
        return facts.start["first"] + rate * t[:, None, None] * slope


class CausalGradient(_StageOne):
    """Gradient descent by the exact gradient, on sequences that the theory draws itself."""

    name = "causal-gradient"
    leans_on = "the mean over its own sequences, in place of batches"

    def logits(self, facts: Facts, t: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
        task, model = facts.run.task, facts.run.model
        of = (facts.data["parents"], task.vocab_size, task.concentration, SEQUENCES)
        drawn = theory.sample_sequences(*of, stickiness=task.stickiness)
        steps = np.rint(t).astype(int).tolist()
        rates = {"rate": rate, "beta0": model.beta0, "eps": model.eps}
        return theory.descend(drawn, facts.start["first"], steps, **rates)
