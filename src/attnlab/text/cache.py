"""The token cache: arrays in files named by the hash of what they were made from."""

from __future__ import annotations

import os
import warnings
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnlab.data.regular_file import open_regular
from attnlab.results.atomic import atomic_path


def cache_folder() -> Path:
    """$ATTNLAB_CACHE, or attnlab in the user's cache folder."""
    chosen = os.environ.get("ATTNLAB_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "attnlab"


def read_arrays(path: Path) -> dict[str, NDArray[np.generic]] | None:
    """The arrays that were kept, or None: a file that is absent or damaged is made again."""
    try:
        with open_regular(path) as file, np.load(file, allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}  # the archive checks each one's CRC
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def keep_arrays(path: Path, arrays: dict[str, NDArray[np.generic]]) -> None:
    """Write arrays to a file that is whole or not there; where that cannot be, do without."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            np.savez(temporary, allow_pickle=False, **arrays)
    except OSError as problem:
        warnings.warn(f"the token cache is not used: {problem}", stacklevel=2)
