"""Experiments by name, as the papers on the shelf offer them, and their recipes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from attnlab.experiments.base import Experiment, Kind
from attnlab.experiments.recipe import NOTE
from attnlab.files.errors import InputError
from attnlab.files.recipe import read_recipe
from attnlab.files.shipped import here_or_shipped, recipe_folder
from attnlab.shelf import figure, shelf


def by_paper(names: Iterable[str]) -> dict[str, list[str]]:
    """Return those of the names that are experiments, by paper; without papers that have none."""
    wanted = list(names)
    found = {paper.name: [name for name in wanted if name in paper.figures]
             for paper in shelf().papers}  # fmt: skip
    return {paper: members for paper, members in found.items() if members}


def experiment(name: str) -> Experiment[Any]:
    """Return the experiment of this name.

    Parameters
    ----------
    name : str
        As `names_of` has it.

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
    found: Experiment[Any] = figure(name)[2].load()
    return found


def module_of(name: str) -> str:
    """Return the module that an experiment stands in."""
    paper, _, reference = figure(name)
    return f"{paper.package}.{reference.target.partition(':')[0]}"


@cache
def names_of(kind: Kind) -> tuple[str, ...]:
    """Return the names of the experiments of a kind, paper by paper.

    Parameters
    ----------
    kind : {"figure", "study"}
        Figures of papers, or studies of our own.

    Returns
    -------
    tuple of str
        Their names.
    """
    wanted = (kind == "study",)
    return tuple(
        name
        for paper in shelf().papers
        if (paper.reading == "ours",) == wanted
        for name in paper.figures
    )


def recipe_for(name: str, folder: Path | None = None) -> Any:
    """Return the recipe of an experiment, from attnlab's recipes or from another folder.

    It must say that it is the one of that name, and every line of the lab note.

    Parameters
    ----------
    name : str
        Of the experiment.
    folder : path, optional
        Where recipes are; by default those of attnlab.

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
    path = _path(name, folder)
    recipe = read_recipe(path, experiment(name).recipe)
    if recipe.figure != name:
        raise InputError(f"{path}: figure: expected {name}, got {recipe.figure}")
    for line in NOTE:
        if not getattr(recipe, line):
            raise InputError(f"{path}: {line}: missing")
    return recipe


def has_recipe(name: str, folder: Path | None = None) -> bool:
    """Whether there is one; a folder of one's own need not have all."""
    return here_or_shipped(_path(name, folder)).is_file()


def _path(name: str, folder: Path | None) -> Path:
    prefix = "study-" if experiment(name).kind == "study" else ""
    return (folder or recipe_folder()) / f"{prefix}{name}.yaml"
