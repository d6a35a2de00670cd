"""Import the code of a paper, also from a plain folder that no import path leads to."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar


def import_from(folder: Path, package: str, module: str) -> ModuleType:
    """Import `module`, which is relative to `package`, the package that stands in `folder`.

    Raises whatever the code raises, and ImportError where `package` is another one by now.
    """
    if "." not in package and not same_folder(folder_of(package) or "", folder):
        _PlainFolders.known[package] = folder
        if _PlainFolders not in sys.meta_path:
            sys.meta_path.append(_PlainFolders)
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


class _PlainFolders:
    """Finder of packages in plain folders.

    Their parents are not put on `sys.path`: everything beside the folder would become importable.
    """

    known: ClassVar[dict[str, Path]] = {}

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        folder = cls.known.get(name)
        if folder is None:
            return None
        return importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
