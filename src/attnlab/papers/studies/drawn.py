"""Sequence classes that a study's seeds draw: each set of classes is one seed."""

from dataclasses import dataclass
from functools import partial

import xarray as xr

from attnlab.experiments import StudyRecipe
from attnlab.files.errors import refuse_if
from attnlab.tasks.classes import SequenceClasses, random


@dataclass(frozen=True, kw_only=True)
class DrawnClasses(StudyRecipe):
    """Settings of a study whose seeds draw `random` classes, followed by gradient flow.

    tokens: that sequences draw. time, records: of the flow.
    """

    classes: int
    tokens: int
    overlap: float
    concentration: float
    time: float
    records: int

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_if(self.records < 4, "records", "at least 4", self.records)

    def inputs(self) -> list[str]:
        """Return nothing: no input is read from elsewhere."""
        return []

    def sets(self) -> list[SequenceClasses]:
        """Return the classes of each seed."""
        vocabulary = self.tokens + self.classes + 1
        draw = partial(
            random, vocabulary, self.classes, concentration=self.concentration, overlap=self.overlap
        )
        return [draw(seed=seed) for seed in range(self.seeds)]


def by_draw(attention: xr.DataArray) -> xr.DataArray:
    """Return attention with the sets of classes along `seed`."""
    one = attention.isel(seed=0, drop=True).rename(setting="seed")
    return one.assign_coords(seed=range(one.sizes["seed"]))


def distinct(P: xr.DataArray) -> xr.DataArray:
    """Return where a class draws a token that no other class does."""
    drawn = P > 0
    return drawn & (drawn.sum("sequence_class") == 1)
