"""The ledger: a line for everything that happens to a group, to be read by people and by status."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO


class Ledger:
    """A file of JSON lines that several drivers append to.

    It is not what a sweep goes by: a group is done when its file is there and whole. A line that
    a killed driver left unfinished is passed over.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, key: str, state: str, **facts: Any) -> None:
        """Add a line: the group is `running`, `done`, `failed` or `damaged`, and the facts."""
        entry = {
            "group": key,
            "state": state,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "by": f"{socket.gethostname()}:{os.getpid()}",
            **facts,
        }
        line = json.dumps(entry).encode() + b"\n"
        with open(self.path, "ab+", buffering=0) as file:
            file.write(line if _ends_a_line(file) else b"\n" + line)

    def entries(self) -> Iterator[dict[str, Any]]:
        """The lines, from the first on."""
        with suppress(FileNotFoundError), open(self.path, "rb") as file:
            for line in file:
                with suppress(ValueError):
                    yield json.loads(line)


def _ends_a_line(file: BinaryIO | Any) -> bool:
    if file.seek(0, os.SEEK_END) == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")
