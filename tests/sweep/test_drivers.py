"""Drivers and workers that are killed, and drivers that meet on one directory."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tiny_sweep
import xarray as xr
from tiny_sweep import in_groups, tiny

from attnlab.sweep import Local, open_sweep, run_in, status
from attnlab.sweep.executor import attempt
from attnlab.sweep.run import run_plan
from attnlab.sweep.store import Folder, Memory
from attnlab.sweep.whole import whole

SUPPORT = Path(tiny_sweep.__file__).parent
PLAN = in_groups(tiny())


def start(folder, seconds):
    """A driver in a process of its own, whose groups take so long."""
    command = [sys.executable, str(SUPPORT / "drive_sweep.py"), str(folder), str(seconds)]
    path = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    )


def wait_until(true, *, seconds=120):
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


def test_a_killed_driver_is_resumed(tmp_path, expected):
    driver = start(tmp_path, 1.0)
    wait_until(lambda: counts(tmp_path) == (2, 1, 1))  # from another process, while it runs
    assert not status(tmp_path).complete
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    before = files(tmp_path)
    assert counts(tmp_path) == (2, 0, 2)
    with pytest.raises(ValueError, match="2 of 4 groups are done"):
        open_sweep(tmp_path)
    ran = run_in(tmp_path, PLAN)
    assert (ran.kept, ran.computed) == (2, 2)
    assert before.items() <= files(tmp_path).items()
    xr.testing.assert_identical(open_sweep(tmp_path).load().drop_attrs(), expected)


def test_two_drivers_share_the_work_and_one_takes_over_from_a_dead_one(tmp_path, expected):
    first = start(tmp_path, 1.0)
    wait_until(lambda: status(tmp_path).running if (tmp_path / "plan.json").exists() else 0)
    second = start(tmp_path, 0.2)
    # the second has its own groups done, and waits for the one of the first
    computed = int(second.communicate(timeout=120)[0])
    assert first.wait(timeout=120) == 0
    assert int(first.stdout.read()) + computed == 4
    xr.testing.assert_identical(open_sweep(tmp_path).load().drop_attrs(), expected)
    entries = list(Folder(tmp_path).ledger.entries())
    assert len({entry["by"] for entry in entries}) == 2
    assert sorted(entry["state"] for entry in entries) == ["done"] * 4 + ["running"] * 4

    (tmp_path / "groups" / f"{PLAN.groups[0].key}.nc").unlink()
    asleep = start(tmp_path, 600)  # claims the missing group and sits on it
    wait_until(lambda: status(tmp_path).running)
    threading.Timer(1.0, asleep.kill).start()
    ran = run_in(tmp_path, PLAN)  # waits for it, then takes over
    assert asleep.wait() == -signal.SIGKILL
    assert (ran.kept, ran.computed) == (3, 1)
    assert status(tmp_path).complete


def kill_once(group, tell=None, code=None):
    """Kill the worker when it is the first to have this group."""
    mark = Path(os.environ["ATTNLAB_TEST_MARK"]) / group.key
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return attempt(group, tell, code)


def test_spawned_workers_give_the_same_and_their_deaths_are_survived(
    tmp_path, expected, monkeypatch
):
    import attnlab.sweep.executor as module

    monkeypatch.setenv("ATTNLAB_TEST_MARK", str(tmp_path))
    monkeypatch.setattr(module, "attempt", kill_once)
    for group in PLAN.groups[1:]:
        (tmp_path / group.key).touch()  # only the first group kills
    store = Memory()
    index = run_plan(PLAN, store, executor=Local(workers=2)).index
    assert index.failed_runs == 0
    xr.testing.assert_identical(whole(index, store.read).load(), expected)


def always_die(group, tell=None, code=None):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_group_that_always_kills_its_worker_fails(monkeypatch):
    import attnlab.sweep.executor as module

    monkeypatch.setattr(module, "attempt", always_die)
    monkeypatch.setattr(module, "RETRIES", 1)
    index = run_plan(in_groups(tiny(), 16), Memory(), executor=Local(workers=1)).index
    assert [group.cause for group in index.groups] == ["its worker died 2 times"]
    assert index.failed_runs == 16


def test_workers_do_not_outlive_a_killed_driver(tmp_path):
    code = (
        "import os, sys, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "from attnlab.sweep.executor import become_worker\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessPoolExecutor(1, get_context('spawn'), initializer=become_worker)\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    time.sleep(600)\n"
    )
    path = tmp_path / "driver.py"
    path.write_text(code)
    driver = subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True)
    worker = int(driver.stdout.readline())
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    wait_until(lambda: not is_alive(worker), seconds=30)


def is_alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]
    except FileNotFoundError:
        return False
