"""The recipes of figures: lab notes that leave nothing out."""

from __future__ import annotations

from dataclasses import dataclass, fields

from attnlab.data.lab_note import LabNote
from attnlab.sweep.recipe import SweepRecipe


@dataclass(frozen=True, kw_only=True)
class FigureRecipe(LabNote):
    """A recipe of which every line of the lab note is needed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for line in fields(LabNote):
            if not getattr(self, line.name):
                raise ValueError(f"{line.name}: missing")


@dataclass(frozen=True, kw_only=True)
class SimulationRecipe(SweepRecipe, FigureRecipe):
    """A figure that comes from a sweep."""
