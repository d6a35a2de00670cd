"""Drivers and workers that are killed, and drivers that meet on one directory."""

import errno
import multiprocessing
import os
import re
import signal
import struct
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import tiny_sweep
import xarray as xr
from tiny_sweep import in_groups, tiny

from attnlab.sweeping import Local, Stopped, executor, open_sweep, run_in, status
from attnlab.sweeping.driver import run_plan
from attnlab.sweeping.executor import attempt
from attnlab.sweeping.index import whole
from attnlab.sweeping.store import Folder, Memory

SUPPORT = Path(tiny_sweep.__file__).parent
PLAN = in_groups(tiny())
GATE = "gate"


@pytest.fixture
def start(tmp_path):
    """A driver in a process of its own: does so many groups, and sits on the next until let go."""
    path = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    drivers = []

    def start(folder, groups):
        command = [sys.executable, str(SUPPORT / "drive_sweep.py"), folder, groups, tmp_path / GATE]
        drivers.append(
            subprocess.Popen(
                map(str, command),
                env={**os.environ, "PYTHONPATH": path},
                text=True,
                stdout=subprocess.PIPE,
            )
        )
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.kill()
        driver.communicate()


def wait_until(true, *, seconds=600):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def counts(folder):
    """Groups done, running and waiting, once there is a sweep."""
    if not (folder / "plan.json").exists():
        return None
    found = status(folder)
    return found.done, found.running, found.waiting


def files(folder):
    """The groups that are there, and when they were written."""
    found = (folder / "groups").glob("[!.]*.nc")
    return {path.name: path.stat().st_mtime_ns for path in found}


@pytest.fixture(scope="module")
def expected():
    store = Memory()
    return whole(run_plan(PLAN, store).index, store.read).load()


@pytest.mark.slow
def test_a_killed_driver_is_resumed(tmp_path, expected, start):
    folder = tmp_path / "sweep"
    driver = start(folder, 2)
    wait_until(lambda: counts(folder) == (2, 1, 1))  # from another process, while it runs
    assert not status(folder).complete
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    before = files(folder)
    assert counts(folder) == (2, 0, 2)
    with pytest.raises(ValueError, match="2 of 4 groups are done"):
        open_sweep(folder)
    ran = run_in(folder, PLAN)
    assert (ran.kept, ran.computed) == (2, 2)
    assert before.items() <= files(folder).items()
    xr.testing.assert_identical(open_sweep(folder).load().drop_attrs(), expected)


def when_waiting(do):
    """A report that does something when the driver has nothing left but to wait for others."""
    return lambda runs, note: do() if "waiting for 1 groups" in note else None


@pytest.mark.slow
def test_two_drivers_share_the_work_and_one_takes_over_from_a_dead_one(tmp_path, expected, start):
    folder = tmp_path / "sweep"
    first = start(folder, 0)  # has a group, and sits on it
    wait_until(lambda: counts(folder) == (0, 1, 3))
    ran = run_in(folder, PLAN, report=when_waiting((tmp_path / GATE).touch))
    assert ran.computed == 3
    assert first.wait() == 0
    assert int(first.stdout.read()) == 1
    xr.testing.assert_identical(open_sweep(folder).load().drop_attrs(), expected)
    entries = Folder(folder).ledger.read()[0]
    assert len({entry["by"] for entry in entries}) == 2
    assert sorted(entry["state"] for entry in entries) == ["done"] * 4 + ["running"] * 4

    (tmp_path / GATE).unlink()
    (folder / "groups" / f"{PLAN.groups[0].key}.nc").unlink()
    asleep = start(folder, 0)  # locks the missing group and sits on it
    wait_until(lambda: status(folder).running)
    ran = run_in(folder, PLAN, report=when_waiting(asleep.kill))  # waits for it, then takes over
    assert asleep.wait() == -signal.SIGKILL
    assert (ran.kept, ran.computed) == (3, 1)
    assert status(folder).complete


def troubled(group, tell=None, expected=None):
    """The group's worker has the trouble that its mark says, once."""
    mark = Path(os.environ["ATTNLAB_TEST_MARKS"]) / group.key
    trouble = mark.read_text() if mark.exists() else ""
    mark.unlink(missing_ok=True)
    if trouble == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    elif trouble:
        real = Connection._send_bytes

        def send(pipe, answer):
            Connection._send_bytes = real
            message = struct.pack("!i", len(answer)) + bytes(answer)
            os.write(pipe.fileno(), message[:100])
            os.kill(os.getpid(), {"dies within": signal.SIGKILL, "stops": signal.SIGSTOP}[trouble])
            os.write(pipe.fileno(), message[100:])

        Connection._send_bytes = send
    return attempt(group, tell, expected)


