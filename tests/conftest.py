"""What keeps the suite short: compiled programs are kept for all workers and for the next time, and
tests that use the same runs or shapes go to the same worker."""

import contextlib
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

import chromium
import psutil
import pytest
from hypothesis import HealthCheck, settings
from packaging.version import Version
from small_classes import one_common, random_classes, syn_small  # noqa: F401 - fixtures
from xdist.scheduler import LoadScopeScheduling

# What people quote, and what is equal to the last bit, is tested with the programs that they run.
# Elsewhere most programs run for less time than it takes to optimise them.
AS_SHIPPED = {
    "formulas",
    "theory",
    "auditing",
    "docs",
    "test_simulate",
    "test_program",
    "test_published",
    "test_figures",
    "test_sweep",
}
CACHE_BYTES = 2**30
# What XLA's compiler frees stays in the pools of its threads: a worker grew to 12 GB, of which it
# used 3. It is given back to the system when the process has grown by this much.
GROWTH_BYTES, MOST_BYTES = 2**30, 2**31
COLLECT_EVERY = 8  # tests
NEEDED = ("browser", "torch", "ray")  # a fixture or a library, and the marker of those that use it
# What goes to one worker: tests that share runs which are kept in memory, or libraries that take
# long to import; elsewhere a file.
TOGETHER = {
    "auditing": "auditing",
    "observe": "observe",
    "test_observe": "observe",
    "test_examples": "observe",
}
# What takes longest begins first, so that no worker is left with it at the end.
FIRST = (
    "auditing",
    "test_site",
    "test_simulate",
    "test_printed",
    "test_models",
    "observe",
    "test_observe",
    "test_examples",
    "test_conformance",
    "test_cluster",
    "test_page",
    "test_torture",
    "test_program",
)


# How long an example takes is the machine's affair, not the test's.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    # Tracing leaves much behind that lives on, and looking through it again and again takes time.
    gc.set_threshold(200_000, 50, 100)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background; tests press Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist inherits the environment
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "attnlab" / "tests"
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache)
    _keep_newest(cache)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    # Options that the programs of runs have already: all others compile in half the time too.
    flags = "--xla_cpu_parallel_codegen_split_count=1"
    if Version(version("jax")) < Version("0.11"):  # a later one does not know it, and would abort
        flags += " --xla_cpu_use_fusion_emitters=false"
    os.environ["XLA_FLAGS"] = f"{flags} {os.environ.get('XLA_FLAGS', '')}".strip()
    # Of PyTorch and numpy: there is a worker for each core, and threads that wait keep it busy.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def _keep_newest(cache: Path) -> None:
    """Bound the cache, once: JAX would hold a lock and look at every file for each new program."""
    kept = 0
    for path in sorted(cache.glob("*"), key=lambda path: path.stat().st_mtime, reverse=True):
        kept += path.stat().st_size
        if kept > CACHE_BYTES:
            path.unlink()


@pytest.hookimpl(tryfirst=True)  # before the fixtures
def pytest_runtest_setup(item: pytest.Item) -> None:
    _optimize(_as_shipped(item))


def _as_shipped(item: pytest.Item) -> bool:
    return bool(AS_SHIPPED & {*item.path.parts, item.path.stem})


def _optimize(wanted: bool) -> None:
    """Compile from now on as users do, or quickly; so do processes that are started."""
    import jax

    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(not wanted))
    if jax.config.read("jax_disable_most_optimizations") is wanted:
        jax.config.update("jax_disable_most_optimizations", not wanted)
        jax.clear_caches()


_ended, _resident = 0, 0


def pytest_runtest_logfinish() -> None:
    """Collect what some tests left, and freeze the rest: the collector would go through all of it
    in each test that measures a model, which takes longer than the measurement. Where the process
    has grown, give freed memory back, and drop compiled programs if that is not enough."""
    global _ended, _resident
    _ended += 1
    if _ended % COLLECT_EVERY:
        return
    gc.collect()
    memory = psutil.Process().memory_info
    if memory().rss > _resident + GROWTH_BYTES:
        gc.unfreeze()
        _give_back()
        if memory().rss > MOST_BYTES and "jax" in sys.modules:
            sys.modules["jax"].clear_caches()
            _give_back()
        _resident = memory().rss
    gc.freeze()


def _give_back() -> None:
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # a C library other than glibc
        ctypes.CDLL(None).malloc_trim(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        assert isinstance(item, pytest.Function)
        imported = vars(item.module)
        for needed in NEEDED:
            if needed in item.fixturenames or needed in imported:
                item.add_marker(needed)

    def turn(item: pytest.Item) -> tuple[bool, int]:
        folder = item.path.parent.name
        names = [name for name in FIRST if name in (folder, item.path.stem)]
        # a worker changes its way of compiling once
        return not _as_shipped(item), FIRST.index(names[0]) if names else len(FIRST)

    items.sort(key=turn)


class InGroups(LoadScopeScheduling):
    """Gives a worker all tests of a file, or of what goes together. (The groups that
    pytest-xdist itself knows of are lost with the node ids of pytest 9.)"""

    def _split_scope(self, nodeid: str) -> str:
        path = PurePosixPath(nodeid.partition("::")[0])
        named = [TOGETHER[name] for name in (path.parent.name, path.stem) if name in TOGETHER]
        return named[0] if named else str(path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InGroups:
    config.option.loadscopereorder = False  # the order is that of FIRST, not of many tests first
    return InGroups(config, log)


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Presses Ctrl-C."""
    from interrupts import Keyboard

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored
    yield Keyboard(monkeypatch)
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")  # Playwright has one at a time in a process
def browser() -> Iterator[Any]:
    path = chromium.find()
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    pytest.importorskip("playwright", reason="no Playwright here: pip install playwright")
    with chromium.launched(path) as running:
        yield running
