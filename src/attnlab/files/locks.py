"""Locks: which driver computes a group, so that two on one folder share the work.

fcntl is POSIX: attnlab runs on Linux and macOS.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from attnlab.files.folders import make_folder, refuse_links


class Locks:
    """Locks on files named after groups, in a folder of the output folder `inside`.

    The kernel frees the lock when its owner dies, however it dies, so that none outlives its
    owner; the file that is left behind means nothing.
    """

    def __init__(self, folder: Path, *, inside: Path) -> None:
        self.folder, self.inside = folder, inside
        self._held: dict[str, int] = {}

    def take(self, key: str) -> bool:
        """Lock a group; False where another driver has."""
        make_folder(self.folder, inside=self.inside)
        path = refuse_links(self.folder / key, inside=self.inside)
        flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o666)
        if not _lock(descriptor):
            os.close(descriptor)
            return False
        self._held[key] = descriptor
        return True

    def release(self, key: str) -> None:
        """Give a group up. Another driver may hold the old file open and lock it after this, which
        is why a driver looks for a group's result once it has locked it."""
        (self.folder / key).unlink(missing_ok=True)
        os.close(self._held.pop(key))

    def release_all(self) -> None:
        """Give up everything that is still locked here."""
        for key in list(self._held):
            self.release(key)

    def is_taken(self, key: str) -> bool:
        """Check whether a living driver has locked the group."""
        try:
            descriptor = os.open(self.folder / key, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        try:
            return not _lock(descriptor)
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
