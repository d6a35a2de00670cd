"""Theory: what predicts a run; each theory of a paper is a subclass in its folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics import Simulation
from attnlab.theory.case import Case
from attnlab.theory.hypothesis import Hypothesis

# Dims, such as "time", "sequence_class", "query" and "token" (contextual ones), and values.
Labelled = tuple[tuple[str, ...], Any]


class Theory(ABC):
    """What a theory says of a case: one set of classes, one pair of learning rates.

    A subclass has a `name`, says what it assumes and predicts at given times. Learning rates that
    are swept, momentum, several sets of classes, labels and measures are handled elsewhere.

    Attributes
    ----------
    name
        By which `predict(theory=...)` knows it.
    leans_on
        What the next level of its ladder does without.
    times
        Names of predicted values that are times, in plain steps.
    """

    name: ClassVar[str]
    leans_on: ClassVar[str] = ""
    times: ClassVar[tuple[str, ...]] = ()

    def check(self, simulation: Simulation) -> None:  # noqa: B027 - most refuse nothing
        """Refuse, with an `InputError`, what the theory does not speak of."""

    @abstractmethod
    def assumptions(self, case: Case) -> tuple[Hypothesis, ...]:
        """Return each assumption with its value here, its bound and how it is read."""

    @abstractmethod
    def predict(self, case: Case, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        """Return what is predicted at t, in plain steps or units of the flow's time.

        By name, with dims: at least `attention_logits` along (time, query, token), tokens being
        those of `case.P`. What follows from the logits is added to it: attention (unless the theory
        says it, along (time, sequence_class, token)), entropy, ...
        """

    def transition(self, case: Case) -> tuple[float, float] | None:
        """Return from when to when the theory expects a transition, in plain steps; None: never."""
        return None
