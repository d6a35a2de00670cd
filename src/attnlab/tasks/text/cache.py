"""The token cache: arrays in files named by the hash of what they were made from.

They are sealed as results are (see `attnlab.files.netcdf`): numpy believes what stands before an
array about its size, and would give a part of it without a word.
"""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError
from attnlab.files.folders import make_folder
from attnlab.files.netcdf import verify_open, write_with_seal
from attnlab.files.regular import open_regular


def cache_folder() -> Path:
    """$ATTNLAB_CACHE, or attnlab in the user's cache folder."""
    chosen = os.environ.get("ATTNLAB_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "attnlab"


def read_arrays(path: Path) -> dict[str, NDArray[np.generic]] | None:
    """The arrays that were kept, or None: a file that is absent or damaged is made again."""
    try:
        with open_regular(path) as file:
            verify_open(file, path)
            file.seek(0)
            with np.load(file, allow_pickle=False) as kept:
                return {name: kept[name] for name in kept.files}
    except (OSError, ValueError):
        return None


def keep_arrays(path: Path, arrays: dict[str, NDArray[np.generic]], *, inside: Path) -> None:
    """Write arrays to a file in the folder `inside`, whole or not there; where that cannot be done,
    warn and do without."""
    try:
        make_folder(path.parent, inside=inside)
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        with atomic_path(path, inside=inside) as temporary:
            write_with_seal(temporary, content)
    except (OSError, InputError) as problem:
        warnings.warn(f"the token cache is not used: {problem}", stacklevel=2)
