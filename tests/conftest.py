"""What keeps the suite short: workers share compiled programs, and tests that use the same runs
or shapes go to the same worker."""

import gc
import os
import shutil
import tempfile
from pathlib import PurePosixPath
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

CACHE = pytest.StashKey[str]()
# Folders whose tests share runs that are kept in memory; elsewhere a file is what goes together.
TOGETHER = {"audit"}
# What takes longest begins first, so that no worker is left with it at the end.
FIRST = ("audit", "test_simulate", "test_extended", "test_browser", "test_studies", "test_cluster")


def pytest_configure(config: pytest.Config) -> None:
    # Tracing leaves much behind that lives on, and looking through it again and again takes time.
    gc.set_threshold(200_000, 50, 100)
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist inherits the environment
        return
    config.stash[CACHE] = tempfile.mkdtemp(prefix="attnlab-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = config.stash[CACHE]
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    # Most programs here run for less time than optimising them would take. With 0 in the
    # environment the tests run the programs that users run.
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    os.environ["EQX_ON_ERROR"] = "nan"  # as the command line sets it, so that flows are kept too


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def turn(item: pytest.Item) -> int:
        names = [name for name in FIRST if name in (item.path.parent.name, item.path.stem)]
        return FIRST.index(names[0]) if names else len(FIRST)

    items.sort(key=turn)


class InGroups(LoadScopeScheduling):
    """Gives a worker all tests of a file, or of a folder of TOGETHER. (The groups that
    pytest-xdist itself knows of are lost with the node ids of pytest 9.)"""

    def _split_scope(self, nodeid: str) -> str:
        path = PurePosixPath(nodeid.partition("::")[0])
        return path.parent.name if path.parent.name in TOGETHER else str(path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InGroups:
    config.option.loadscopereorder = False  # the order is that of FIRST, not of many tests first
    return InGroups(config, log)


def pytest_unconfigure(config: pytest.Config) -> None:
    if CACHE in config.stash:
        shutil.rmtree(config.stash[CACHE], ignore_errors=True)
