"""A sweep of 10-second groups on two Ray workers against the same on two local processes.

Each is timed from the call to the last result on disk: starting the processes, importing JAX,
compiling and transferring included. Ray is timed with its own start and stop, and once more when it
is running already, as on a cluster. They take turns. Groups compute, so that another load
on the machine shows in both; with --idle they wait instead, which shows the cost of the executors
alone. Sixteen groups are eight rounds: starting counts as in a short sweep.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

IDLE = "ATTNLAB_BENCH_IDLE_SECONDS"
LOCAL, STARTED, RUNNING = "two local processes", "Ray, started for it", "Ray, running already"


def wait_and_run(group: Any, expected: Any = None) -> Any:
    """Wait, and run a group: the work of a worker with --idle."""
    from attnlab.sweeping.executor import attempt, become_worker

    become_worker()
    time.sleep(float(os.environ[IDLE]))
    return attempt(group, expected=expected)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench ray", description=__doc__)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each group")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--idle", action="store_true", help="groups that wait")
    options = parser.parse_args(arguments)

    import numpy as np

    from attnlab import Population, Record, simulate
    from attnlab.sweeping import Local, Ray, SweepRecipe, cluster, executor, make_plan, run_in
    from attnlab.sweeping.store import Folder

    classes = "single-common:num_classes=10,distinct=10,vocab_size=200"
    steps = 1
    if options.idle:
        os.environ[IDLE] = str(options.seconds)
        executor.attempt = cluster._task = wait_and_run  # type: ignore[assignment]
    else:

        def seconds(count: int) -> float:
            """Return the processor time of a group where each of two workers has its core."""
            begun = time.process_time()
            simulate(
                classes,
                gradient="population",
                steps=count,
                momentum=0.0,
                what="loss",
                at=[count],
                progress=False,
            )
            return time.process_time() - begun

        seconds(1)  # compiles
        count = 1000
        while seconds(count) < 1:
            count *= 2
        # the cost of a call besides its steps does not count
        steps = int(2 * count * options.seconds / (seconds(3 * count) - seconds(count)))
    recipe = SweepRecipe(
        given={
            "task": classes,
            "gradient": Population(),
            "momentum": 0.0,
            "steps": steps,
            "record": Record(what="loss", at=[steps]),
        },
        grid={"common_prob": tuple(np.linspace(0.1, 0.5, options.groups).tolist())},
    )
    memory = make_plan(recipe).shapes[0].cost.memory
    plan = make_plan(recipe, memory_budget=memory)
    assert len(plan.groups) == options.groups
    executors = {LOCAL: Local(workers=2), STARTED: Ray(), RUNNING: Ray()}
    taken: dict[str, list[float]] = {name: [] for name in executors}
    for _ in range(options.repeat):
        for name, chosen in executors.items():
            ready = _ray_is_running() if name == RUNNING else nullcontext()
            with ready, tempfile.TemporaryDirectory() as folder:
                begun = time.perf_counter()
                run_in(Path(folder), plan, executor=chosen)
                taken[name].append(time.perf_counter() - begun)
                entries, _ = Folder(Path(folder)).ledger.read()
                done = [entry["seconds"] for entry in entries if "seconds" in entry]
                lasting = statistics.median(done) + options.idle * options.seconds
                print(
                    f"{name}: {taken[name][-1]:.1f} s for {len(done)} groups of {lasting:.1f} s",
                    flush=True,
                )
    print(f"over {LOCAL} (at most 1.2 wanted):")
    for name in (STARTED, RUNNING):
        ratio = statistics.median(taken[name]) / statistics.median(taken[LOCAL])
        print(f"  {name}: {ratio:.2f}")


@contextmanager
def _ray_is_running() -> Iterator[None]:
    """Start a cluster beforehand, as one of several machines would be."""
    import ray

    from attnlab.sweeping.cluster import connect

    connect(ray, "local")
    try:
        yield
    finally:
        ray.shutdown()
