"""Theories of stage 1 of the reduced model: from the facts of a run to the first layer's logits.

`CausalKernel`: the leading term of the first gradient, kept as it is; nothing of the sequences is
left in it but the tree and the prior of the chains. `CausalGradient`: the exact gradient at every
step, on sequences that the theory draws itself. Both are ours, and nothing is fitted.
"""

from __future__ import annotations

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
        """Ask for E[pi] constant, and for contexts much longer than the symbols are many."""
        task = facts.run.task
        even = "E[pi] is constant: share of the identity in pi"
        return (Hypothesis("here", even, task.stickiness, AT_MOST, 0.0), *self._asks(facts))

    def _asks(self, facts: Facts) -> tuple[Hypothesis, ...]:
        return ()

    def predict(self, facts: Facts, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        logits = self._logits(facts, t, facts.learning_rates["first"])
        weights = np.stack([theory.softmax_rows(A1) for A1 in logits])
        return {
            "first_attention": (("time", "query", "key"), weights),
            "parameters.first": (("time", "parameters.first_0", "parameters.first_1"), logits),
        }

    def _logits(self, facts: Facts, t: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
        raise NotImplementedError


class CausalKernel(_StageOne):
    """A1 grows in a straight line along the kernel: beta0 / (S T) E g, through the softmax."""

    name = "causal-kernel"
    leans_on = "a gradient that stays as it starts, in a long context"

    def _asks(self, facts: Facts) -> tuple[Hypothesis, ...]:
        task = facts.run.task
        says = "a long context: T over S"
        return (
            Hypothesis("here", says, task.length / task.vocab_size, much_greater(LONG), 1.0),
            Hypothesis("here", "a small beta0", facts.run.model.beta0, AT_MOST, 1.0 / LONG),
        )

    def _logits(self, facts: Facts, t: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
        run = facts.run
        chains = theory.sample_chains(
            run.task.vocab_size, run.task.concentration, CHAINS, stickiness=run.task.stickiness
        )
        slope = theory.leading_gradient(chains, facts.data["parents"], beta0=run.model.beta0)
        return facts.start["first"] + rate * t[:, None, None] * slope


class CausalGradient(_StageOne):
    """Gradient descent by the exact gradient, on sequences that the theory draws itself."""

    name = "causal-gradient"
    leans_on = "the mean over its own sequences, in place of batches"

    def _logits(self, facts: Facts, t: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
        run = facts.run
        drawn = theory.sample_sequences(
            facts.data["parents"],
            run.task.vocab_size,
            run.task.concentration,
            SEQUENCES,
            stickiness=run.task.stickiness,
        )
        steps = np.rint(t).astype(int).tolist()
        of = {"rate": rate, "beta0": run.model.beta0, "eps": run.model.eps}
        return theory.descend(drawn, facts.start["first"], steps, **of)
