"""Theories of linear attention that learns in-context regression: from facts to formulas.

`White`: the logistic curve of white inputs, from the growing part of the start. `OneHead` (ours):
all heads as one, for any spectrum. `Staircase` (ours): components one after another, each by the
scalar equation of one head. `PopulationFlow`: the flow of the expected loss from the start as it
is. Nothing is fitted. Flow time of the paper is 2 eta times steps, or times the flow's own time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray
from attnlab.simulation import Simulation
from attnlab.theory import Facts, Hypothesis, Theory
from attnlab.theory.relation import AT_MOST
from attnlab.theory.theory import Labelled, require_descent

from . import theory
from .learner import PopulationRegression, RegressionLearner
from .model import LABEL_BLOCKS, LinearAttention, factors
from .task import InContextRegression

SMALL = 0.1  # what counts as small, in all assumptions; we know no number of the paper's


def parts_of(run: Simulation) -> tuple[InContextRegression, LinearAttention]:
    """Return task and model of a run; raise an `InputError` for other runs."""
    of = run.task
    if isinstance(of, RegressionLearner):
        return of.tasks[0], of.model
    if isinstance(of, InContextRegression) and isinstance(run.model, LinearAttention):
        return of, run.model
    raise InputError(
        "task: the theory is about linear attention on InContextRegression; give these, or "
        "PopulationRegression((task,), model)"
    )


class _Regression(Theory):
    """What all levels share: the label blocks may move, and are predicted to stay at 0."""

    @abstractmethod
    def matrix(self, one: theory.Regression, start: Any, t: NDArray[np.float64]) -> FloatArray:
        """Return A at flow times of the paper, (time, D, D)."""

    def check(self, run: Simulation) -> None:
        task, _ = parts_of(run)
        if task.fresh < 1 or task.noise:
            raise InputError("task.fresh: the theory is about fresh tasks alone; take 1.0")
        if run.gradient.size is not None:
            raise InputError("gradient: the theory takes all sequences; use Population()")
        require_descent(run)
        rates = run.grid.rates()
        weights = [name for name in run.learner.groups(run) if name not in LABEL_BLOCKS]
        moving = [rates[name].tobytes() for name in weights if name in rates]
        if len(moving) < len(weights) or len(set(moving)) > 1 or run.grid.schedules:
            raise InputError("learning_rate: the theory takes one constant number for all groups")

    def assumptions(self, facts: Facts) -> tuple[Hypothesis, ...]:
        task, _ = parts_of(facts.run)
        D = len(task.spectrum)
        infinite = isinstance(facts.run.task, PopulationRegression)
        features = 0.0 if infinite else (D + 1) ** 2 * D / task.sequences
        flows = facts.run.clock == "time"
        step = 0.0 if flows else 2 * facts.learning_rates["value"] * task.spectrum[0] ** 2
        asked = {
            "P -> infinity: features for each sequence": features,
            "steps follow the flow: 2 eta lambda_1^2": step,
            **self.leaves_out(task.regression, factors(facts.start)),
        }
        return tuple(Hypothesis("here", says, of, AT_MOST, SMALL) for says, of in asked.items())

    def leaves_out(self, one: theory.Regression, start: Any) -> dict[str, float]:
        """Return what else must be small, by its words."""
        return {}

    def predict(self, facts: Facts, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        one = parts_of(facts.run)[0].regression
        A = self.matrix(one, factors(facts.start), 2 * facts.learning_rates["value"] * t)
        return {
            "matrix": (("time", "context_input", "query_input"), A),
            "learned": (("time", "component"), one.gamma * np.einsum("tdd->td", A)),
            "loss": (("time",), np.atleast_1d(theory.population_loss(one, A))),
        }


class OneHead(_Regression):
    """Ours: merged key and query, all heads as one along Lambda^2, from the part that grows."""

    name = "icl-one-head"
    leans_on = "a small start, of which one direction grows"

    def check(self, run: Simulation) -> None:
        super().check(run)
        if parts_of(run)[1].rank is not None:
            raise InputError("model.rank: the theory is about a merged key and query; leave it out")

    def leaves_out(self, one: theory.Regression, start: theory.Merged) -> dict[str, float]:
        end = np.sqrt(np.linalg.norm(theory.optimum(one)))
        size = theory.growing_start(one, start) / end
        return {"small start: its growing part over v at the end": float(size)}

    def matrix(
        self, one: theory.Regression, start: theory.Merged, t: NDArray[np.float64]
    ) -> FloatArray:
        diagonal = self.diagonal(one, t, float(theory.growing_start(one, start)))
        return diagonal[..., None] * np.eye(len(one.spectrum))

    def diagonal(self, one: theory.Regression, t: NDArray[np.float64], norm: float) -> FloatArray:
        """Return the diagonal of A, (time, D)."""
        return theory.one_head_curve(one, t, norm=norm)


class White(OneHead):
    """The logistic curve of white inputs (Eq. 10), from the growing part of the start."""

    name = "icl-white"
    leans_on = "white inputs"

    def check(self, run: Simulation) -> None:
        super().check(run)
        if len(set(parts_of(run)[0].spectrum)) > 1:
            raise InputError("task.spectrum: the logistic curve needs equal eigenvalues")

    def diagonal(self, one: theory.Regression, t: NDArray[np.float64], norm: float) -> FloatArray:
        variance, *others = one.spectrum
        D = 1 + len(others)
        a = theory.white_curve(t, dimensions=D, examples=one.examples, variance=variance, norm=norm)
        return np.repeat(a[:, None], D, axis=1)


class Staircase(_Regression):
    """Ours: components one after another at `staircase_times`, each by its scalar equation."""

    name = "icl-staircase"
    leans_on = "plateaus much longer than drops, and heads that learn one component each"

    def check(self, run: Simulation) -> None:
        super().check(run)
        if parts_of(run)[1].rank != 1:
            raise InputError("model.rank: the theory is about separate key and query of rank 1")

    def leaves_out(self, one: theory.Regression, start: theory.Separate) -> dict[str, float]:
        size = np.abs(start.v).max() / one.gamma[0] ** (-1 / 3)
        return {"small start: the largest v over its end": float(size)}

    def matrix(
        self, one: theory.Regression, start: theory.Separate, t: NDArray[np.float64]
    ) -> FloatArray:
        learned = theory.staircase_curve(one, start, t) / one.gamma
        return learned[..., None] * np.eye(len(one.spectrum))


class PopulationFlow(_Regression):
    """The flow of the expected loss from the start as it is: drops only finite sets and steps."""

    name = "icl-population"
    leans_on = "an infinite training set"

    def matrix(self, one: theory.Regression, start: Any, t: NDArray[np.float64]) -> FloatArray:
        atol = 1e-16 if isinstance(start, theory.Merged) else 1e-12
        return theory.population_flow(one, start, t, atol=atol).matrix
