"""The recipes of experiments: all that they are made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Self

from attnlab.data import classes_from
from attnlab.files.documents import within
from attnlab.files.errors import InputError
from attnlab.files.recipe import Named, Recipe
from attnlab.sweeping.recipe import SweepRecipe

NOTE = [line.name for line in fields(Recipe)]


@dataclass(frozen=True, kw_only=True)
class ExperimentRecipe(Recipe):
    """What an experiment is made with, nothing of which is negative.

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
        """The same with another number of seeds, where it is averaged over them."""
        return self

    def in_words(self) -> dict[str, str]:
        """The settings by name, without what the recipe says about itself."""
        said = {line.name: getattr(self, line.name) for line in fields(self)}
        given = {name: value for name, value in said.items() if name not in NOTE}
        return {name: _words(value) for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class SimulationRecipe(SweepRecipe, ExperimentRecipe):
    """An experiment that comes from a sweep."""

    def inputs(self) -> list[str]:
        """Digests of the classes of every setting."""
        return [classes.digest for _, classes in self.settings()]

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

    def with_seeds(self, seeds: int) -> Self:
        """The same with another number of seeds."""
        return replace(self, seeds=seeds)


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
        value = value.to_document(defaults=True)
    if is_dataclass(value) and not isinstance(value, type):
        given = {item.name: getattr(value, item.name) for item in fields(value)}
        value = {
            item.name: given[item.name]
            for item in fields(value)
            if item.name == "name" or given[item.name] != item.default
        }
    if isinstance(value, Mapping):
        shown = {key: item for key, item in value.items() if item is not None}
        return ", ".join(f"{key} {_words(item)}" for key, item in shown.items())
    if isinstance(value, (list, tuple)):
        texts = [_words(item) for item in value]
        return "; ".join(texts) if any("," in text for text in texts) else " ".join(texts)
    return f"{value:g}" if isinstance(value, float) else str(value)