class Onlooker(Memory):
    """Kills the worker that is idle after the second group, and lets the stopped one go at last."""

    def __init__(self):
        super().__init__()
        self.order = []
        self.others = multiprocessing.active_children()  # of earlier tests, where they end late

    def workers(self):
        there = [child for child in multiprocessing.active_children() if child not in self.others]
        return {child.pid: child for child in there}

    def write(self, key, dataset):
        super().write(key, dataset)
        self.order.append([group.key for group in PLAN.groups].index(key))
        if len(self.order) > 3:
            return
        children = self.workers()
        wait_until(lambda: "T" in map(state, children))  # it has half of its answer written
        (stopped,) = [pid for pid in children if state(pid) == "T"]
        if self.order == [1]:
            (idle,) = children.keys() - {stopped}
            children[idle].kill()
            children[idle].join()
        elif len(self.order) == 3:
            os.kill(stopped, signal.SIGCONT)


@pytest.mark.slow
def test_workers_that_stop_or_die_do_not_change_the_result(tmp_path, expected, monkeypatch):
    monkeypatch.setenv("ATTNLAB_TEST_MARKS", str(tmp_path))
    monkeypatch.setattr(executor, "attempt", troubled)
    for group, trouble in zip(PLAN.groups, ("stops", "dies", "dies within"), strict=False):
        (tmp_path / group.key).write_text(trouble)
    onlooker = Onlooker()
    index = run_plan(PLAN, onlooker, executor=Local(workers=2)).index
    assert onlooker.order == [1, 2, 3, 0]  # nobody waited for the one that was stopped
    assert index.failed_runs == 0
    xr.testing.assert_identical(whole(index, onlooker.read).load(), expected)
    assert not onlooker.workers()


def always_die(group, tell=None, expected=None):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_group_that_always_kills_its_worker_fails(monkeypatch):
    monkeypatch.setattr(executor, "attempt", always_die)
    monkeypatch.setattr(executor, "RETRIES", 1)
    index = run_plan(in_groups(tiny(), 16), Memory(), executor=Local(workers=1)).index
    assert [group.cause for group in index.groups] == ["its worker died 2 times"]
    assert index.failed_runs == 16


def test_an_executor_is_closed_when_a_result_cannot_be_kept():
    class Full(Memory):
        def write(self, key, dataset):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class Closes:
        closed = False

        def run(self, groups, tell):
            try:
                yield from ((group, attempt(group)) for group in groups)
            finally:
                self.closed = True

    executor = Closes()
    with pytest.raises(Stopped, match="No space left") as stopped:
        run_plan(PLAN, Full(), executor=executor)
    assert executor.closed, stopped


def test_a_group_that_an_executor_loses_is_not_waited_for():
    class Loses:
        def run(self, groups, tell):
            next(groups)
            yield from ((group, attempt(group)) for group in groups)

    with pytest.raises(RuntimeError, match=f"lost them.*{PLAN.groups[0].key}"):
        run_plan(PLAN, Memory(), executor=Loses())


@pytest.mark.slow
def test_workers_do_not_outlive_a_killed_driver(tmp_path):
    code = (
        "import os, sys, time\n"
        "from attnlab.sweeping import executor\n"
        "def say_and_sleep(group):\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    executor.attempt = say_and_sleep\n"
        "    next(executor.Local(workers=1).run(iter(['group']), None))\n"
    )
    path = tmp_path / "driver.py"
    path.write_text(code)
    driver = subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True)
    worker = int(driver.stdout.readline())
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    wait_until(lambda: state(worker) == "Z")


def state(pid):
    """Of a process: T is stopped, Z is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


@pytest.mark.slow
def test_workers_ignore_the_terminals_ctrl_c(tmp_path):
    # in a process of its own: the first worker starts Python's resource tracker, which listens
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from pathlib import Path\n"
        "from attnlab.sweeping import executor\n"
        "if __name__ == '__main__':\n"
        "    with ThreadPoolExecutor(1) as thread:\n"
        "        worker = thread.submit(executor._Worker).result()\n"
        "    print(Path(f'/proc/{worker.process.pid}/status').read_text())\n"
        "    worker.end()\n"
    )
    path = tmp_path / "driver.py"
    path.write_text(code)
    facts = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    (blocked,) = re.findall(r"SigBlk:\t(.*)", facts.stdout)
    assert int(blocked, 16) >> (signal.SIGINT - 1) & 1
