"""One compilation cache for the whole run: workers and command-line tests share programs."""

import os
import shutil
import tempfile

import pytest

CACHE = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist inherits the environment
        return
    config.stash[CACHE] = tempfile.mkdtemp(prefix="attnlab-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = config.stash[CACHE]
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    os.environ["EQX_ON_ERROR"] = "nan"  # as the command line sets it, so that flows are kept too


def pytest_unconfigure(config: pytest.Config) -> None:
    if CACHE in config.stash:
        shutil.rmtree(config.stash[CACHE], ignore_errors=True)
