"""The levels of JoMA: predictions of its joint dynamics for a run of `Joint`.

`JomaStationary`: the gradient that arrives at hidden units stays as it starts (claim 2: the erf
law), activations are linear, b-bar is fixed, and there is one query. `Joma`: the gradient follows
the outputs, through any activation; attention is eliminated by the invariant with b-bar fixed
(claim 1), for one query. `JomaMoving` (ours): with the current b-bar, and several queries, each by
its own share. What is left, for softmax, is the factorisation of E[S b], which training
does not need. All start from v(0) = 0, and measure what they assume on the path that they predict.
JoMA's claims are as we know them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.simulation import Simulation
from attnlab.theory import Case, ClassTheory, Hypothesis
from attnlab.theory.relation import AT_MOST, EQUAL
from attnlab.theory.theory import Labelled, require_descent

from . import theory
from .model import Joint

# What counts as constant, uncorrelated, stationary: a tenth. We know no number of the paper's.
SMALL = 0.1
# The error of z (its norm over tokens, over that of how far z has moved) below which an invariant
# gives z in size: a tenth for the drift of b-bar, a tenth for the factorisation, and another since
# drift counts by its integral. We know no number of the paper's, which reports correlations.
IN_SIZE = 3 * SMALL
# The scale of the paper's own start, N(0, 1)/100.
USUAL_SCALE = 0.01
# Where assumptions are measured, as parts of the run.
MEASURED_AT = (0.0, *np.geomspace(1e-3, 1.0, 13).tolist())


def joint_model(model: Any) -> Joint:
    """Return the model if it is a `Joint`; raise an `InputError` otherwise."""
    if isinstance(model, Joint):
        return model
    raise InputError("model: JoMA is about an MLP over attention; give model=Joint(...)")


class _Joma(ClassTheory):
    """A level; `moving` and `stationary` are arguments of `theory.reduced_joint_flow`."""

    moving: ClassVar[bool] = False
    stationary: ClassVar[bool] = False

    def check(self, run: Simulation) -> None:
        super().check(run)
        model = joint_model(run.model)
        if model.hidden is not None:
            raise InputError(
                "model.hidden: the prediction starts from v(0) = 0, and an upper layer is random; "
                "leave hidden out, or ask prediction.joint_invariants about the result"
            )
        if model.activation == "relu":
            raise InputError(
                "model.activation: from v(0) = 0 a ReLU does not move; take 'linear' or 'gelu', or "
                "ask prediction.joint_invariants about the result"
            )
        require_descent(run)

    def assumptions(self, case: Case) -> tuple[Hypothesis, ...]:
        model = joint_model(case.model)
        path = self._path(case, np.array(MEASURED_AT) * case.steps)
        held = theory.start_gradient(case) if model.stationary else None
        along: dict[str, Any] = {"r": path.query_weights, "incoming": held, **kind(model)}
        found = theory.joint_assumptions(case, path.weights, path.logits, **along)
        claim_1, softmax = partial(Hypothesis, "JoMA, claim 1"), model.attention == "softmax"
        asked = [
            claim_1("orthonormal embeddings: overlaps in the model", 0.0, AT_MOST, 0.0),
            Hypothesis("here", "v(0) = 0: scale of the start", model.scale, AT_MOST, USUAL_SCALE),
            Hypothesis("here", "T -> infinity: 1/T", 1.0 / case.length, AT_MOST, 0.0),
        ]
        if not self.moving:
            count = float(case.classes.queries.size)
            asked.append(claim_1("one query for all classes", count, EQUAL, 1.0))
        if softmax and not self.moving:
            drift = float(found.drift.max())
            asked.append(claim_1("b-bar is constant: its drift", drift, AT_MOST, SMALL))
        if softmax:
            says = "E[S b] = E[S] b-bar: residual of the factorisation"
            residual = float(np.nanmax(found.residual[1:], initial=0.0))
            asked.append(claim_1(says, residual, AT_MOST, SMALL))
        if self.stationary:
            says = "incoming gradients are stationary: their change"
            change = float(np.nanmax(found.change))
            asked.append(Hypothesis("JoMA, claim 2", says, change, AT_MOST, SMALL))
        return tuple(asked)

    def predict(self, case: Case, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        path = self._path(case, t)
        said: dict[str, Labelled] = {
            "attention_logits": (("time", "query", "token"), path.logits),
            "attention": (("time", "sequence_class", "token"), _shares(case, path.logits)),
        }
        dims = case.model.extra_dims()
        for name, values in (("mlp_weights", path.weights), ("query_weights", path.query_weights)):
            if name in dims:
                said[name] = ("time", *dims[name]), values
        if self._closed(case):
            said["blow_up_time"] = ((), self._blow_up(case))
        return said

    def _closed(self, case: Case) -> bool:
        """Return True if a closed form solves the case: fixed gradient, one query, no softmax."""
        model = joint_model(case.model)
        stays = self.stationary or model.stationary
        return (
            stays
            and model.activation == "linear"
            and model.attention != "softmax"
            and case.classes.queries.size == 1
        )

    def _blow_up(self, case: Case) -> float:
        model = joint_model(case.model)
        if model.attention != "exp":
            return float("inf")
        return theory.blow_up_time(theory.delta(case)[0], **_of_law(case))

    def _path(self, case: Case, t: NDArray[np.float64]) -> theory.ReducedJoint:
        model = joint_model(case.model)
        if not self._closed(case):
            return theory.reduced_joint_flow(
                case,
                t,
                **kind(model),
                residual=model.residual,
                z0=case.z0,
                moving=self.moving,
                stationary=self.stationary or model.stationary,
            )
        law = theory.erf_law if model.attention == "exp" else theory.cosh_law
        found = law(theory.delta(case)[0], t, **_of_law(case))
        g = theory.start_gradient(case)
        pushed = case.eta_y * (case.prior @ g)[:, None] * t[..., None, None] * model.residual
        return theory.ReducedJoint(found.weights, pushed, found.logits[..., None, :])


class JomaStationary(_Joma):
    """Incoming gradients stay as they start: the erf law for exp attention (claim 2)."""

    name, stationary = "joma-stationary", True
    leans_on = "stationary incoming gradients"

    def check(self, run: Simulation) -> None:
        super().check(run)
        if joint_model(run.model).activation != "linear":
            raise InputError("model.activation: claim 2 is about a linear one; take 'linear'")
        if any(classes.queries.size > 1 for classes in run.sets):
            raise InputError("classes: claim 2 is about one query; give classes of one")


class Joma(_Joma):
    """Attention eliminated by its invariant, with b-bar fixed at its start (claim 1)."""

    name = "joma"
    leans_on = "a fixed b-bar, and one query alone"


class JomaMoving(_Joma):
    """Ours: the invariant with the current b-bar, each query by its own share of v'."""

    name, moving = "joma-moving", True
    leans_on = "b and S uncorrelated (the factorisation), v(0) = 0"


JOMA_LEVELS: tuple[ClassTheory, ...] = (JomaStationary(), Joma(), JomaMoving())


def kind(model: Joint) -> dict[str, Any]:
    """Return the model's settings that the theory takes, by their names there."""
    return {name: getattr(model, name) for name in ("attention", "activation", "temperature")}


def _of_law(case: Case) -> dict[str, Any]:
    """Return learning rates, temperature and start, as the closed forms take them."""
    return {
        "eta_w": case.eta_y,
        "eta_z": case.eta_z,
        "temperature": joint_model(case.model).temperature,
        "z0": 0.0 if case.z0 is None else case.z0[0],
    }


def _shares(case: Case, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |b| over its sum for each class, as a run records it."""
    model = joint_model(case.model)
    with np.errstate(invalid="ignore"):
        b = np.abs(theory.attend(case, z, attention=model.attention, temperature=model.temperature))
        return np.asarray(b / b.sum(-1, keepdims=True))
