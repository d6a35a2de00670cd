"""What every recipe of a study has."""

from __future__ import annotations

from dataclasses import dataclass

from attnlab.figures.recipe import FigureRecipe
from attnlab.files.errors import InputError


@dataclass(frozen=True, kw_only=True)
class StudyRecipe(FigureRecipe):
    """seeds: repetitions, over which every number has its uncertainty; what they draw (training
    data, starts, or the classes themselves) is up to the study. Each half of them must have an
    uncertainty of its own (`halves`)."""

    seeds: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds < 4:
            raise InputError(f"seeds: two halves with an error need at least 4, got {self.seeds}")
