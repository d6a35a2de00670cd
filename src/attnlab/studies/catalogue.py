"""The studies by name, and their recipes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from attnlab.figures.catalogue import named_recipe, recipe_folder
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError

NAMES = ("positions", "optimizers", "length", "heads", "spurious", "residual", "overlap")


def study(name: str) -> Any:
    """The module of a study: TITLE, Recipe, data(), draw(), judge()."""
    if name not in NAMES:
        raise InputError(f"study: {name!r} is not one; {did_you_mean(name, NAMES)}")
    return import_module(f"attnlab.studies.{name}")


def recipe_for(name: str, folder: Path | None = None) -> Any:
    """The recipe of a study, from attnlab's recipes or from another folder."""
    kind = study(name).Recipe
    return named_recipe(name, kind, (folder or recipe_folder()) / f"study-{name}.yaml")
