"""Processes: verbs that are started by a fork, everything that they start, and whether they hang.

A fork of a process that has imported JAX and not used it yet starts a verb in milliseconds instead
of seconds. The child ends as an interpreter ends, so that what goes wrong then is seen as well.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

HANG_SECONDS = 30.0  # in which nothing runs and next to nothing is computed
HANG_SHARE = 0.03  # of a core, which is less than what waiting in a loop takes
MARK = "ATTNLAB_TORTURE"
TICK = 1 / os.sysconf("SC_CLK_TCK")
# What Ray starts besides workers: it never sleeps.
DAEMONS = ("gcs_server", "raylet", "log_monitor", "monitor.py", "dashboard", "runtime_env", "agent")


@dataclass(frozen=True)
class Family:
    """A process and all that it started: its group, its session, and whatever has its mark."""

    pid: int
    mark: str = ""

    def members(self) -> list[int]:
        found = []
        mark = f"{MARK}={self.mark}".encode()
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                state, _, group, session, *_ = _stat(f"/proc/{name}/stat")
                ours = str(self.pid) in (group, session) or (
                    self.mark and mark in Path(f"/proc/{name}/environ").read_bytes()
                )
                if ours and state != "Z":
                    found.append(int(name))
        return found

    def seconds(self) -> float:
        """The processor time of all of them, and of those among them that have ended."""
        total = 0
        for pid in {self.pid, *self.members()}:
            with suppress(OSError):
                total += sum(map(int, _stat(f"/proc/{pid}/stat")[11:15]))
        return total * TICK

    def is_busy(self) -> bool:
        """Whether any thread runs, or waits for a processor or a disk."""
        for pid in self.members():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text()
                if not any(name in words for name in DAEMONS):
                    threads = os.listdir(f"/proc/{pid}/task")
                    if any(_stat(f"/proc/{pid}/task/{t}/stat")[0] in "RD" for t in threads):
                        return True
        return False

    def kill(self) -> None:
        for pid in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Watch:
    """Tells work from a hang: by what was computed, not by how long it took."""

    def __init__(self, family: Family, most: float | None) -> None:
        self.family, self.most = family, most
        self.begun = self.seen = 0.0 if most is None else family.seconds()
        self.since = time.monotonic()

    def problem(self) -> str:
        """Why to give it up, if that is so."""
        if self.most is None:
            return ""
        used, now = self.family.seconds(), time.monotonic()
        if used - self.begun > self.most:
            return f"went on for {used - self.begun:.0f} s of processor time"
        if self.family.is_busy() or used - self.seen > HANG_SHARE * (now - self.since):
            self.seen, self.since = used, now
        elif now - self.since > HANG_SECONDS:
            return f"hung: nothing happened for {now - self.since:.0f} s"
        return ""


@dataclass(frozen=True)
class Ended:
    """How a verb ended: its exit code, or minus the signal that ended it, and what it said.

    seconds: of processor time while it was waited for. problem: why it was given up.
    """

    code: int
    out: str
    err: str
    seconds: float
    problem: str = ""


class Process:
    """A verb at work."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid, self.folder, self.family = pid, folder, Family(pid, str(folder))

    def wait(self, *, seconds: float | None = None, most: float = 120.0) -> Ended | None:
        """How it ends; None where it has not after so many seconds.

        most: seconds of processor time after which it is given up.
        """
        watch, now = Watch(self.family, most), time.monotonic()
        until, next_check = now + (seconds or 0), now + 0.5
        while not os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            now = time.monotonic()
            if seconds is not None and now >= until:
                return None
            if now > next_check:
                next_check = now + 0.5
                if problem := watch.problem():
                    self.family.kill()
                    return self._ended(watch, problem)
            time.sleep(0.005)
        return self._ended(watch)

    def _ended(self, watch: Watch, problem: str = "") -> Ended:
        used = self.family.seconds() - watch.begun
        _, status = os.waitpid(self.pid, 0)
        out, err = ((self.folder / name).read_text(errors="replace") for name in ("out", "err"))
        return Ended(os.waitstatus_to_exitcode(status), out, err, used, problem)


def start(
    argv: Sequence[str],
    folder: Path,
    *,
    cold: bool = False,
    first: Callable[[], None] | None = None,
    command: Sequence[str] = ("-m", "attnlab"),
) -> Process:
    """Start `attnlab ARGV`; what it says goes to files in `folder`.

    cold: as a new interpreter, with `command`. first: what the child does before, where it is not.
    """
    out, err = (
        os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for name in ("out", "err")
    )
    none = os.open(os.devnull, os.O_RDONLY)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setpgid(0, 0)
            for number, file in enumerate((none, out, err)):
                os.dup2(file, number)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.environ[MARK] = str(folder)
            if cold:
                os.execv(sys.executable, [sys.executable, *command, *argv])
            code = _run(argv, first)
        finally:
            ctypes.pythonapi.Py_Exit(code)
    for file in (none, out, err):
        os.close(file)
    return Process(pid, folder)


def _run(argv: Sequence[str], first: Callable[[], None] | None) -> int:
    """What `python -m attnlab` does, and what an interpreter does at the end of it."""
    try:
        from attnlab.cli import main

        sys.argv = ["attnlab", *argv]
        if first is not None:
            first()
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _stat(path: str) -> list[str]:
    """The fields of a process or thread after its name: its state is the first."""
    return Path(path).read_text().rpartition(")")[2].split()
