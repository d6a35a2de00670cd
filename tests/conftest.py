"""What keeps the suite short: workers share compiled programs, and tests that use the same runs
or shapes go to the same worker."""

import os
import shutil
import tempfile

import pytest

CACHE = pytest.StashKey[str]()
# Folders whose tests share runs that are kept in memory; elsewhere a file is what goes together.
TOGETHER = {"audit"}
# What takes longest begins first, so that no worker is left with it at the end.
FIRST = ("audit", "test_simulate", "test_extended", "test_browser", "test_studies", "test_cluster")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist inherits the environment
        return
    config.stash[CACHE] = tempfile.mkdtemp(prefix="attnlab-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = config.stash[CACHE]
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    os.environ["EQX_ON_ERROR"] = "nan"  # as the command line sets it, so that flows are kept too


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def group(item: pytest.Item) -> str:
        folder = item.path.parent.name
        return folder if folder in TOGETHER else f"{folder}/{item.path.stem}"

    def turn(item: pytest.Item) -> int:
        names = [name for name in FIRST if name in (item.path.parent.name, item.path.stem)]
        return FIRST.index(names[0]) if names else len(FIRST)

    items.sort(key=turn)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))


def pytest_unconfigure(config: pytest.Config) -> None:
    if CACHE in config.stash:
        shutil.rmtree(config.stash[CACHE], ignore_errors=True)
