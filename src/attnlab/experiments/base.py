"""Experiments: data, what they say about a claim, a picture and a table; recipes, and names.

An experiment is a value that holds functions. Those of a paper are in its folder and named in
its paper.yaml. One of your own needs no more than this value
(docs/guides/own_paper.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import xarray as xr
from matplotlib.figure import Figure

from attnlab.files.documents import within
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.files.recipe import Named, Recipe, read_recipe
from attnlab.shelf import Paper, figure, single
from attnlab.shelf.papers import figures as figures
from attnlab.sweeping.recipe import SweepRecipe
from attnlab.tasks.classes import classes_from

Kind = Literal["figure", "study"]
R = TypeVar("R", bound="ExperimentRecipe")
R_contra = TypeVar("R_contra", bound="ExperimentRecipe", contravariant=True)
NOTE = [line.name for line in fields(Recipe)]


@dataclass(frozen=True, kw_only=True)
class ExperimentRecipe(Recipe):
    """Settings of an experiment; none of the numbers is negative.

    Parameters
    ----------
    ours : str, optional
        Which of its settings are not the source's, in words.

    Attributes
    ----------
    resumes
        Whether its data take long, and are gone on with after a stop.
    """

    ours: str | None = None
    resumes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for line in fields(self):
            if line.name not in NOTE:
                where = "" if "inline" in line.metadata else line.name
                _refuse_negative(where, getattr(self, line.name))

    def inputs(self) -> list[str]:
        """Digests of what is read from elsewhere: the classes that a field of this name names."""
        return [classes_from(text).digest for text in _texts(getattr(self, "classes", ()))]

    def with_seeds(self, seeds: int) -> Self:
        """Return a recipe with another number of seeds, if it is averaged over them."""
        given: dict[str, Any] = {"seeds": seeds}
        return replace(self, **given) if "seeds" in {of.name for of in fields(self)} else self

    def in_words(self) -> dict[str, str]:
        """The settings by name, without what the recipe says about itself."""
        given = {of.name: getattr(self, of.name) for of in fields(self) if of.name not in NOTE}
        return {name: _words(value) for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class SimulationRecipe(SweepRecipe, ExperimentRecipe):
    """An experiment that comes from a sweep."""

    def inputs(self) -> list[str]:
        """Digests of the classes of every setting."""
        return [classes.digest for _, classes in self.settings() if classes is not None]

    def in_words(self) -> dict[str, str]:
        """The settings by name, those of the simulation among them."""
        found = super().in_words()
        found.pop("given")
        return {name: _words(value) for name, value in self.given.items()} | found


@dataclass(frozen=True, kw_only=True)
class StudyRecipe(ExperimentRecipe):
    """seeds: repetitions, over which every number has its uncertainty; what they draw (training
    data, starts, or the classes themselves) is up to the study. Each half of them must have an
    uncertainty of its own (`on_halves`)."""

    seeds: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds < 4:
            raise InputError(f"seeds: two halves with an error need at least 4, got {self.seeds}")


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


def _texts(given: Any) -> list[str]:
    if isinstance(given, str):
        return [given]
    return list(given.values() if isinstance(given, Mapping) else given)


def _words(value: Any) -> str:
    if isinstance(value, Named):
        own = {item.name: getattr(value, item.name) for item in fields(value)}  # type: ignore[arg-type]
        value = {"name": value.called(), **own}
    elif is_dataclass(value) and not isinstance(value, type):
        given = {item.name: getattr(value, item.name) for item in fields(value)}
        value = {
            item.name: given[item.name]
            for item in fields(value)
            if item.name == "name" or given[item.name] != item.default
        }
    if isinstance(value, Mapping):
        shown = {key: item for key, item in value.items() if not _unset(item)}
        return ", ".join(f"{key} {_words(item)}" for key, item in shown.items())
    if isinstance(value, (list, tuple)):
        texts = [_words(item) for item in value]
        return "; ".join(texts) if any("," in text for text in texts) else " ".join(texts)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unset(value: Any) -> bool:
    """Return True for a setting that changes nothing: None, False or an empty mapping."""
    return value is None or value is False or value == {}


class Standing(StrEnum):
    """Standing of the claim of an experiment."""

    HOLDS = "holds"
    CORRECTED = "corrected"
    PARTLY = "in part"
    FAILS = "fails"
    OPEN = "open"

    @classmethod
    def of(cls, holds: Any, in_part: Any = False) -> Standing:
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
    """Standing of a claim, in words and in numbers.

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
        """Return the standing of the claim as a phrase for readers."""
        return WORDS[self.kind][standing].format(source=self.source)


def experiment(name: str) -> Experiment[Any]:
    """Return the experiment of this name.

    Parameters
    ----------
    name : str
        A figure's, or "paper/figure".

    Returns
    -------
    Experiment
        The value.

    Examples
    --------
    >>> from attnlab.experiments import experiment
    >>> experiment("fig9").title
    'The growth bound at a fixed ratio of the rates'
    """
    paper, _, reference = figure(name)
    return replace(reference.load(), paper=paper)


def opening() -> Experiment[Any] | None:
    """Return the experiment that a report opens with: that of the first paper that offers one."""
    found = (replace(reference.load(), paper=paper) for paper, reference in single("opening"))
    return next(found, None)


def module_of(name: str) -> str:
    """Return the module of an experiment."""
    paper, _, reference = figure(name)
    return f"{paper.package}.{reference.target.partition(':')[0]}"


def recipe_for(name: str | Experiment[Any], folder: str | Path | None = None) -> Any:
    """Return the recipe of an experiment, from its paper or from another folder.

    It must say that it is the one of that name, and every line of the lab note; in another folder
    bounds on its numbers are optional.

    Parameters
    ----------
    name : str or Experiment
        The experiment, or its name.
    folder : str or path, optional
        A folder of your own, or the name of one among the paper's recipes ("wikitext").

    Returns
    -------
    ExperimentRecipe
        Of the experiment's own type.

    Examples
    --------
    >>> from attnlab.experiments import recipe_for
    >>> recipe_for("fig9").eta_z
    (0.25, 0.5, 1.0, 2.0)
    """
    of = name if isinstance(name, Experiment) else experiment(name)
    path = _path(of, folder)
    recipe = read_recipe(path, of.recipe)
    if recipe.figure != of.name:
        raise InputError(f"{path}: figure: expected {of.name}, got {recipe.figure}")
    for line in NOTE:
        # numbers at a size of one's own, or at a tiny one, need no bounds
        if not getattr(recipe, line) and (folder is None or line != "regression_bounds"):
            raise InputError(f"{path}: {line}: missing")
    return recipe


def has_recipe(name: str, folder: str | Path | None = None) -> bool:
    """Check whether an experiment has a recipe in a folder, which need not have all."""
    return _path(experiment(name), folder).is_file()


def _path(of: Experiment[Any], folder: str | Path | None) -> Path:
    if of.paper is None:
        raise InputError(f"{of.name}: belongs to no paper; read its recipe with read_recipe")
    if folder is None:
        return of.paper.recipe_file(of.name)
    folder = Path(folder)
    if not folder.is_dir() and len(folder.parts) == 1:
        own = of.paper.recipe_file(of.name, folder.name)
        if own.parent.is_dir():
            return own
    apart = folder / of.paper.name / f"{of.name}.yaml"  # where two papers have one of this name
    return apart if apart.is_file() else folder / f"{of.name}.yaml"
