"""Theories of polarisation, and of stage I of focus and dilution: from the facts of a run.

`PolarisationEven`: weights stay nearly even, so that the spread of logits grows like cosh and sinh
of the output. `Polarisation`: the whole path in one direction. `PolarisationClass`: the same path
for each sequence class alone, where nothing normalises attention. `DilutionStageOne`: embedding and
decoder move, attention waits. All are ours; statements of the papers are as we know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.models import Extended
from attnlab.simulation import Simulation
from attnlab.theory import Case, ClassTheory, Facts, Hypothesis, Theory
from attnlab.theory.relation import AT_MOST
from attnlab.theory.theory import Labelled, require_descent

from . import theory
from .model import FactoredAttention, ValueAttention
from .task import Direction, Distribution, Regression, StickyChain
from .theory.values import Clock

SMALL = 0.1  # what counts as small; we know no number of the papers'
SOFTMAX_ALONE = "model.weighting"


class Polarisation(Theory):
    """The path in one direction, which the loss follows at its own pace."""

    name = "polarisation"
    leans_on = "a gradient that keeps its direction"

    def check(self, run: Simulation) -> None:
        if not isinstance(run.model, ValueAttention):
            raise InputError("model: polarisation is about one matrix of values; ValueAttention()")
        if run.model.weighting in ("l1", "relu"):
            raise InputError(
                f"{SOFTMAX_ALONE}: the path ends at the kink of {run.model.weighting!r}; take "
                "'softmax', 'l2', 'sum', 'square' or 'sigmoid'"
            )
        task = run.task
        one = (
            isinstance(task, Direction)
            or (isinstance(task, Regression) and task.condition == 1)
            or (isinstance(task, Distribution) and task.sharpness is None)
        )
        if not one or run.loss != "task":
            raise InputError(
                "task: the path is that of one direction; give Direction(), Regression() of "
                "condition 1 or Distribution(sharpness=None), with loss='task'"
            )
        require_descent(run)

    def assumptions(self, facts: Facts) -> tuple[Hypothesis, ...]:
        """Ask that values start along the direction; the logistic loss needs it of none."""
        direction, _, _ = _pull(facts)
        V = facts.start["value"]
        along = np.outer(direction, direction @ V) / (direction @ direction)
        off = 0.0 if isinstance(facts.run.task, Direction) else np.linalg.norm(V - along)
        says = "the gradient keeps its direction: norm of the values off it"
        return (Hypothesis("here", says, float(off), AT_MOST, SMALL),)

    def predict(self, facts: Facts, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        direction, factor, clock = _pull(facts)
        rates, V, a = facts.learning_rates, facts.start["value"], facts.start["attention"]
        u = direction @ V / (direction @ direction)
        path = self.path(
            u.astype(np.float64),
            a.astype(np.float64),
            t * rates["value"],
            rho=factor * rates["attention"] / rates["value"],
            clock=clock,
            weighting=facts.run.model.weighting,
        )
        values = V + direction[:, None] * (path.scores - u)[:, None, :]
        return {
            "weights": (("time", "token"), path.weights),
            "value_norms": (("time", "token"), np.linalg.norm(values, axis=1)),
            "parameters.attention": (("time", "token"), path.logits),
            "parameters.value": (("time", "component", "token"), values),
        }

    def path(self, u: Any, a: Any, t: Any, **of: Any) -> theory.Path:
        """Return scores and logits from a start, at flow times t."""
        return theory.one_direction(u, a, t, along="time", **of)


class PolarisationEven(Polarisation):
    """The level below: weights stay nearly even, and the output grows as if they were."""

    name = "polarisation-even"
    leans_on = "attention weights that are nearly even"

    def check(self, run: Simulation) -> None:
        super().check(run)
        if run.model.weighting != "softmax":
            raise InputError(f"{SOFTMAX_ALONE}: this level is about softmax; take 'softmax'")

    def path(self, u: Any, a: Any, t: Any, **of: Any) -> theory.Path:
        """Return scores and logits from a start, at flow times t."""
        return theory.even_stage(u, a, t, rho=of["rho"], clock=of["clock"])


class PolarisationClass(ClassTheory):
    """Each sequence class polarises alone; exact if no two classes share a token.

    A token of several classes of one query is given the mean of their logits, by P(n).
    """

    name = "polarisation-class"
    leans_on = "sequence classes that share no token"

    def check(self, run: Simulation) -> None:
        super().check(run)
        if run.model != Extended(normalization="none"):
            raise InputError(
                "model: the theory is about attention that nothing normalises; give "
                "Extended(normalization='none')"
            )
        require_descent(run)

    def assumptions(self, case: Case) -> tuple[Hypothesis, ...]:
        shared = (case.P > 0).sum(0) > 1
        mass = float(case.P[:, shared].sum(1).max(initial=0.0))
        start = float(case.decoder_start)
        return (
            Hypothesis("here", "classes share no token: mass of shared ones", mass, AT_MOST, 0.0),
            Hypothesis("here", "Y(0) = 0: its largest entry", start, AT_MOST, 0.0),
        )

    def predict(self, case: Case, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        start = np.zeros((case.psi.max() + 1, case.P.shape[1])) if case.z0 is None else case.z0
        moved = np.zeros((t.size, *start.shape))
        weight = np.zeros(start.shape)
        for P, query, share in zip(case.P, case.psi, case.prior, strict=True):
            own = np.flatnonzero(P)
            logits = np.log(P[own]) + start[query, own]
            path = theory.one_direction(
                np.zeros(own.size),
                logits,
                t * case.eta_y * share,
                along="time",
                rho=theory.cross_entropy_ratio(case.M, case.eta_z / case.eta_y),
                clock=theory.cross_entropy_clock(case.M),
            )
            moved[:, query, own] += share * (path.logits - logits)
            weight[query, own] += share
        z = start + moved / np.where(weight > 0, weight, 1.0)
        return {"attention_logits": (("time", "query", "token"), z)}


class DilutionStageOne(Theory):
    """Stage I of focus and dilution: embedding and decoder move, attention stays at pi."""

    name = "dilution-stage-one"
    leans_on = "attention that has not moved"

    def check(self, run: Simulation) -> None:
        if not (isinstance(run.task, StickyChain) and isinstance(run.model, FactoredAttention)):
            raise InputError(
                "task, model: stage I is about StickyChain() and FactoredAttention(); give these"
            )
        require_descent(run)

    def assumptions(self, facts: Facts) -> tuple[Hypothesis, ...]:
        largest = max(float(abs(group).max()) for group in facts.start.values())
        return (Hypothesis("here", "a small start: its largest weight", largest, AT_MOST, SMALL),)

    def predict(self, facts: Facts, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        pi, rates = facts.run.task.frequencies, set(facts.learning_rates.values())
        if len(rates) > 1:
            raise InputError("learning_rate: stage I is about one for all groups; give one number")
        start = facts.start
        found = theory.stage_one(pi, start["embedding"], start["decoder"], t * rates.pop())
        attention = np.broadcast_to(pi, (t.size, len(pi), len(pi)))
        return {
            "loss": (("time",), found.loss),
            "attention": (("time", "sequence", "token"), attention),
            **{
                f"parameters.{name}": (
                    ("time", f"parameters.{name}_0", f"parameters.{name}_1"),
                    getattr(found, name),
                )
                for name in ("embedding", "decoder")
            },
        }


def _pull(facts: Facts) -> tuple[NDArray[np.float64], float, Clock]:
    """Return the direction in which the loss pulls the values, the factor of rho, and the clock."""
    X, target = (np.asarray(of, dtype=np.float64) for of in facts.data)
    task = facts.run.task
    if isinstance(task, Direction):
        return X[0], 1.0, theory.logistic_clock
    if isinstance(task, Regression):
        b = float(np.linalg.norm(target))
        clock = theory.square_clock(b)
        return target / b, 1.0, lambda output: clock(output) / 2.0  # the loss has no half
    M = target.size
    direction = np.where(target > 0, 1.0, -1.0 / (M - 1.0))
    return direction, theory.cross_entropy_ratio(M), theory.cross_entropy_clock(M)
