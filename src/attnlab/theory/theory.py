"""Theory: what predicts a run; each theory of a paper is a subclass in its folder.

`Theory` takes the facts of any run, `ClassTheory` a case: sequence classes at one pair of learning
rates.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.shelf import offered, reference
from attnlab.simulation.simulation import Simulation
from attnlab.theory.facts import Case
from attnlab.theory.relation import Hypothesis

Labelled = tuple[tuple[str, ...], Any]  # dims, "time" first where there is one, and values


class Theory(ABC):
    """A theory of runs: it refuses what it does not cover, states what it assumes, and predicts.

    `predict()` calls it for each seed and each combination of learning rates, and puts its answers
    into one dataset that aligns with the run's result.

    Attributes
    ----------
    name
        Its name in `predict(theory=...)`.
    leans_on
        What the next level of the theory does without.
    times
        Names of predicted values that are times, in plain steps.
    infinite
        True if t may be infinite; `predict(at=[0, inf])` is refused elsewhere.
    """

    name: ClassVar[str]
    leans_on: ClassVar[str] = ""
    times: ClassVar[tuple[str, ...]] = ()
    infinite: ClassVar[bool] = False

    @abstractmethod
    def check(self, run: Simulation) -> None:
        """Refuse, with an `InputError`, a run that the theory does not cover."""

    @abstractmethod
    def assumptions(self, facts: Any) -> tuple[Hypothesis, ...]:
        """Return each assumption with its value here, its bound and how it is read.

        facts: the `Facts` of a run at one seed and one combination of learning rates.
        """

    @abstractmethod
    def predict(self, facts: Any, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        """Return what is predicted at t, in plain steps or units of flow time.

        Values come by name, as (dims, values). What depends on t has "time" as its first dim. What
        a run records has the name and the other dims that it has there, as in
        ``{"parameters.w": (("time", "parameters.w_0"), w)}``.
        """


class ClassTheory(Theory):
    """A theory of sequence classes: its facts are a `Case`.

    Swept learning rates, momentum, several sets of classes, labels and measures are handled
    elsewhere; seeds make no difference. `predict` returns at least `attention_logits` along (time,
    query, token), tokens being those of `case.P`. What follows from the logits is added: attention
    (unless the theory gives it, along (time, sequence_class, token)), entropy, ...
    """

    def check(self, run: Simulation) -> None:
        """Refuse runs on other tasks; a theory that refuses more calls this first."""
        _ = run.classes
        if not run.is_exact:
            raise InputError(
                "model: the theory is about models of sequence classes on their exact path; use "
                "Pairwise(), say, and exact=True"
            )
        if run.grid.schedules:
            names = ", ".join(run.symbols[group] for group in run.grid.schedules)
            raise InputError(f"{names}: the theory takes constant learning rates; give numbers")

    def transition(self, case: Case) -> tuple[float, float] | None:
        """Return the start and end of a predicted transition, in plain steps; None for none."""
        return None


def require_descent(run: Simulation) -> None:
    """Refuse all but gradient descent, perhaps with one momentum, and its flow."""
    optimizers, motion = run.optimizers.values(), run.motion
    if any(of.name != "sgd" or of.weight_decay for of in optimizers):
        raise InputError("optimizer: the theory is about gradient descent alone; use 'sgd'")
    if len({of.momentum for of in optimizers}) > 1:
        raise InputError("optimizer: the theory takes one momentum; give all groups the same")
    if motion.clip is not None:
        raise InputError("clip: the theory is about gradients as they are; leave it out")
    if run.clock == "time" and motion.weight_decay:
        raise InputError("weight_decay: the theory is about the loss alone; leave it out")


# -- theories by name, as the papers on the shelf offer them ---------------------------------------


def as_theory(theory: str | Theory) -> Theory:
    """Return the theory, looking it up on the shelf if a name is given.

    Parameters
    ----------
    theory : str or Theory
        The name of a theory that a paper offers, or a theory.

    Returns
    -------
    Theory
        The theory.

    Examples
    --------
    >>> from attnlab.theory import as_theory
    >>> as_theory("sgd").name
    'sgd'
    """
    if isinstance(theory, Theory):
        if not isinstance(getattr(theory, "name", None), str):
            raise InputError(f"theory: {type(theory).__name__} has no name; give it one, a text")
        return theory
    if not isinstance(theory, str):
        raise InputError(f"theory: expected a name or a Theory object, got {theory!r}")
    made: Theory = reference("theories", theory).load()()
    return made


def usual_theory(run: Simulation) -> Theory:
    """Return the theory that predicts a run unless another is named: the last that covers it.

    Each level of a paper assumes less than the one before, and so errs less where assumptions fail.
    Papers that come with attnlab are asked first, so that adding a paper changes no prediction.

    Parameters
    ----------
    run : Simulation
        The run.

    Returns
    -------
    Theory
        The theory.

    Examples
    --------
    >>> import attnlab
    >>> from attnlab.theory import usual_theory
    >>> usual_theory(attnlab.Simulation("syn-small")).name
    'sgd'
    """
    covering = theories_about(run)
    ours = [theory for theory in covering if type(theory).__module__.startswith("attnlab.")]
    return (ours or covering)[-1]


def theories_about(run: Simulation) -> tuple[Theory, ...]:
    """Return the theories of the shelf that cover a run, in the shelf's order.

    Raises the first refusal where there is none.

    Parameters
    ----------
    run : Simulation
        The run.

    Returns
    -------
    tuple of Theory
        One at least.

    Examples
    --------
    >>> from attnlab import Flow, Simulation
    >>> from attnlab.theory import theories_about
    >>> [theory.name for theory in theories_about(Simulation("syn-small", motion=Flow()))]
    ['printed', 'corrected', 'sgd']
    """
    covering, refused = [], []
    for name in offered("theories"):
        try:
            theory = as_theory(name)
        except InputError as problem:  # a broken paper takes no other theory down
            warnings.warn(f"theory {name!r} is left out: {problem}", stacklevel=2)
            continue
        try:
            theory.check(run)
        except InputError as problem:
            refused.append(problem)
        else:
            covering.append(theory)
    if refused and not covering:
        raise refused[0]
    return tuple(covering)
