"""Files that are either whole or not there: every writer of attnlab goes through here."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attnlab.files.folders import refuse_links

_TEMPORARY = re.compile(r"\.attnlab-[0-9a-f]{16}(\.\w+)?")
_swept: set[Path] = set()  # folders in which this process has looked for leftovers


@contextmanager
def atomic_path(
    path: str | os.PathLike[str], *, inside: str | os.PathLike[str] | None = None
) -> Iterator[Path]:
    """Yield a temporary path beside `path`; write there, and it becomes `path` on leaving.

    A reader sees the old file or the new one, never a part. When the block raises, the temporary
    file is removed and the old file stays; errors of the disk name `path`. The temporary name keeps
    the suffix of `path`, because some writers choose the format by it. A temporary file that could
    not be removed, because its writer was killed or the disk became read-only, is removed by the
    next process that writes into the same folder.

        with atomic_path("figure.png") as temporary:
            figure.savefig(temporary)

    Parameters
    ----------
    path : str or path
        The file. A link is followed, as by an ordinary open(): the user named it.
    inside : str or path, optional
        The output folder that the user named, where `path` is a file that attnlab chose in it.
        Links inside that folder are refused (InputError).
    """
    if inside is None:
        target = Path(os.path.realpath(path))
    else:
        target = refuse_links(path, inside=inside)
    if target.is_dir():
        raise IsADirectoryError(f"{path}: is a folder; give the name of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {target.parent} is not there; make it first")
    _remove_leftovers(target.parent)
    temporary = target.with_name(f".attnlab-{secrets.token_hex(8)}{target.suffix}")
    descriptor = -1
    try:
        descriptor = _create_locked(temporary)
        yield temporary
        _sync(temporary)  # the bytes must be on the disk before the name points at them
        os.replace(temporary, target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, os.fspath(temporary)):
            raise
        # a full disk names no file, and the temporary name means nothing to the caller
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        try:
            temporary.unlink(missing_ok=True)
        except OSError:  # read-only by now, which the first error says already
            _swept.discard(target.parent)
        if descriptor >= 0:
            os.close(descriptor)
    _sync(target.parent)  # and the name, so that the new file outlives a power cut


def write_text(
    path: str | os.PathLike[str], text: str, *, inside: str | os.PathLike[str] | None = None
) -> None:
    """Write a file of UTF-8 text, whole or not at all; the arguments are those of `atomic_path`."""
    with atomic_path(path, inside=inside) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _create_locked(path: Path) -> int:
    """Create an empty file and lock it: the lock shows others that its writer lives."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # a file system without locks, where nothing is swept either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # swept by another process before it was locked


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary files whose writers are gone; runs once per process and folder, because
    a folder of many files takes long."""
    if folder in _swept:
        return
    _swept.add(folder)
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    _remove_unlocked(entry.path)


def _remove_unlocked(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
