"""Files that come with attnlab: recipes, and the template of a paper.

They are next to src/ in a clone, with the documentation, and inside the package in a wheel.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def recipe_folder() -> Path:
    """Return the folder with the recipes that come with attnlab."""
    inside = PACKAGE / "recipes"  # where setup.py puts them when a wheel is built
    return inside if inside.is_dir() else PACKAGE.parents[1] / "recipes"


def template_folder() -> Path:
    """Return the folder of the example that a new paper is copied from."""
    inside = PACKAGE / "own_paper"  # where setup.py puts it when a wheel is built
    return inside if inside.is_dir() else PACKAGE.parents[1] / "examples" / "own_paper"


def documentation() -> Path | None:
    """Return the documentation folder of a clone; a wheel has none."""
    docs = PACKAGE.parents[1] / "docs"
    return docs if PACKAGE.parent.name == "src" and docs.is_dir() else None


def here_or_shipped(path: Path) -> Path:
    """Return a path, or for a missing `recipes/...` the file that comes with attnlab.

    So the commands of the documentation work in any folder, with or without a clone.
    """
    if os.path.exists(path) or path.parts[:1] != ("recipes",):
        return path
    shipped = recipe_folder().joinpath(*path.parts[1:])
    return shipped if os.path.exists(shipped) else path
