"""The Ray executor [extra cluster]: one task for each group, on one machine or many."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from attnlab.files.errors import InputError, not_installed
from attnlab.files.numerics import numerics
from attnlab.sweeping.executor import RETRIES, Answer, Answers, attempt, become_worker
from attnlab.sweeping.group import NUMBERS, Group, Tell

PATIENCE_SECONDS = 1.0  # for an orderly end of Ray after Ctrl-C


@dataclass(frozen=True)
class Ray:
    """Ray Core tasks; results come back through Ray to the driver, which writes them.

    Parameters
    ----------
    address : str, optional
        "local" starts Ray here and stops it afterwards; "auto" or HOST:PORT joins a cluster.
    cpus, gpus : float, optional
        Processors and GPUs of each task; Ray counts them, and shows a task only its own GPUs.
    """

    address: str = "local"
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.cpus < inf and 0 <= self.gpus < inf and self.cpus + self.gpus):
            raise InputError("cpus_per_task, gpus_per_task: expected 0 or more, not both 0")

    def run(self, groups: Iterator[Group], tell: Tell) -> Answers:
        ray = _import_ray()
        if ray.is_initialized():
            yield from self._tasks(ray, groups)
            return
        with _ending(ray):
            connect(ray, self.address)
            yield from self._tasks(ray, groups)

    def _tasks(self, ray: Any, groups: Iterator[Group]) -> Answers:
        task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES)(_task)
        pending: dict[Any, Group] = {}
        while True:
            # twice as many as can run, so that a worker finds its next group waiting
            while len(pending) < 2 * self._slots(ray):
                group = next(groups, None)
                if group is None:
                    break
                pending[task.remote(group, numerics(*NUMBERS))] = group
            if not pending:
                return
            (done,), _ = ray.wait(list(pending), num_returns=1)
            group = pending.pop(done)
            try:
                answer = ray.get(done)
            except ray.exceptions.RayError as problem:  # its workers died, over and over
                answer = Answer(cause=f"{type(problem).__name__}: {problem}".splitlines()[0])
            yield group, answer

    def _slots(self, ray: Any) -> int:
        """Return how many tasks the cluster has room for, as it is now."""
        there = ray.cluster_resources()
        room = [
            int(there.get(name, 0) // each)
            for name, each in (("CPU", self.cpus), ("GPU", self.gpus))
            if each
        ]
        return max(1, min(room))


def _task(group: Group, expected: Mapping[str, int | str]) -> Answer:
    become_worker()
    return attempt(group, expected=expected)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise not_installed("executor", "ray", extra="cluster", or_else=", or use local") from None
    return ray


@contextmanager
def _ending(ray: Any) -> Iterator[None]:
    """Shut Ray down in the end. After Ctrl-C or SIGTERM, end within PATIENCE_SECONDS whatever it
    has started here: a start that is interrupted leaves processes behind, and an orderly
    end may take many seconds."""
    before = _ray_processes()
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit):
        started = _ray_processes() - before
        hurry = threading.Timer(PATIENCE_SECONDS, _kill, [started])
        hurry.start()
        try:
            ray.shutdown()
        finally:
            hurry.cancel()
            _kill(started | (_ray_processes() - before))
        raise
    finally:
        if ray.is_initialized():
            ray.shutdown()


def _ray_processes() -> set[Any]:
    """Return the processes of Ray that this one and its children have started."""
    import psutil  # which Ray brings along

    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            words = " ".join(process.cmdline())
            if "ray/" in words or words.startswith("ray::"):
                found.add(process)
    return found


def _kill(processes: set[Any]) -> None:
    import psutil

    for process in processes:
        with suppress(psutil.Error):  # it has ended
            process.kill()


def connect(ray: Any, address: str) -> None:
    """Start Ray here, or join the cluster at the address."""
    given: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        given["include_dashboard"] = False
        # else Ray's workers give way (15) to all other processes, as ours do not
        os.environ.setdefault("RAY_worker_niceness", "0")
    answer = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, **given)
    except SystemExit:  # Ray's own answer to SIGTERM
        raise KeyboardInterrupt from None
    except (ConnectionError, ValueError) as problem:
        raise InputError(f"address: no Ray cluster at {address!r} ({problem})") from None
    except Exception as problem:  # a start that takes too long has no type of its own
        reason = str(problem).partition("\n")[0]
        raise OSError(f"Ray did not start ({reason}); executor local needs none") from problem
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, answer)  # Ray sets its own, which ends the driver unheard
