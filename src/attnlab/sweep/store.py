"""Stores: where groups are kept, in memory or in a folder that several drivers may share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import xarray as xr

from attnlab.results import DamagedFile, save, verify
from attnlab.sweep.claims import Claims
from attnlab.sweep.ledger import Ledger


@dataclass(frozen=True)
class Contents:
    """A group in a store: its attributes, and its arrays by name, to be read in slices."""

    attrs: Mapping[str, Any]
    array: Callable[[str], Any]


class Store(Protocol):
    """Where groups are kept by key."""

    def holds(self, key: str) -> bool:
        """Whether the group is there, whole."""

    def read(self, key: str) -> AbstractContextManager[Contents]:
        """The group, open for as long as the context lasts."""

    def write(self, key: str, dataset: xr.Dataset) -> None:
        """Keep the group."""

    def claim(self, key: str) -> bool:
        """Take the group on, unless another driver has."""

    def release(self, key: str) -> None:
        """Give the group up, done or not."""

    def release_all(self) -> None:
        """Give up what is still claimed."""

    def note(self, key: str, state: str, **facts: Any) -> None:
        """Say in the ledger how the group fares."""


class Memory:
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

    def claim(self, key: str) -> bool:
        return True

    def release(self, key: str) -> None: ...

    def release_all(self) -> None: ...

    def note(self, key: str, state: str, **facts: Any) -> None: ...


class Folder:
    """Keeps each group in a file of its own, `groups/KEY.nc`, written atomically and sealed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger = Ledger(path / "ledger.jsonl")
        self.claims = Claims(path / "running")
        self._verified: set[str] = set()

    def file(self, key: str) -> Path:
        return self.path / "groups" / f"{key}.nc"

    def holds(self, key: str) -> bool:
        """Whether the file is there and as it was written; a damaged one is removed."""
        try:
            verify(self.file(key))
        except FileNotFoundError:
            return False
        except DamagedFile as problem:
            self.note(key, "damaged", cause=str(problem))
            self.file(key).unlink(missing_ok=True)
            return False
        self._verified.add(key)
        return True

    @contextmanager
    def read(self, key: str) -> Iterator[Contents]:
        """The group, whose checksum is verified the first time."""
        import h5py  # the netCDF libraries on top of it take a hundred times as long to open a file

        if key not in self._verified:
            verify(self.file(key))
            self._verified.add(key)
        with h5py.File(self.file(key), "r") as file:

            def array(name: str) -> Any:
                found = file[name]
                return found.asstr() if h5py.check_string_dtype(found.dtype) else found

            yield Contents(file.attrs, array)

    def write(self, key: str, dataset: xr.Dataset) -> None:
        self.file(key).parent.mkdir(parents=True, exist_ok=True)
        save(dataset, self.file(key))
        self._verified.add(key)

    def claim(self, key: str) -> bool:
        return self.claims.take(key)

    def release(self, key: str) -> None:
        self.claims.release(key)

    def release_all(self) -> None:
        self.claims.release_all()

    def note(self, key: str, state: str, **facts: Any) -> None:
        self.ledger.note(key, state, **facts)
