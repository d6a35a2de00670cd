"""The recipes of figures: lab notes that leave nothing out."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from attnlab.files.documents import within
from attnlab.files.errors import InputError
from attnlab.files.recipe import Recipe
from attnlab.sweep.recipe import SweepRecipe


@dataclass(frozen=True, kw_only=True)
class FigureRecipe(Recipe):
    """A recipe of which every line of the lab note is needed; what it sets is never negative.

    ours: which of its settings are not the paper's, in words.
    """

    ours: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        note = [line.name for line in fields(Recipe)]
        for name in note:
            if not getattr(self, name):
                raise InputError(f"{name}: missing")
        for line in fields(self):
            if line.name not in note:
                _refuse_negative(line.name, getattr(self, line.name))


def _refuse_negative(where: str, value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_negative(within(where, key), item)
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            _refuse_negative(f"{where}[{i}]", item)
    elif is_dataclass(value) and not isinstance(value, Recipe):  # which has seen to itself
        for line in fields(value):
            _refuse_negative(within(where, line.name), getattr(value, line.name))
    elif isinstance(value, (int, float)) and value < 0:
        raise InputError(f"{where}: expected at least 0, got {value}")


@dataclass(frozen=True, kw_only=True)
class SimulationRecipe(SweepRecipe, FigureRecipe):
    """A figure that comes from a sweep."""
