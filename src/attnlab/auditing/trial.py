"""Trial: a simulation that was run, beside what theories say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import xarray as xr

from attnlab.auditing.runs import recorded_at
from attnlab.dynamics import Engine, Flow, Save, Simulation, as_simulation, simulate
from attnlab.dynamics.simulation import Classes
from attnlab.files.errors import InputError
from attnlab.formulas import momentum_steps
from attnlab.theory.case import Case, case_of
from attnlab.theory.named import theories_about
from attnlab.theory.prediction import predict
from attnlab.theory.theory import Theory

# Attention of every class at every record, in float64: about 100 MB.
LARGEST = 10**5
HORIZON = 100.0  # in units of the transition: far enough for attention to have slowed down for good


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial(Case):
    """A case with its training and what theories say of it: all that an audit looks at.

    simulation: the run as a value. simulated: its result. predicted: what each theory says, by its
    name, aligned with the result. silent: why a theory says nothing, by its name.
    """

    simulation: Simulation
    theories: tuple[Theory, ...]
    simulated: xr.Dataset
    predicted: Mapping[str, xr.Dataset]
    silent: Mapping[str, str]

    @property
    def transition(self) -> tuple[float, float] | None:
        """From when to when the theories expect a transition, in the simulation's time."""
        return transition_of(self.simulation, self.theories)


def transition_of(simulation: Simulation, theories: Sequence[Theory]) -> tuple[float, float] | None:
    """Return the earliest start and latest end of the transitions that theories expect, if any."""
    case = case_of(simulation, simulation.sets[0], simulation.eta_y, simulation.eta_z)
    spans = [span for of in theories if (span := of.transition(case)) is not None]
    if not spans:
        return None
    found = min(first for first, _ in spans), max(last for _, last in spans)
    momentum = simulation.moving.momentum or 0.0
    first, last = np.asarray(momentum_steps(found, momentum=momentum)).tolist()
    return first, last


def simulation_of(
    given: Simulation | Classes,
    engine: Engine | None = None,
    theories: Sequence[Theory] | None = None,
    **settings: Any,
) -> tuple[Simulation, tuple[Theory, ...]]:
    """Return the simulation that is audited, and the theories: by default those that speak of it.

    Of classes alone, it is the flow in float64, until long after the predicted transition.
    """
    if engine is None and not isinstance(given, Simulation):
        chosen = {name: value for name, value in settings.items() if value is not None}
        simulation = as_simulation(given, Flow(), **{"dtype": "float64", **chosen})
        _check(simulation)
        theories = theories_about(simulation) if theories is None else theories
        transition = transition_of(simulation, theories)
        if "steps" not in chosen and transition is not None:
            simulation = replace(simulation, steps=_horizon(transition[1], simulation.eta_y))
        if "save" not in chosen:
            if simulation.steps <= 1e-2:
                raise InputError(f"steps: expected a time above 0.01, got {simulation.steps:g}")
            exactly = [] if transition is None else [transition[1]]
            at = recorded_at(simulation.steps, exactly=exactly)
            simulation = replace(simulation, save=Save(at=at))
    else:
        simulation = as_simulation(given, engine, **settings)
        _check(simulation)
        theories = theories_about(simulation) if theories is None else theories
    what = tuple(dict.fromkeys((*simulation.save.what, "attention", "logits")))
    return replace(simulation, save=replace(simulation.save, what=what)), tuple(theories)


def _check(simulation: Simulation) -> None:
    """Refuse what is more than one run, or too large, or has nothing to compare."""
    if isinstance(simulation.classes, tuple):
        raise InputError("classes: an audit is of one set of classes; give one at a time")
    for name in ("eta_y", "eta_z"):
        rate = getattr(simulation, name)
        if isinstance(rate, xr.DataArray):
            raise InputError(f"{name}: an audit is of one pair of rates; give one at a time")
        if not rate > 0:
            raise InputError(f"{name}: expected a finite number above 0, got {rate:g}")
    # what single precision cannot hold takes as long as the bounds on work allow, for no answer
    replace(simulation, dtype="float32")
    (classes,) = simulation.sets
    if len(classes) < 2:
        raise InputError("classes: the theory compares classes; give at least 2")
    if len(classes) * classes.vocab_size > LARGEST:
        raise InputError(
            f"classes: {len(classes)} classes x {classes.vocab_size} tokens is more than an audit "
            f"holds ({LARGEST:,}); take fewer, or use attnlab simulate"
        )


def _horizon(transition: float, eta_y: Any) -> float:
    horizon = HORIZON * transition
    if not (np.isfinite(horizon) and horizon > 1e-2):
        raise InputError(
            f"eta_y: 100 times the transition is {horizon:g} at {eta_y:g}; give a time with steps"
        )
    return horizon


def try_out(simulation: Simulation, theories: Sequence[Theory]) -> Trial:
    """Predict with every theory, and train; a theory that has no answer is silent.

    What all of them refuse is refused.
    """
    refused = [problem for of in theories if (problem := _refusal(of, simulation))]
    if refused and len(refused) == len(theories):
        raise refused[0]
    predicted, silent = {}, {}
    for of in theories:
        try:
            predicted[of.name] = predict(simulation, theory=of)
        except (InputError, RuntimeError) as problem:
            silent[of.name] = str(problem)
        except Exception as problem:
            if type(of).__module__.startswith("attnlab."):
                raise
            silent[of.name] = f"{type(problem).__name__}: {problem}"  # of somebody else's paper
    case = case_of(simulation, simulation.sets[0], simulation.eta_y, simulation.eta_z)
    return Trial(
        **{of.name: getattr(case, of.name) for of in fields(Case)},
        simulation=simulation,
        theories=tuple(theories),
        simulated=simulate(simulation, progress=False),
        predicted=predicted,
        silent=silent,
    )


def _refusal(of: Theory, simulation: Simulation) -> InputError | None:
    try:
        of.check(simulation)
    except InputError as problem:
        return problem
    return None
