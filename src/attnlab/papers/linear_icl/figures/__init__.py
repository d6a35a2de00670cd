"""Figures of the paper made again, and one of our own: what their recipes and pictures share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import xarray as xr

from attnlab.experiments import ExperimentRecipe
from attnlab.measures import clock_of
from attnlab.simulation import Simulation

from ..model import LinearAttention
from ..runs import Tasks, descent, flow, geometric, proportional
from ..task import InContextRegression


@dataclass(frozen=True, kw_only=True)
class RunRecipe(ExperimentRecipe):
    """spectrum: what the eigenvalues are proportional to. examples: in a context. heads, std: of
    the model. seeds: training sets and starts."""

    spectrum: tuple[float, ...]
    examples: int
    heads: int
    std: float
    seeds: int

    @property
    def task(self) -> InContextRegression:
        """The task, of trace 1."""
        return proportional(self.spectrum, self.examples)


@dataclass(frozen=True, kw_only=True)
class DescentRecipe(RunRecipe):
    """sequences: in a training set. rate, steps: of the released code, as std is. every: steps from
    record to record."""

    sequences: int
    rate: float
    steps: int
    every: int

    def descent(self, tasks: Tasks, *, partner: bool = False) -> Simulation:
        """Return gradient descent of merged attention by these settings."""
        names = ("heads", "std", "rate", "steps", "every", "seeds")
        given: Any = {name: getattr(self, name) for name in names}
        return descent(tasks, **given, partner=partner)


@dataclass(frozen=True, kw_only=True)
class FlowRecipe(RunRecipe):
    """time: of the flow. records: in even ratios."""

    time: float
    records: int

    def flow(self, rank: int = 1) -> Simulation:
        """Return the flow of separate attention by these settings."""
        at = geometric(self.time / 1000, self.time, self.records)
        model = LinearAttention(self.heads, rank, self.std)
        return flow(self.task, model, at, seeds=self.seeds)


def lines(ax: Any, curves: xr.DataArray, label: str = "_", **look: Any) -> None:
    """Draw all curves along the clock in one look; the label stands once."""
    clock = clock_of(curves)
    table = curves.transpose(clock, ...)
    ax.plot(curves[clock], table, label=[label, *["_"] * (table.shape[1] - 1)], **look)


def level_lines(ax: Any, levels: Iterable[float], colour: str = "0.8") -> None:
    """Draw levels of the loss behind its curves."""
    for level in levels:
        ax.axhline(level, color=colour, linewidth=0.8, zorder=0)
