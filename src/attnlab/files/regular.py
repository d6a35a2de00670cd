"""Regular files, the only kind that attnlab reads: a FIFO may block, and a device may never end.

The kind is checked after opening, without blocking, so that no other file can take its place.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader

from attnlab.files.errors import InputError
from attnlab.files.memory import size_words

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class NotAFile(InputError):
    """A path that is not a regular file."""

    def __init__(self, path: str | os.PathLike[str], kind: str) -> None:
        super().__init__(f"{os.fspath(path)}: not a file but {kind}")


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file for reading; links are followed.

    Raises :class:`NotAFile`, or the OSError of the system with the path and the reason alone.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as problem:
        if problem.errno == errno.ENXIO:  # what opening a socket gives
            raise NotAFile(path, KINDS[stat.S_IFSOCK]) from None
        if problem.errno == errno.ENOENT:
            raise FileNotFoundError(f"{os.fspath(path)}: no such file") from None
        raise type(problem)(f"{os.fspath(path)}: cannot be read: {problem.strerror}") from None
    except ValueError:  # a NUL, or half a character
        raise InputError(f"{os.fspath(path)!r}: no file can have such a name") from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise NotAFile(path, KINDS.get(kind, "something else"))
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], *, most: int, advice: str) -> bytes:
    """Return the content of a regular file of at most `most` bytes; `advice` is for larger ones."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read() if size <= most else b""
    if max(size, len(data)) > most:
        raise InputError(f"{os.fspath(path)}: larger than {size_words(most)}; {advice}")
    return data
