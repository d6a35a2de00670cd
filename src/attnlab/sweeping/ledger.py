"""The ledger: a line for each event of a group, for people and for `status`."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from attnlab.files.folders import refuse_links
from attnlab.files.regular import open_regular
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
