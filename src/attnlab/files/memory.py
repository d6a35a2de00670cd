"""Memory of this machine, so that work that would not fit is refused before it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from attnlab.files.errors import InputError

CGROUPS = Path("/sys/fs/cgroup")
UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB")


@cache
def machine_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its container's."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([installed, *_limits(Path("/proc/self/cgroup"), CGROUPS)])


def size_words(count: float) -> str:
    """Return a number of bytes with a unit: 3.2 TB."""
    if count >= 1000 ** len(UNITS):
        return f"over 1000 {UNITS[-1]}"
    power = 0
    while count >= 999.5:  # which is 1000 in three digits
        count, power = count / 1000, power + 1
    return f"{count:.3g} {UNITS[power]}"


def require_memory(field: str, count: float, advice: str = "") -> None:
    """Refuse work that needs more bytes than the machine has; the message names `field`."""
    if count > machine_memory():
        raise InputError(
            f"{field}: would need {size_words(count)}; this machine has "
            f"{size_words(machine_memory())}" + (f"; {advice}" if advice else "")
        )


def _limits(membership: Path, root: Path) -> Iterator[int]:
    """Yield the limits of this process's control groups (Linux, versions 1 and 2)."""
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                base, name = root, "memory.max"
            elif "memory" in controllers.split(","):
                base, name = root / "memory", "memory.limit_in_bytes"
            else:
                continue
            # a container may show its own group as the root: each level that is there counts
            own = base / path.lstrip("/")
            for folder in (own, *own.parents):
                if folder.is_relative_to(base):
                    with suppress(OSError, ValueError):  # not there, or "max"
                        yield int((folder / name).read_text())
