"""Disks and clocks: full, read-only, files that go away, old checkpoints, time that jumps."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from attnlab.files.folders import LIST
from torture.campaign import REFUSED, RIGHT, Campaign, Case, Verdict, bad, clean_words
from torture.process import Ended
from torture.verbs import VERBS, Runner, whole_files, wrong_end

WRITING = (
    "sweep",
    "sweep",
    "sweep, two processes",
    "simulate",
    "simulate, plot",
    "text train",
    "text classes",
    "reproduce",
)
KINDS = ("full", "full", "read-only", "removed", "clock")
CHECKPOINTS = ("before", "other", "step", "missing", "shape", "spec")
REFUSING = (0, 1, 2)  # exit codes of a verb that could not go on, or could after all
Clock = Callable[[], float]


class Disks(Campaign):
    name, share, cpu_seconds = "disks", 0.1, None  # it watches what it starts itself

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.runner = Runner(folder)
        self.mounts = _can_mount(self.runner.new_folder())

    def cases(self, draw: Random) -> Iterator[Case]:
        while True:
            given: dict[str, Any] = {"at": draw.random(), "seed": draw.randrange(10**6)}
            if draw.random() < 0.15:
                given |= {"kind": "checkpoint", "how": draw.choice(CHECKPOINTS)}
                yield Case("text train", given)
            else:
                yield Case(draw.choice(WRITING), given | {"kind": draw.choice(KINDS)})

    def judge(self, case: Case) -> Verdict:
        self.verb = VERBS[case.target]
        out = self.runner.new_folder()
        kinds = {
            "full": self._full,
            "read-only": self._read_only,
            "removed": self._removed,
            "clock": self._clock,
            "checkpoint": self._checkpoint,
        }
        try:
            self.seconds, self.expected = self.runner.undisturbed(case.target)
            found = kinds[case.given["kind"]](out, case.given)
            if found.outcome != "bad" and (
                problem := self.runner.finish(self.verb, out, self.expected)
            ):
                return bad(problem)
            if left := _leftovers(out):
                return bad(f"left behind: {left}")
        except RuntimeError as error:
            return bad(str(error))
        finally:
            if os.path.ismount(out):
                subprocess.run(["umount", "-l", out], check=True)
            shutil.rmtree(out)
        return found

    def _full(self, out: Path, given: dict[str, Any]) -> Verdict:
        """A disk with room for a part of what is written."""
        if self.mounts:
            blocks = 1 + int(given["at"] * 40)
            _mount(out, f"size={blocks * 4096},nr_inodes={20 + blocks}")
            found = self._ended_well(self.runner.run(self.verb, out), out)
            _mount(out, "remount,size=100m,nr_inodes=10000")
            return found
        most = int(given["at"] * 100_000)
        limit = (resource.RLIMIT_FSIZE, (most, most))
        run = self.runner.run(self.verb, out, first=lambda: resource.setrlimit(*limit))
        return self._ended_well(run, out)

    def _read_only(self, out: Path, given: dict[str, Any]) -> Verdict:
        """A disk that cannot be written to any more."""
        if self.mounts:
            _mount(out, "size=100m")
        self._begin(out, given["at"])
        _mount(out, "remount,ro") if self.mounts else _permit(out, 0o555)
        found = self._ended_well(self.runner.run(self.verb, out), out, read_only=True)
        _mount(out, "remount,rw") if self.mounts else _permit(out, 0o755)
        return found

    def _removed(self, out: Path, given: dict[str, Any]) -> Verdict:
        """Files and folders that go away while the verb is at work."""
        draw = Random(given["seed"])
        processes = self.runner.start(self.verb, out)
        for _ in range(draw.choice((1, 3, 10))):
            time.sleep(draw.uniform(0, self.seconds / 3))
            # without the list of its files attnlab takes them for somebody else's
            kept = {found for path in out.rglob(LIST) for found in (path, path.parent)}
            if there := sorted(path for path in out.rglob("*") if path not in kept):
                chosen = draw.choice(there)
                shutil.rmtree(chosen, ignore_errors=True)
                chosen.unlink(missing_ok=True)
        ended = [each for process in processes if (each := process.wait())]
        return self._ended_well(ended, out)

    def _clock(self, out: Path, given: dict[str, Any]) -> Verdict:
        """Clocks that jump while it runs, and files from another time."""
        self._begin(out, given["at"])
        draw = Random(given["seed"])
        for path in out.rglob("*"):
            with suppress(OSError):
                os.utime(path, (draw.choice((0, 1, 4e9, 2**33)),) * 2)
        for ended in self.runner.run(self.verb, out, first=lambda: _jump_clocks(draw)):
            if problem := wrong_end(ended, self.verb.codes):
                return bad(problem)
        return RIGHT

    def _checkpoint(self, out: Path, given: dict[str, Any]) -> Verdict:
        """A checkpoint from before, of another training, or one that says what cannot be."""
        from attnlab.files.checkpoint import read_checkpoint, write_checkpoint

        self._begin(out, given["at"], signal.SIGINT)
        path, how = out / "run" / "checkpoint.safetensors", given["how"]
        if not path.exists():
            return RIGHT
        before = path.read_bytes()
        if problem := self.runner.finish(self.verb, out, self.expected):
            return bad(problem)
        path.write_bytes(before)
        path.with_name("result.nc").unlink()  # else a training that is done has its result
        kept = read_checkpoint(path)
        _, *rest = kept.arrays
        wide = next(name for name, array in kept.arrays.items() if array.shape[-1:] > (1,))
        changed = {
            "step": replace(kept, step=10**9),
            "missing": replace(kept, arrays={name: kept.arrays[name] for name in rest}),
            "shape": replace(kept, arrays={**kept.arrays, wide: kept.arrays[wide][..., :1]}),
            "spec": replace(kept, spec={**kept.spec, "rates": "fast"}),
        }
        if how in changed:
            write_checkpoint(path, changed[how])
        more = ("--clip", "9") if how == "other" else ()
        verb = replace(self.verb, argv=self.verb.argv + more)
        found = self._ended_well(self.runner.run(verb, out), out)
        path.write_bytes(before)
        if how != "before" and found == RIGHT:
            return bad(f"went on from a checkpoint that is not its own: {how}")
        return found

    def _begin(self, out: Path, at: float, number: int = signal.SIGKILL) -> None:
        """Run a part of it."""
        for process in self.runner.start(self.verb, out):
            if process.wait(seconds=at * self.seconds) is None:
                os.kill(process.pid, number)
                process.wait()
                process.family.kill()

    def _ended_well(self, ended: list[Ended], out: Path, read_only: bool = False) -> Verdict:
        """Whether it said what is wrong and where, and left nothing half-done."""
        if problem := next(filter(None, (wrong_end(each, REFUSING) for each in ended)), ""):
            return bad(problem)
        failed = [each for each in ended if each.code not in self.verb.codes]
        for each in failed:
            if str(out) not in each.err.replace("\n", ""):
                return bad(f"names no file: {each.err}")
            if clean_words(each.err).outcome == "bad":
                return clean_words(each.err)
        if not read_only and (left := _leftovers(out)):
            return bad(f"left behind: {left}")
        whole_files(out)
        return REFUSED if failed else RIGHT


def _leftovers(out: Path) -> list[str]:
    """Return the temporary files; those on a read-only disk go with the next run."""
    return [path.name for path in out.rglob(".*") if path.is_file()]


def _mount(folder: Path, how: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", how, "attnlab-torture", str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def _can_mount(folder: Path) -> bool:
    try:
        _mount(folder, "size=4096")
    except (OSError, subprocess.CalledProcessError):
        return False
    subprocess.run(["umount", folder], check=True)
    return True


def _permit(folder: Path, mode: int) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(mode)


def _jump_clocks(draw: Random) -> None:
    """Let the clock of the day go to and fro, and the others leap ahead, as after a sleep."""
    for name, jumps in (("time", (-1e8, 1e8)), ("monotonic", (1e5,)), ("perf_counter", (1e5,))):
        setattr(time, name, _jumping(getattr(time, name), jumps, draw))


def _jumping(real: Clock, jumps: tuple[float, ...], draw: Random) -> Clock:
    offset = 0.0

    def clock() -> float:
        nonlocal offset
        offset += draw.choice(jumps) * (draw.random() < 0.1)
        return real() + offset

    return clock
