"""Experiments by name, as the papers on the shelf offer them, and their recipes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from attnlab.experiments.base import Experiment
from attnlab.experiments.recipe import NOTE
from attnlab.files.errors import InputError
from attnlab.files.recipe import read_recipe
from attnlab.shelf import figure, shelf, single


def figures(*, ours: bool) -> tuple[str, ...]:
    """Return the figures on the shelf, as "paper/figure", paper by paper; imports none of them.

    Parameters
    ----------
    ours : bool
        Those of what is ours (`reading: ours` in paper.yaml), or those of all other papers.

    Returns
    -------
    tuple of str
        Their names.
    """
    papers = [paper for paper in shelf().papers if (paper.reading == "ours") is ours]
    return tuple(f"{paper.name}/{name}" for paper in papers for name in paper.figures)


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
    for paper, reference in single("opening"):
        found: Experiment[Any] = replace(reference.load(), paper=paper)
        return found
    return None


def module_of(name: str) -> str:
    """Return the module that an experiment stands in."""
    paper, _, reference = figure(name)
    return f"{paper.package}.{reference.target.partition(':')[0]}"


def recipe_for(name: str, folder: str | Path | None = None) -> Any:
    """Return the recipe of an experiment, from its paper or from another folder.

    It must say that it is the one of that name, and every line of the lab note; in another folder
    bounds on its numbers are optional.

    Parameters
    ----------
    name : str
        Of the experiment.
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
    return recipe_of(experiment(name), folder)


def recipe_of(of: Experiment[Any], folder: str | Path | None = None) -> Any:
    """Return the recipe of an experiment of a paper, as `recipe_for` does."""
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
    """Say whether there is one; a folder of one's own need not have all."""
    return _path(experiment(name), folder).is_file()


def _path(of: Experiment[Any], folder: str | Path | None) -> Path:
    if of.paper is None:
        raise InputError(f"{of.name}: belongs to no paper; read its recipe with read_recipe")
    if folder is None:
        return of.paper.recipe_file(of.name)
    folder = Path(folder)
    if not folder.is_dir() and len(folder.parts) == 1:
        beside = of.paper.recipe_file(of.name, folder.name)
        if beside.parent.is_dir():
            return beside
    apart = folder / of.paper.name / f"{of.name}.yaml"  # where two papers have one of this name
    return apart if apart.is_file() else folder / f"{of.name}.yaml"
