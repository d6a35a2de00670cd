"""What an experiment is: its data, what they say about a claim, a picture and a table.

An experiment is a value with functions in it. Those of a paper stand in its folder, and its
paper.yaml names them; the catalogue finds them there. One of your own needs no more than this value
(docs/guides/own_paper.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments.recipe import ExperimentRecipe
from attnlab.files.progress import Progress
from attnlab.shelf import Paper

Kind = Literal["figure", "study"]
R = TypeVar("R", bound=ExperimentRecipe)
R_contra = TypeVar("R_contra", bound=ExperimentRecipe, contravariant=True)


class Standing(StrEnum):
    """How the claim of an experiment stands."""

    HOLDS = "holds"
    CORRECTED = "corrected"
    PARTLY = "in part"
    FAILS = "fails"
    OPEN = "open"

    @classmethod
    def of(cls, holds: Any, in_part: Any) -> Standing:
        """Return HOLDS, or PARTLY where it holds in part only, or FAILS; takes arrays of one."""
        return cls.HOLDS if holds else cls.PARTLY if in_part else cls.FAILS


# A figure is held against a printed one, a study against what a source says.
WORDS: Mapping[Kind, Mapping[Standing, str]] = {
    "figure": {
        Standing.HOLDS: "reproduced",
        Standing.CORRECTED: "reproduced with a correction",
        Standing.PARTLY: "reproduced in part",
        Standing.FAILS: "not reproduced",
        Standing.OPEN: "we cannot tell",
    },
    "study": {
        Standing.HOLDS: "as {source} says",
        Standing.CORRECTED: "as {source} says, with a correction",
        Standing.PARTLY: "in part as {source} says",
        Standing.FAILS: "not as {source} says",
        Standing.OPEN: "{source} does not say",
    },
}


@dataclass(frozen=True)
class Judgement:
    """How the claim stands, in words and in numbers.

    Parameters
    ----------
    standing : Standing
        How the claim stands.
    headline : str
        What was found, in one sentence.
    summary : str
        The same in a few.
    alt : str
        What the picture shows, for those who cannot see it.
    numbers : mapping
        By name; a recipe has regression bounds for them.
    """

    standing: Standing
    headline: str
    summary: str
    alt: str
    numbers: Mapping[str, float]


@dataclass(frozen=True)
class Table:
    """Rows of numbers, as they are written to table.csv, and as a page shows them.

    Parameters
    ----------
    rows : Sequence[mapping
        Numbers by name, row by row.
    caption : str, optional
        What is shown.
    cells : sequence, optional
        The texts of a page, its heading first, where they are not the rows themselves; a second
        line in a cell is shown smaller.
    """

    rows: Sequence[Mapping[str, float]]
    caption: str = ""
    cells: Sequence[Sequence[str]] = ()

    def shown(self) -> list[list[str]]:
        """The heading and the rows as texts."""
        if self.cells:
            return [list(row) for row in self.cells]
        return [list(self.rows[0]), *([f"{v:.4g}" for v in row.values()] for row in self.rows)]


class Data(Protocol[R_contra]):
    """Makes the data of an experiment by its recipe.

    progress: a function to call with the fraction done, or False. keep: a folder in which
    simulations may be kept, and found again.
    """

    def __call__(
        self, recipe: R_contra, /, *, progress: Progress = False, keep: Path | None = None
    ) -> xr.Dataset: ...


@dataclass(frozen=True, kw_only=True)
class Experiment(Generic[R]):
    """A claim, put to the test.

    Parameters
    ----------
    name : str
        Of its files, and of their folder in that of its paper.
    title : str
        In a few words.
    recipe : type
        The type of its recipes; a recipe says what is claimed (`about`), which `inputs()` are read,
        and what it is `with_seeds(n)`.
    data : callable
        A labelled dataset, by the recipe.
    judge : callable
        What the data say about the claim.
    draw : callable
        Their picture.
    table : callable, optional
        Their numbers as a table, where there is one.
    kind : {"figure", "study"}, optional
        A figure of a paper, made again, or a study of our own. A study keeps its seeds apart, along
        `seed`, so that every number is found again on each half of them.
    source : str, optional
        Who claims it.
    paper : Paper, optional
        The paper on the shelf that it belongs to; the catalogue fills it in.
    """

    name: str
    title: str
    recipe: type[R]
    data: Data[R]
    judge: Callable[[xr.Dataset], Judgement]
    draw: Callable[[xr.Dataset], Figure]
    table: Callable[[xr.Dataset], Table] | None = None
    kind: Kind = "study"
    source: str = "the paper"
    paper: Paper | None = None

    @property
    def full_name(self) -> str:
        """The name with that of its paper, "paper/figure", where it has one."""
        return self.name if self.paper is None else f"{self.paper.name}/{self.name}"

    def in_words(self, standing: Standing) -> str:
        """How the claim stands, as a reader is told."""
        return WORDS[self.kind][standing].format(source=self.source)
