"""The figures by name, and where their recipes are."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.files.recipe import read_recipe
from attnlab.files.shipped import here_or_shipped, recipe_folder

NAMES = (
    "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12",
)  # fmt: skip


def figure(name: str) -> Any:
    """The module of a figure: TITLE, Recipe, data(), draw(), judge()."""
    if name not in NAMES:
        raise InputError(f"figure: {name!r} is not one; {did_you_mean(name, NAMES)}")
    return import_module(f"attnlab.figures.{name}")


def recipe_for(name: str, folder: Path | None = None) -> Any:
    """The recipe of a figure, from attnlab's recipes or from another folder."""
    return named_recipe(name, figure(name).Recipe, _path(name, folder))


def has_recipe(name: str, folder: Path | None = None) -> bool:
    """Whether there is one; a folder of one's own need not have all."""
    return here_or_shipped(_path(name, folder)).is_file()


def _path(name: str, folder: Path | None) -> Path:
    return (folder or recipe_folder()) / f"{name}.yaml"


def named_recipe(name: str, kind: Any, path: Path) -> Any:
    """The recipe at `path`, which must say that it is the one of that name."""
    recipe = read_recipe(path, kind)
    if recipe.figure != name:
        raise InputError(f"{path}: figure: expected {name}, got {recipe.figure}")
    return recipe
