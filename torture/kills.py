"""Kills: long verbs that are signalled at random moments, and then run to their end."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from torture.campaign import RIGHT, Campaign, Case, Verdict, bad
from torture.process import Process, Watch
from torture.verbs import VERBS, Runner, Verb, partly, whole_files, wrong_end

# A signal, and the exit codes that are right after it, besides 0 where the verb was done anyway.
SIGNALS = {"KILL": (-9,), "TERM": (-15, 130, 143), "INT": (-2, 130), "STOP": ()}
WHOM = ("driver", "driver", "all", "worker")
# Of processor time, in which a verb has to have stopped; and to its end.
STOP_SECONDS, RAY_STOP_SECONDS, MOST_SECONDS = 5.0, 15.0, 120.0
PATIENCE = 10.0  # seconds of processor time in which what a verb started has to end after it


class Kills(Campaign):
    name, share, cpu_seconds = "kills", 0.4, None  # it watches what it starts itself

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.runner = Runner(folder)

    def cases(self, draw: Random) -> Iterator[Case]:
        names, weights = zip(*((name, verb.weight) for name, verb in VERBS.items()), strict=True)
        while True:
            (name,) = draw.choices(names, weights)
            kills = [
                {
                    "signal": draw.choice(list(SIGNALS)),
                    "whom": draw.choice(WHOM),
                    "at": draw.uniform(0, 1.1) * 0.7**before,
                    "cold": draw.random() < 0.05,
                }
                for before in range(draw.choice((1, 3, 6)) if VERBS[name].resumes else 1)
            ]
            yield Case(name, {"kills": kills})

    def judge(self, case: Case) -> Verdict:
        verb, runner = VERBS[case.target], self.runner
        try:
            seconds, expected = runner.undisturbed(case.target)
        except RuntimeError as error:
            return bad(str(error))
        out, self.met = runner.new_folder(), 0
        for kill in case.given["kills"]:
            if problem := self._kill(verb, out, kill, seconds):
                return bad(f"{problem} ({kill})")
        kept = whole_files(out)
        if not verb.resumes:
            with suppress(FileNotFoundError):
                if not partly(verb.read_back(out), expected):
                    return bad("what was left is no part of what should come out")
        if problem := runner.finish(verb, out, expected):
            return bad(problem)
        if verb.resumes and not kept.items() <= whole_files(out).items():
            return bad("results that were there were made again")
        if verb.resumes and (left := [path.name for path in out.rglob(".attnlab-*")]):
            return bad(f"left behind: {left}")
        shutil.rmtree(out)
        return replace(RIGHT, tries=self.met)

    def _kill(self, verb: Verb, out: Path, kill: dict[str, Any], seconds: float) -> str:
        """Start, signal, and see how it ends; what is wrong with that, if anything."""
        longer = kill["signal"] != "STOP"
        processes = self.runner.start(verb, out, cold=kill["cold"], longer=longer)
        first, *others = processes
        try:
            ended = first.wait(seconds=kill["at"] * (seconds + 2.5 * kill["cold"]))
            if ended is None:
                self.met += 1  # and was not done before
                most = MOST_SECONDS
                # a driver that loses a worker goes on; asked itself, it has to stop
                if _signal(first, kill) and kill["signal"] in ("INT", "TERM"):
                    most = RAY_STOP_SECONDS if "ray" in verb.argv else STOP_SECONDS
                ended = first.wait(most=most)
            assert ended is not None
            if problem := wrong_end(ended, (*verb.codes, *SIGNALS[kill["signal"]])):
                return problem
            for other in others:
                if (rest := other.wait()) and (problem := wrong_end(rest)):
                    return f"the other driver: {problem}"
            return next((left for process in processes if (left := _left_after(process))), "")
        finally:
            for process in processes:
                process.family.kill()


def _signal(process: Process, kill: dict[str, Any]) -> bool:
    """Signal the driver, one of its workers if it has any, or all of them, as a terminal does.

    Whether the driver itself was signalled.
    """
    workers = [pid for pid in process.family.members() if pid != process.pid]
    chosen = [process.pid]
    if kill["whom"] == "all":
        chosen += workers
    elif kill["whom"] == "worker" and workers:
        chosen = workers[-1:]
    numbers = [getattr(signal, f"SIG{kill['signal']}")]
    if kill["signal"] == "STOP":
        numbers.append(signal.SIGCONT)
    for number in numbers:
        for pid in chosen:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(0.3 * (number == signal.SIGSTOP))
    return process.pid in chosen


def _left_after(process: Process) -> str:
    """What is still there of a verb that has ended, after a while."""
    watch = Watch(process.family, PATIENCE)
    while members := process.family.members():
        if problem := watch.problem():
            words = [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in members]
            return f"left processes behind ({problem}): {'; '.join(line[:80] for line in words)}"
        time.sleep(0.1)
    return ""
