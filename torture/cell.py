"""Cells: a campaign in a process of its own, which may crash, hang or eat memory without harm."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Generator
from contextlib import suppress
from itertools import count, islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from torture.campaign import Campaign, Case, Verdict, bad, case_from, written
from torture.process import Family, Watch

POLL_SECONDS = 0.2
DIED = "its process"

Tried = Generator[tuple[Case, Verdict], None, None]


def try_cases(campaign: type[Campaign], folder: Path, seed: str) -> Tried:
    """Try one case after the other, in a new cell where the last one died of a case."""
    tried = 0
    for number in count():
        for case, verdict in _cell(campaign, folder / str(number), seed, tried):
            tried += 1
            yield case, verdict
            if verdict.words.startswith(DIED):
                break
        else:
            return


def try_one(campaign: type[Campaign], folder: Path, case: Case) -> Verdict:
    """Try a case again."""
    one = type(campaign.__name__, (campaign,), {"cases": lambda self, draw: iter([case])})
    ((_, verdict),) = _cell(one, folder, "", 0)
    return verdict


def _cell(campaign: type[Campaign], folder: Path, seed: str, skip: int) -> Tried:
    folder.mkdir(parents=True)
    ours, theirs = Pipe(duplex=False)
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        ours.close()
        _inside(campaign, folder, seed, skip, theirs)
    theirs.close()
    family = Family(pid, str(folder))
    try:
        while message := _receive(ours):
            case, watch = case_from(message), None
            while not ours.poll(POLL_SECONDS):
                watch = watch or Watch(family, campaign.cpu_seconds)
                if problem := watch.problem():
                    yield case, bad(f"{DIED} {problem}")
                    return
            if not (message := _receive(ours)):
                _, status = os.waitpid(pid, 0)
                code = os.waitstatus_to_exitcode(status)
                how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                yield case, bad(f"{DIED} ended with {how}")
                return
            yield case, Verdict(**message)
        if os.waitpid(pid, 0)[1]:
            raise RuntimeError(f"{campaign.name}: could not be begun")
    finally:
        ours.close()
        family.kill()
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _receive(sender: Connection) -> dict[str, Any]:
    """The next message; nothing where the sender is gone."""
    try:
        message: dict[str, Any] = json.loads(sender.recv_bytes())
    except EOFError:
        return {}
    return message


def _inside(
    campaign: type[Campaign], folder: Path, seed: str, skip: int, parent: Connection
) -> None:
    code = 1
    try:
        os.setsid()  # so that all that it starts can be found
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        made = campaign(folder)
        if campaign.memory is not None:
            most = _address_space() + campaign.memory
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        for case in islice(made.cases(Random(seed)), skip, None):
            parent.send_bytes(json.dumps(written(case)).encode())
            try:
                verdict = made.judge(case)
            except Exception as problem:  # in looking at what was left, say
                verdict = bad(f"{type(problem).__name__}: {problem}")
            parent.send_bytes(json.dumps(vars(verdict)).encode())
        code = 0
    except BrokenPipeError:
        pass  # the time is over
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
