"""Files that are either whole or not there: every writer of attnlab goes through here."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; write there, and it becomes `path` on leaving.

    A reader sees the old file or the new one, never a part. When the block raises, the temporary
    file is removed and the old file stays; what the disk refuses is told under the name `path`. The
    temporary name keeps the suffix of `path`, because some writers choose the format by it.

        with atomic_path("table.csv") as temporary:
            temporary.write_text(...)
    """
    # A link is followed, as it is by an ordinary open(): replacing the link would leave its
    # target old.
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path}: is a folder; give the name of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {target.parent} is not there; make it first")
    temporary = target.with_name(f".attnlab-{secrets.token_hex(8)}{target.suffix}")
    try:
        yield temporary
        _sync(temporary)  # the bytes must be on the disk before the name points at them
        os.replace(temporary, target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, os.fspath(temporary)):
            raise
        # a full disk names no file, and the temporary name means nothing to the caller
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    _sync(target.parent)  # and the name, so that the new file outlives a power cut


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
