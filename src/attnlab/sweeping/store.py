"""Stores: groups in memory, or in a folder with locks and a ledger that several drivers share."""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import xarray as xr

from attnlab.files.folders import make_folder, refuse_links
from attnlab.files.netcdf import DamagedFile, hdf5, held, save, verify_open
from attnlab.files.regular import NotAFile, open_regular
from attnlab.files.sealed import seal, unseal


class Ledger:
    """A file of sealed JSON lines that several drivers append to.

    A sweep does not depend on it: a group is done when its file is there and whole. A line that a
    killed driver left unfinished, or that was changed, is skipped and counted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, key: str, state: str, **facts: Any) -> None:
        """Add a line: the state (`running`, `done`, `failed` or `damaged`) and the facts."""
        entry = {
            "group": key,
            "state": state,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "by": f"{socket.gethostname()}:{os.getpid()}",
            **facts,
        }
        line = seal(entry)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        refuse_links(self.path, inside=self.path.parent)
        with open(os.open(self.path, flags | os.O_NOFOLLOW, 0o666), "ab+", buffering=0) as file:
            file.write(line if _ends_a_line(file) else b"\n" + line)

    def read(self) -> tuple[list[dict[str, Any]], int]:
        """Return the entries in order, and the number of damaged lines."""
        entries, damaged = [], 0
        with suppress(FileNotFoundError), open_regular(self.path) as file:
            for line in file:
                try:
                    entries.append(unseal(line))
                except ValueError:
                    damaged += 1
        return entries, damaged


def _ends_a_line(file: BinaryIO | Any) -> bool:
    if file.seek(0, os.SEEK_END) == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


KEY = "group"  # the attribute of a file that has its key
FILES = ("groups", "running", "ledger.jsonl")  # what a `Folder` writes
RESUME = "run the same `attnlab sweep` again, which makes it anew"


@dataclass(frozen=True)
class Contents:
    """A group in a store: its attributes, and its arrays by name, to be read in slices."""

    attrs: Mapping[str, Any]
    array: Callable[[str], Any]


class Store(Protocol):
    """Where groups are kept by key; one that is not shared needs no locks and no ledger."""

    def holds(self, key: str) -> bool:
        """Return True if the group is there, undamaged."""

    def read(self, key: str) -> AbstractContextManager[Contents]:
        """Open the group for as long as the context lasts."""

    def write(self, key: str, dataset: xr.Dataset) -> None:
        """Keep the group."""

    def lock(self, key: str) -> bool:
        """Lock the group; return False if another driver has."""
        return True

    def release(self, key: str) -> None:
        """Unlock the group, done or not."""
        return None

    def release_all(self) -> None:
        """Unlock all groups."""
        return None

    def note(self, key: str, state: str, **facts: Any) -> None:
        """Add a line about the group to the ledger."""
        return None


class Memory(Store):
    """Keeps groups for as long as it lives."""

    def __init__(self) -> None:
        self.groups: dict[str, xr.Dataset] = {}

    def holds(self, key: str) -> bool:
        return key in self.groups

    @contextmanager
    def read(self, key: str) -> Iterator[Contents]:
        dataset = self.groups[key]
        yield Contents(dataset.attrs, lambda name: dataset[name].values)

    def write(self, key: str, dataset: xr.Dataset) -> None:
        self.groups[key] = dataset


class Folder(Store):
    """Keeps each group in a file of its own, `groups/KEY.nc`, written atomically and sealed.

    The key is in the file too, so that one under another's name is not taken for it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger = Ledger(path / "ledger.jsonl")
        self._held: dict[str, int] = {}  # descriptors of locked files
        self._verified: dict[str, tuple[int, ...]] = {}

    def file(self, key: str) -> Path:
        return self.path / "groups" / f"{key}.nc"

    def holds(self, key: str) -> bool:
        """Return True if the file is there and undamaged; remove a damaged one."""
        try:
            with self.read(key):
                return True
        except FileNotFoundError:
            return False
        except (DamagedFile, NotAFile) as problem:
            self.note(key, "damaged", cause=str(problem))
            refuse_links(self.file(key), inside=self.path).unlink(missing_ok=True)
            return False

    @contextmanager
    def read(self, key: str) -> Iterator[Contents]:
        """Open the group; its checksum is verified the first time, and after every change."""
        path = self.file(key)
        with open_regular(path) as file:
            about = os.fstat(file.fileno())
            version = (about.st_ino, about.st_size, about.st_mtime_ns)
            if self._verified.get(key) != version:
                verify_open(file, path)
            with hdf5(file, path) as content:
                if content.attrs.get(KEY) != key:
                    raise DamagedFile(path, "the file of another group", RESUME)
                self._verified[key] = version

                def array(name: str) -> Any:
                    found = held(content, name, path)
                    return found.asstr() if found.dtype.kind == "O" else found

                yield Contents(content.attrs, array)

    def write(self, key: str, dataset: xr.Dataset) -> None:
        make_folder(self.file(key).parent, inside=self.path)
        save(dataset.assign_attrs({KEY: key}), self.file(key), inside=self.path)

    def lock(self, key: str) -> bool:
        """Lock a group by a file in `running`; return False if another driver has.

        The kernel frees the lock when its owner ends, however that happens; the file that is left
        behind means nothing. fcntl is POSIX: attnlab runs on Linux and macOS.
        """
        folder = make_folder(self.path / "running", inside=self.path)
        path = refuse_links(folder / key, inside=self.path)
        flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o666)
        if not _lock(descriptor):
            os.close(descriptor)
            return False
        self._held[key] = descriptor
        return True

    def release(self, key: str) -> None:
        """Unlock a group. Another driver may hold the old file open and lock it after this, which
        is why a driver looks for a group's result once it has locked it."""
        (self.path / "running" / key).unlink(missing_ok=True)
        os.close(self._held.pop(key))

    def release_all(self) -> None:
        """Unlock all groups that are locked here."""
        for key in list(self._held):
            self.release(key)

    def is_locked(self, key: str) -> bool:
        """Check whether a living driver has locked the group."""
        try:
            descriptor = os.open(self.path / "running" / key, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        try:
            return not _lock(descriptor)
        finally:
            os.close(descriptor)

    def note(self, key: str, state: str, **facts: Any) -> None:
        self.ledger.note(key, state, **facts)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
