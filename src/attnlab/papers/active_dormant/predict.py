"""Theories of the reparametrised head: from the facts of a `SinkFlow` run.

`DormantSink`: the sink alone, where the value of <s> is kept at 0. `DormantLate`: where the joint
flow ends with one context, and how it grows with several. `DormantFlow`: the joint flow, solved.
The growth 1/2 log t is the paper's as we know it; the rest is ours.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.simulation import Simulation
from attnlab.theory import Facts, Hypothesis, Theory
from attnlab.theory.relation import ABOVE, AT_MOST
from attnlab.theory.theory import Labelled, require_descent

from . import theory
from .head import SinkFlow

Floats = NDArray[np.float64]
FULL_SUPPORT = "every token can follow every other"
SMALL = 0.5  # measured: up to here the sink alone is off by at most about 0.1 in alpha


class _OfSinkFlow(Theory):
    """A level about `SinkFlow`."""

    moving: ClassVar[tuple[str, ...]] = ()  # groups that must move, and no others; () for any

    def check(self, run: Simulation) -> None:
        if not isinstance(run.task, SinkFlow):
            raise InputError("task: the theory is about the reparametrised head; give SinkFlow()")
        require_descent(run)
        if self.moving and set(run.grid.rates()) != set(self.moving):
            given = {name: 1.0 if name in self.moving else None for name in ("sink", "value")}
            raise InputError(
                f"learning_rate: the theory moves {' and '.join(self.moving)}; give, say, {given}"
            )

    def assumptions(self, facts: Facts) -> tuple[Hypothesis, ...]:
        least = float(facts.data["P"].min())
        return (Hypothesis("here", f"{FULL_SUPPORT}: least entry of P", least, ABOVE, 0.0),)

    def predict(self, facts: Facts, t: Floats) -> Mapping[str, Labelled]:
        given = {name: np.asarray(facts.data[name], np.float64) for name in ("P", "pi", "W")}
        alpha, beta = self._path(facts, t, given)
        return {
            "parameters.sink": (("time", "parameters.sink_0"), alpha),
            "parameters.value": (("time", "parameters.value_0"), beta),
            "sink_mass": (("time", "query"), theory.sink_mass(alpha, facts.run.task.visible)),
            "value_size": (("time",), np.linalg.norm(beta, axis=-1)),
        }

    @abstractmethod
    def _path(self, facts: Facts, t: Floats, given: dict[str, Any]) -> tuple[Floats, Floats]:
        """Return alpha and beta at flow times t, (time, V) each; `given` has P, pi and W."""


class DormantSink(_OfSinkFlow):
    """The sink alone: <s> keeps the value 0, and changes of the output logits are small."""

    name = "dormant-sink"
    leans_on = "a value of <s> that stays 0"
    moving = ("sink",)

    def assumptions(self, facts: Facts) -> tuple[Hypothesis, ...]:
        P, W = facts.data["P"], facts.data["W"]
        largest = float(np.sqrt(theory.context_variance(P, W).max())) / facts.run.task.visible
        start = float(abs(facts.start["value"]).max())
        return (
            *super().assumptions(facts),
            Hypothesis("here", "small changes of output logits", largest, AT_MOST, SMALL),
            Hypothesis("here", "beta(0) = 0: its largest entry", start, AT_MOST, 0.0),
        )

    def _path(self, facts: Facts, t: Floats, given: dict[str, Any]) -> tuple[Floats, Floats]:
        drive = given["pi"] * theory.context_variance(given["P"], given["W"])
        alpha = theory.sink_logit(
            t[:, None],
            start=facts.start["sink"],
            drive=facts.learning_rates["sink"] * drive,
            visible=facts.run.task.visible,
        )
        return alpha, np.zeros_like(alpha)


class DormantLate(_OfSinkFlow):
    """Late in the joint flow: the end point of one context, or 1/2 log t with several.

    At every time it says what is approached; alpha starts at its start where 1/2 log t is below.
    """

    name = "dormant-late"
    leans_on = "long training"
    moving = ("sink", "value")

    def _path(self, facts: Facts, t: Floats, given: dict[str, Any]) -> tuple[Floats, Floats]:
        W, alpha, beta = given["W"], facts.start["sink"], facts.start["value"]
        if len(W) == 1:
            end = theory.joint_end(W[0], alpha=alpha, beta=beta, **_settings(facts))
            return np.full((t.size, alpha.size), end.sink_logit), np.tile(end.value, (t.size, 1))
        drive = given["pi"] * theory.context_variance(given["P"], W, balanced=True)
        with np.errstate(divide="ignore"):  # of t = 0
            grown = theory.late_sink_logit(t[:, None], facts.learning_rates["sink"] * drive)
        alpha = np.maximum(grown, alpha)
        mean = float(np.mean(beta))
        return alpha, theory.concentrated_value(alpha.mean(-1), W.mean(0), mean=mean)


class DormantFlow(_OfSinkFlow):
    """The joint flow of sink logits and value, solved in numpy without the trainer."""

    name = "dormant-flow"

    def _path(self, facts: Facts, t: Floats, given: dict[str, Any]) -> tuple[Floats, Floats]:
        start = {"alpha": facts.start["sink"], "beta": facts.start["value"]}
        return theory.joint_flow(t, **given, **start, **_settings(facts))


def _settings(facts: Facts) -> dict[str, Any]:
    """Return N and the learning rates, 0 for a group that is kept."""
    rates = tuple(facts.learning_rates.get(name, 0.0) for name in ("sink", "value"))
    return {"visible": facts.run.task.visible, "rates": rates}
