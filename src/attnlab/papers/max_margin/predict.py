"""Levels of the max-margin theory: predictions of attention and of W's direction over time.

`MaxMargin`: W = R w_mm / |w_mm| towards the tokens of highest score, as we know it; R is ours. For
factors K, Q it is the nuclear solution. `LateTraining` (ours): W has an offset besides, and what
the start leaves outside the span of the support vectors. `RegularisationPath`: W is the least loss
among weights of the norm R, the regularisation path, which late training joins. None of them fits a
number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.simulation import Simulation
from attnlab.theory import Hypothesis, Theory
from attnlab.theory.facts import Facts
from attnlab.theory.relation import AT_LEAST, EQUAL
from attnlab.theory.theory import Labelled, require_descent

from . import theory
from .model import CrossAttention, normalised
from .task import TokenSelection

FloatArray = NDArray[np.float64]
GLOBAL = "T24, Theorem on global convergence"


def separable(task: TokenSelection) -> Hypothesis:
    """Return the hypothesis under which almost all instances of a task have a solution."""
    least = theory.sufficient_dimension(task.sequences, task.length)
    return Hypothesis(GLOBAL, "d >= max(T - 1, n): d", task.vocab_size, AT_LEAST, least)


def equal_scores(task: TokenSelection) -> Hypothesis:
    """Return the hypothesis under which only the best tokens are locally optimal."""
    equal = float(task.scores == "equal")
    return Hypothesis(GLOBAL, "all other tokens have equal scores: 1 or 0", equal, EQUAL, 1.0)


class MaxMargin(Theory):
    """W points to the max-margin solution of the best tokens all the time (items 1 and 5)."""

    name = "max-margin"
    leans_on = "the direction is there from the start"
    infinite = True

    def check(self, run: Simulation) -> None:
        if not isinstance(run.task, TokenSelection):
            raise InputError("task: the theory is about TokenSelection(...); give it as the task")
        if not isinstance(run.model, CrossAttention) or run.model.hidden:
            raise InputError("model: expected CrossAttention with hidden=0, whose f is linear")
        if run.loss != "logistic" or run.gradient.size is not None or run.clock != "step":
            raise InputError(
                "loss: expected loss='logistic', gradient=Population() and motion=Steps(...)"
            )
        if not _normalised(run):
            require_descent(run)
            if run.model.width is not None:
                raise InputError("optimizer: for K and Q expected the normalised steps of model.py")

    def assumptions(self, facts: Facts) -> tuple[Hypothesis, ...]:
        return (
            equal_scores(facts.run.task),
            separable(facts.run.task),
            Hypothesis("here", "a solution exists", _margin(facts).feasible, EQUAL, 1),
        )

    def predict(self, facts: Facts, t: FloatArray) -> Mapping[str, Labelled]:
        x, z, best = _instance(facts)
        W, direction = self._weights(facts, np.where(np.isinf(t), 0.0, t))
        attention = np.exp(theory.log_attention(x, z, W))
        attention[np.isinf(t)] = np.eye(x.shape[1])[best]
        size = np.linalg.norm(W, axis=(-2, -1), keepdims=True)
        moved = (size > 0) & np.isfinite(t)[:, None, None]
        unit = np.where(moved, W / np.where(size > 0, size, 1.0), direction)
        return {
            "attention": (("time", "sequence", "token"), attention),
            "direction": (("time", "key_dim", "query_dim"), unit),
        }

    def _weights(self, facts: Facts, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return W at each time, and its direction at the end."""
        margin, size = _margin(facts), _rate(facts) * t
        direction = margin.weights / margin.norm
        if facts.run.model.width is not None:
            # K and Q grow as eta t each, and |W|_* = |K| |Q| for balanced factors
            size = size**2 / np.linalg.norm(direction, "nuc")
        elif not _normalised(facts.run):
            size = margin.norm * np.log1p(size)
        return size[:, None, None] * direction, direction


class LateTraining(MaxMargin):
    """Ours: W = R direction + offset, with what the start leaves outside the span."""

    name = "max-margin-late"
    leans_on = "weights of other tokens are small, and fall in the ratios of the dual weights"

    def check(self, run: Simulation) -> None:
        super().check(run)
        if run.model.width is not None:
            raise InputError("model.width: late training is known for W itself; leave width out")

    def _weights(self, facts: Facts, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        late, R = self._late(facts, t)
        start = np.asarray(facts.start["attention"], dtype=np.float64).ravel()
        outside = start - np.linalg.pinv(late.rows) @ (late.rows @ start)
        return late.weights(R) + outside.reshape(late.offset.shape), late.direction

    def _late(self, facts: Facts, t: FloatArray) -> tuple[theory.Late, FloatArray]:
        """Return late training towards the best tokens, and R at each time."""
        x, z, best = _instance(facts)
        late = theory.late_training(x, z, facts.data["scores"], best)
        return late, late.size(t, eta=_rate(facts), normalised=_normalised(facts.run))


class RegularisationPath(LateTraining):
    """W is the least loss at its norm, on the regularisation path (item 3)."""

    name = "max-margin-path"
    leans_on = "descent keeps to the regularisation path"

    def check(self, run: Simulation) -> None:
        super().check(run)
        if run.model.scale:
            raise InputError("model.scale: the path begins at 0; give CrossAttention(scale=0)")

    def _weights(self, facts: Facts, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        late, radii = self._late(facts, t)
        x, z, _ = _instance(facts)
        W = np.zeros((t.size, *late.direction.shape))
        moved = radii > 0
        # in increasing order, each found from the one before
        W[moved] = theory.regularisation_path(x, z, facts.data["scores"], radii[moved].tolist())
        return W, late.direction


def _instance(facts: Facts) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
    return facts.data["x"], facts.data["z"], facts.data["scores"].argmax(-1)


def _margin(facts: Facts) -> theory.Margin:
    whole = facts.run.model.width is None
    return (theory.max_margin if whole else theory.nuclear_margin)(*_instance(facts))


def _rate(facts: Facts) -> float:
    return facts.learning_rates["attention" if facts.run.model.width is None else "key"]


def _normalised(run: Simulation) -> bool:
    return any(getattr(of, "function", None) is normalised for of in run.optimizers.values())
