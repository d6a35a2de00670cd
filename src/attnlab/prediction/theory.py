"""Theories that predict a run: the levels of "Scan and Snap", and the base class for others.

`Printed` is Eq. 10 as printed. `Corrected` has our corrections and the same assumptions. `Sgd`
replaces Theorem 1's decoder by the one that SGD trains: it drops all that Theorem 1 asks for beyond
Assumption 1 and Y(0) = 0, and adds that the decoder is trained at the starting attention
(docs/theory-sgd.md). After it comes training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab import theory
from attnlab.dynamics import Extended, Pairwise, Simulation
from attnlab.files.errors import InputError
from attnlab.prediction import hypotheses
from attnlab.prediction.case import Case
from attnlab.prediction.hypothesis import Hypothesis

# Dims, such as "time", "sequence_class", "query" and "token" (contextual ones), and values.
Labelled = tuple[tuple[str, ...], Any]


class Theory(ABC):
    """What a theory says of a case: one set of classes, one pair of rates.

    A subclass has a `name`, says what it assumes and predicts at given times. Rates that are swept,
    momentum, several sets of classes, labels and measures are handled elsewhere. A level in a
    sequence of theories also names in `leans_on` what the next level does without.
    """

    name: ClassVar[str]
    leans_on: ClassVar[str] = ""

    def check(self, simulation: Simulation) -> None:  # noqa: B027 - most refuse nothing
        """Refuse, with an `InputError`, what the theory does not speak of."""

    @abstractmethod
    def assumptions(self, case: Case) -> tuple[Hypothesis, ...]:
        """Each assumption with the value that it has here, its bound and how it is read."""

    @abstractmethod
    def predict(self, case: Case, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        """What is predicted at t, in plain steps or units of the flow's time.

        By name, with dims: at least `attention_logits` along (time, query, token), tokens being
        those of `case.P`. What follows from the logits is added to it: attention (unless the theory
        says it, along (time, sequence_class, token)), entropy, ...
        """


class _ScanAndSnap(Theory):
    """A level of the theory of "Scan and Snap"; `asked` are its hypotheses."""

    asked: ClassVar[tuple[Callable[[Case], tuple[Hypothesis, ...]], ...]]

    def check(self, simulation: Simulation) -> None:
        optimizer = simulation.moving
        if simulation.model not in (Pairwise(), Extended()):
            raise InputError(
                "model: the theory is about the paper's model, Pairwise(); leave the model out"
            )
        if optimizer.name != "sgd" or optimizer.weight_decay:
            raise InputError("optimizer: the theory is about gradient descent alone; use 'sgd'")
        if any(len(classes) < 2 for classes in simulation.sets):
            raise InputError("classes: the theory compares classes; give at least 2")

    def assumptions(self, case: Case) -> tuple[Hypothesis, ...]:
        return tuple(part for hypothesis in self.asked for part in hypothesis(case))


class _Eq10(_ScanAndSnap):
    """Eq. 10: attention under the decoder of Theorem 1."""

    form: ClassVar[str]
    asked = (*hypotheses.THEOREM_1, hypotheses.zero_decoder)

    def check(self, simulation: Simulation) -> None:
        super().check(simulation)
        for classes in simulation.sets:
            classes.require_psi("Eq. 10")

    def predict(self, case: Case, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        # as printed, the weight of a class is 1 instead of its share of the steps
        flow = theory.attention_flow(
            case.classes, t, eta_y=case.eta_y, eta_z=case.eta_z, z0=case.z0, form=self.form,
            weight=1.0 if self.form == "printed" else None,
        )  # fmt: skip
        clock: Any = {"K": 1.0 / case.prior, "M": case.M, "eta_y": case.eta_y}
        each = t[:, None]
        t0_prime, t0 = theory.transition_times(**clock)
        return {
            "attention_logits": (("time", "query", "token"), flow.logits),
            "growth_bound": (("time", "sequence_class"), flow.growth_bound),
            "gamma": (("time", "sequence_class"), theory.gamma(each, **clock)),
            "decoder_error": (("time", "sequence_class"), theory.decoder_error(each, **clock)),
            "t0_prime": (("sequence_class",), t0_prime),
            "t0": (("sequence_class",), t0),
        }


class Printed(_Eq10):
    """Eq. 10 and Theorem 1 as they are printed."""

    name, form = "printed", "printed"
    leans_on = "Eq. 10's errors in print"


class Corrected(_Eq10):
    """Eq. 10 with our corrections (docs/errata.md): Eq. 88, the class weight, uneven classes."""

    name, form = "corrected", "corrected"
    leans_on = (
        "Theorem 1's decoder (Eq. 26, weak correlations, uniform classes, a large vocabulary)"
    )


class Sgd(_ScanAndSnap):
    """Ours: the decoder that SGD trains (Eq. 7) with attention held at its start, then Lemma 1.

    It drops the modified update, weak correlations, uniform classes, one class to a next token, a
    large vocabulary and the conditions on eta_Y and t. It keeps Assumption 1 and Y(0) = 0, and adds
    that the decoder is trained at the starting attention (docs/theory-sgd.md).
    """

    name = "sgd"
    leans_on = "a decoder trained at the starting attention (eta_Y >> eta_Z), long sequences"
    asked = (*hypotheses.ASSUMPTION_1, hypotheses.zero_decoder)

    def predict(self, case: Case, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        # momentum is part of the decoder's motion here, so that its own steps count
        steps = theory.momentum_steps(t, momentum=case.momentum)
        flow = theory.sgd_flow(
            case.classes, steps, eta_y=case.eta_y, eta_z=case.eta_z, z0=case.z0,
            momentum=case.momentum,
        )  # fmt: skip
        return {
            "attention_logits": (("time", "query", "token"), flow.logits),
            "decoder_error": (("time", "sequence_class"), flow.error),
        }


LADDER: tuple[Theory, ...] = (Printed(), Corrected(), Sgd())
