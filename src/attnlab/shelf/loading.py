"""Import the code of a paper, also from a plain folder that no import path leads to."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "ATTNLAB_PAPERS"  # plain folders; child processes inherit it


def import_from(folder: Path, package: str, module: str) -> ModuleType:
    """Import `module`, which is relative to `package`, the package that stands in `folder`.

    Raises whatever the code raises, and ImportError where `package` is another one by now.
    """
    find_plain_folders()
    found = importlib.import_module(package)
    if not same_folder(os.path.dirname(found.__file__ or ""), folder):
        raise ImportError(f"{package} is already imported, from {found.__file__}; rename one")
    return importlib.import_module(f"{package}.{module}")


def folder_of(package: str) -> Path | None:
    """Return where a top-level package stands, without importing it; None where there is none.

    A module that is not a package gives its file, or its name where it has no file.
    """
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # a module that was put together by hand has no spec
        return Path(package)
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    return Path(places[0] if places else spec.origin or package)


def same_folder(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Say whether two paths lead to one folder."""
    return os.path.realpath(one) == os.path.realpath(other)


def plain_folders() -> Iterator[Path]:
    """Yield the folders that the environment names."""
    for text in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        yield Path(text).resolve()


def find_plain_folders() -> None:
    """Make the packages in plain folders importable, after everything else.

    Their parents are not put on `sys.path`: everything beside a folder would become importable.
    """
    if _PlainFolders not in sys.meta_path:
        sys.meta_path.append(_PlainFolders)


class _PlainFolders:
    """Finder of the packages in plain folders."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        for folder in plain_folders():
            start = folder / "__init__.py"
            if folder.name == name and start.is_file():
                return importlib.util.spec_from_file_location(
                    name, start, submodule_search_locations=[str(folder)]
                )
        return None


if os.environ.get(VARIABLE):  # a worker process is sent values of a paper's classes
    find_plain_folders()
