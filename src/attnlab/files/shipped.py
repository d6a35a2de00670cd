"""Files that come with attnlab: recipes, beside src/ in a clone and inside the package in a wheel;
in a clone the documentation too."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def recipe_folder() -> Path:
    """The folder with the recipes that come with attnlab."""
    inside = PACKAGE / "recipes"  # where setup.py puts them when a wheel is built
    return inside if inside.is_dir() else PACKAGE.parents[1] / "recipes"


def template_folder() -> Path:
    """Return the folder of the example that a new paper is copied from."""
    inside = PACKAGE / "own_paper"  # where setup.py puts it when a wheel is built
    return inside if inside.is_dir() else PACKAGE.parents[1] / "examples" / "own_paper"


def documentation() -> Path | None:
    """The documentation that stands beside src/ in a clone; a wheel has none."""
    docs = PACKAGE.parents[1] / "docs"
    return docs if PACKAGE.parent.name == "src" and docs.is_dir() else None


def here_or_shipped(path: Path) -> Path:
    """A file as it is named; `recipes/...`, where no such file is, among those of attnlab.

    So what the documentation says can be typed in any folder, with or without a clone.
    """
    if os.path.exists(path) or path.parts[:1] != ("recipes",):
        return path
    shipped = recipe_folder().joinpath(*path.parts[1:])
    return shipped if os.path.exists(shipped) else path
