"""Case: one set of classes at one pair of rates, in the letters of the theory."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnlab import formulas
from attnlab.data import SequenceClasses
from attnlab.dynamics import Model, Pairwise, Simulation


@dataclass(frozen=True)
class Case:
    """Classes, rates, how long to train (flow time), and the length T of sequences.

    Parameters
    ----------
    classes : SequenceClasses
        The set of classes.
    eta_y : float
        Rate of the decoder.
    eta_z : float
        Rate of attention.
    steps : float
        How long the run is, in plain steps.
    length : float, optional
        T.
    z0 : ndarray, optional
        Logits at the start, (query, contextual token); None for zero.
    decoder_start : float, optional
        The largest entry of Y(0).
    momentum : float, optional
        Of the steps, of which `steps` and whatever else counts plain ones.
    model : Model, optional
        What is trained.
    """

    classes: SequenceClasses
    eta_y: float
    eta_z: float
    steps: float
    length: float = np.inf
    z0: NDArray[np.float64] | None = None
    decoder_start: float = 0.0
    momentum: float = 0.0
    model: Model = field(default_factory=Pairwise)

    @cached_property
    def setting(self) -> formulas.Setting:
        """Classes and learning rates, as the formulas take them; they take the case as well."""
        return formulas.Setting(self.classes, eta_y=self.eta_y, eta_z=self.eta_z)

    @property
    def P(self) -> NDArray[np.float64]:
        """P(l|n) of the contextual tokens, (K, L)."""
        return self.setting.P

    @property
    def prior(self) -> NDArray[np.float64]:
        """P(n), how often each class is drawn."""
        return self.classes.prior

    @property
    def psi(self) -> NDArray[np.int64]:
        """The query of each class, as a row of Z."""
        return self.classes.query_index

    @property
    def K(self) -> int:
        """The number of classes."""
        return self.classes.num_classes

    @property
    def M(self) -> int:
        """The size of the vocabulary."""
        return self.classes.vocab_size

    def at(self, *, eta_y: float | None = None, eta_z: float | None = None) -> Case:
        """The same classes at other rates: a case and no more, whatever this one is."""
        other = {of.name: getattr(self, of.name) for of in fields(Case)}
        other |= {"eta_y": eta_y} if eta_y is not None else {}
        other |= {"eta_z": eta_z} if eta_z is not None else {}
        return Case(**other)


def case_of(simulation: Simulation, classes: SequenceClasses, eta_y: float, eta_z: float) -> Case:
    """One of the sets of classes of a simulation, at one of its pairs of rates."""
    random = isinstance(simulation.init, str) and simulation.init == "uniform"
    start = simulation.start_logits(classes)[:, classes.in_play]
    momentum = simulation.moving.momentum or 0.0
    return Case(
        classes, float(eta_y), float(eta_z),
        float(formulas.momentum_time(simulation.steps, momentum=momentum)),
        length=float(simulation.engine.length), z0=start if np.any(start) else None,
        decoder_start=classes.vocab_size**-0.5 if random else 0.0, momentum=momentum,
        model=simulation.model,
    )  # fmt: skip
