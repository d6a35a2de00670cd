"""Theories of the minimal model: from the facts of a run to the formulas.

`InductionStart`: gradients stay those of the start. `InductionDescent`: gradient descent on the
mean over many chains. `InductionEnd`: all of layer 1 on lag 1, W = w I with the best w.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError
from attnlab.simulation import Simulation
from attnlab.tasks import MarkovChains
from attnlab.theory import Facts, Hypothesis, Theory
from attnlab.theory.relation import AT_MOST
from attnlab.theory.theory import Labelled, require_descent

from . import theory
from .distances import chains_of
from .model import MinimalInduction

START_CHAINS, DESCENT_CHAINS, END_CHAINS = 4000, 512, 6000


class _Minimal(Theory):
    """A level about `MinimalInduction` on Markov chains; means are over chains of its own."""

    def check(self, run: Simulation) -> None:
        task, model = run.task, run.model
        if not isinstance(model, MinimalInduction) or model.first != "softmax":
            raise InputError("model: the theory is about MinimalInduction(first='softmax')")
        if not isinstance(task, MarkovChains) or task.concentration != 1 or run.loss == "task":
            raise InputError(
                "task: the theory is about cross entropy on MarkovChains or MixedChains of "
                "concentration 1; give one of these"
            )
        if task.start != "stationary":
            raise InputError("task.start: the theory is about 'stationary' chains")
        require_descent(run)

    def assumptions(self, facts: Facts) -> tuple[Hypothesis, ...]:
        """Ask for a small start: with c T of order 1, probabilities are not 1/k."""
        spread = float(np.abs(facts.start["second"]).max()) * facts.run.task.length
        return (Hypothesis("here", "a small start: c T", spread, AT_MOST, 1.0),)

    def predict(self, facts: Facts, t: NDArray[np.float64]) -> Mapping[str, Labelled]:
        W, v = self.path(facts, t)
        k = W.shape[-1]
        diagonal = np.trace(W, axis1=1, axis2=2) / k
        mass = np.exp(v - v.max(1, keepdims=True))
        return {
            "parameters.second": (("time", "parameters.second_0", "parameters.second_1"), W),
            "parameters.first": (("time", "parameters.first_0"), v),
            "diagonal": (("time",), diagonal),
            "off_diagonal": (("time",), (W.sum((1, 2)) / k - diagonal) / (k - 1)),
            "lag_mass": (("time", "lag"), mass / mass.sum(1, keepdims=True)),
        }

    @abstractmethod
    def path(self, facts: Facts, t: NDArray[np.float64]) -> tuple[Any, Any]:
        """Return W (time, k, k) and v (time, T)."""


class InductionStart(_Minimal):
    """W takes steps of its first gradient, and v those that an excess w of the diagonal gives."""

    name = "induction-start"
    leans_on = "gradients that stay those of the start"

    def path(self, facts: Facts, t: NDArray[np.float64]) -> tuple[Any, Any]:
        rates, start, (step, signal) = facts.learning_rates, facts.start, _start(facts.run.task)
        second = rates["second"] * t[:, None, None] * step
        excess = step[0, 0] - step[0, 1]  # a step's; their sum before step t is t (t - 1) / 2
        first = rates["first"] * rates["second"] * excess * (t * (t - 1) / 2)[:, None] * signal
        return start["second"] + second, start["first"] + first


class InductionDescent(_Minimal):
    """Gradient descent on the mean over chains of the theory's own, in numpy."""

    name = "induction-descent"
    leans_on = "batches large enough to be the mean"

    def check(self, run: Simulation) -> None:
        super().check(run)
        if run.clock != "step" or run.momentum:
            raise InputError("motion: the theory counts plain steps; give Steps(n), no momentum")

    def path(self, facts: Facts, t: NDArray[np.float64]) -> tuple[Any, Any]:
        W, v = (facts.start[name].astype(float) for name in ("second", "first"))
        rates = tuple(facts.learning_rates[name] for name in ("second", "first"))
        return _descent(facts.run.task, W.tobytes(), v.tobytes(), tuple(t.astype(int)), rates)


class InductionEnd(_Minimal):
    """The end, whatever t: all of layer 1 on lag 1 and W = w I, with the best w."""

    name = "induction-end"
    leans_on = "all attention of layer 1 on lag 1"
    infinite = True

    def path(self, facts: Facts, t: NDArray[np.float64]) -> tuple[Any, Any]:
        task = facts.run.task
        W = end_weight(task) * np.eye(task.vocab_size)
        ones = np.ones(t.size)
        return np.multiply.outer(ones, W), np.multiply.outer(ones, theory.lag_one(task.length))


def sequences_of(task: MarkovChains, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return sequences of a task's prior and their next symbols."""
    P = chains_of(task, count, np.random.default_rng(0))
    tokens = theory.sample(np.random.default_rng(1), P, task.length + 1)
    return tokens[:, :-1], tokens[:, 1:]


@lru_cache(maxsize=16)
def end_weight(task: MarkovChains) -> float:
    """Return the best w of a task at W = w I and lag 1 alone."""
    return theory.end_weight(*sequences_of(task, END_CHAINS), task.vocab_size)


@lru_cache(maxsize=16)
def _start(task: MarkovChains) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the first step of W, alike for all symbols, and the signal for v over w."""
    P, k = chains_of(task, START_CHAINS, np.random.default_rng(0)), task.vocab_size
    step = theory.first_step(P, task.length)
    diagonal = np.trace(step) / k
    off = (step.sum() / k - diagonal) / (k - 1)
    return off + (diagonal - off) * np.eye(k), theory.first_signal(P, task.length)


@lru_cache(maxsize=16)  # most seeds start alike
def _descent(task: MarkovChains, W: bytes, v: bytes, steps: Any, rates: Any) -> tuple[Any, Any]:
    x, y = sequences_of(task, DESCENT_CHAINS)
    start = np.frombuffer(W).reshape(task.vocab_size, -1), np.frombuffer(v)
    return theory.descend(x, y, *start, steps, rates)
