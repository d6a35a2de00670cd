"""Figures of the paper made again, and one of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnlab.experiments import ExperimentRecipe
from attnlab.simulation import Simulation

from ..runs import descent
from ..task import InContextRegression


@dataclass(frozen=True, kw_only=True)
class DescentRecipe(ExperimentRecipe):
    """sequences, heads, std, rate, steps: as the released code has them. every: steps from record
    to record. seeds: training sets and starts."""

    sequences: int
    heads: int
    std: float
    rate: float
    steps: int
    every: int
    seeds: int

    def descent(self, task: InContextRegression, **own: Any) -> Simulation:
        """Return gradient descent of merged attention by these settings."""
        names = ("heads", "std", "rate", "steps", "every", "seeds")
        return descent(task, **{name: getattr(self, name) for name in names}, **own)
