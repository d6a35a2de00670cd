"""Levels of the theory of "Scan and Snap": Eq. 10 as printed, and with our corrections."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray
from attnlab.models import Extended, Pairwise
from attnlab.simulation import Simulation
from attnlab.theory import Case, ClassTheory, Hypothesis
from attnlab.theory.theory import Labelled, require_descent

from . import hypotheses, theory


class Level(ClassTheory):
    """A level of the theory of "Scan and Snap"; `asked` are its hypotheses."""

    asked: ClassVar[tuple[Callable[[Case], tuple[Hypothesis, ...]], ...]]

    def check(self, run: Simulation) -> None:
        super().check(run)
        if run.model not in (Pairwise(), Extended()):
            raise InputError(
                "model: the theory is about the paper's model, Pairwise(); leave the model out, "
                "and its settings (residual, heads, normalization, ...)"
            )
        require_descent(run)
        if any(len(classes) < 2 for classes in run.sets):
            raise InputError("classes: the theory compares classes; give at least 2")

    def assumptions(self, case: Case) -> tuple[Hypothesis, ...]:
        return tuple(part for hypothesis in self.asked for part in hypothesis(case))

    def transition(self, case: Case) -> tuple[float, float]:
        """Return t_0' of the first class and t_0 of the last (Lemma 9)."""
        times = theory.transition_times(K=1.0 / case.prior, M=case.M, eta_y=case.eta_y)
        return float(np.min(times.t0_prime)), float(np.max(times.t0))


class _Eq10(Level):
    """Eq. 10: attention under the decoder of Theorem 1."""

    form: ClassVar[str]
    times = ("t0_prime", "t0")
    asked = (*hypotheses.THEOREM_1, hypotheses.zero_decoder)

    def check(self, run: Simulation) -> None:
        super().check(run)
        for classes in run.sets:
            classes.require_psi("Eq. 10")

    def predict(self, case: Case, t: FloatArray) -> Mapping[str, Labelled]:
        # as printed, the weight of a class is 1 instead of its share of the steps
        weight = 1.0 if self.form == "printed" else None
        flow = theory.attention_flow(case, t, z0=case.z0, weight=weight, form=self.form)
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
