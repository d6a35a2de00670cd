"""The experiments that come with attnlab, by name, and their recipes.

Every module in a folder of this package, one for each source, has an EXPERIMENT of its own name;
the folder itself has the PAPER that it is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from attnlab.experiments.base import Experiment, Kind, Paper
from attnlab.experiments.recipe import NOTE
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.files.recipe import read_recipe
from attnlab.files.shipped import here_or_shipped, recipe_folder

HERE = Path(__file__).parent


@cache
def papers() -> dict[str, Paper]:
    """The papers by their folders, the oldest first."""
    folders = [source.name for source in iter_modules([str(HERE)]) if source.ispkg]
    found = {name: import_module(f"attnlab.experiments.{name}").PAPER for name in folders}
    return dict(sorted(found.items(), key=lambda item: item[1].year))


@cache
def _modules() -> dict[str, str]:
    """The module of each experiment, paper by paper in the order of names, fig10 after fig9."""
    return {
        name: f"attnlab.experiments.{folder}.{name}"
        for folder in papers()
        for name in sorted(
            (module.name for module in iter_modules([str(HERE / folder)])), key=_in_order
        )
    }


def by_paper(names: Iterable[str]) -> dict[str, list[str]]:
    """Those of the names that are experiments, by the folders of their papers; without papers that
    have none of them."""
    homes = {name: module.split(".")[-2] for name, module in _modules().items()}
    chosen = [name for name in names if name in homes]
    found = {folder: [name for name in chosen if homes[name] == folder] for folder in papers()}
    return {folder: members for folder, members in found.items() if members}


def _in_order(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def experiment(name: str) -> Experiment[Any]:
    """The experiment of this name.

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
    found: Experiment[Any] = import_module(module_of(name)).EXPERIMENT
    return found


def module_of(name: str) -> str:
    """The module that an experiment stands in."""
    known = _modules()
    if name not in known:
        raise InputError(f"experiment: {name!r} is not one; {did_you_mean(name, known)}")
    return known[name]


@cache
def names_of(kind: Kind) -> tuple[str, ...]:
    """The names of the experiments of a kind: figures paper by paper, studies by the alphabet.

    Parameters
    ----------
    kind : {"figure", "study"}
        Figures of papers, or studies of our own.

    Returns
    -------
    tuple of str
        Their names.
    """
    found = [name for name in _modules() if experiment(name).kind == kind]
    return tuple(sorted(found) if kind == "study" else found)


def recipe_for(name: str, folder: Path | None = None) -> Any:
    """The recipe of an experiment, from attnlab's recipes or from another folder.

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
