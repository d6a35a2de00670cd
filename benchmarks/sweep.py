"""Overhead of a sweep of 10,000 tiny cells on the local executor.

The time of everything (planning, grouping, running, writing, the table, the index) but for that
inside `simulate`, compilation included; then of resuming the sweep, when there is nothing to do,
and of opening it. Cells are 100 settings of one shape times 100 combinations of learning rates.
Processor time is printed too: another load on the machine disturbs it least.

Then: sets of classes of one shape, each with one learning rate and one seed, in one call of
`simulate` and in one call each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

SETTINGS, RATES = 100, 10  # values of each learning rate
SETS = 200


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench sweep", description=__doc__)
    parser.add_argument("--settings", type=int, default=SETTINGS)
    parser.add_argument("--rates", type=int, default=RATES, help="values of each learning rate")
    options = parser.parse_args(arguments)

    import numpy as np

    from attnlab import Population, Record
    from attnlab.sweeping import SweepRecipe, group, make_plan, open_sweep, run_in

    rates = tuple(np.linspace(0.1, 1.0, options.rates).tolist())
    recipe = SweepRecipe(
        given={
            "task": "single-common:num_classes=2,distinct=2,vocab_size=20",
            "gradient": Population(),
            "momentum": 0.0,
            "steps": 1,
            "record": Record(what=("statistics", "loss"), at=[1]),
        },
        grid={
            "common_prob": tuple(np.linspace(0.1, 0.5, options.settings).tolist()),
            "eta_z": rates,
            "ratio": rates,
        },
    )
    cells = options.settings * options.rates**2
    simulating = _Timed(group.simulate)
    group.simulate = simulating

    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(recipe)
        print(f"{cells} cells in {len(plan.groups)} groups, {plan.seconds:.1f} s by the plan")
        for words in ("run", "resumed"):
            simulating.wall = simulating.cpu = 0.0
            wall, cpu = time.perf_counter(), time.process_time()
            run_in(Path(folder), make_plan(recipe))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            print(
                f"{words}: {wall:.2f} s, of which {simulating.wall:.2f} s in simulate; the sweep "
                f"adds {1e3 * (wall - simulating.wall) / cells:.3f} ms a cell "
                f"({1e3 * (cpu - simulating.cpu) / cells:.3f} ms of processor time)"
            )
        print("(at most 2 ms wanted)")
        wall = time.perf_counter()
        result = open_sweep(folder)
        wall = time.perf_counter() - wall
        tracemalloc.start()
        open_sweep(folder)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(
            f"opened: {wall:.2f} s, {peak / 2**20:.1f} MiB for {result.final_loss.size} cells "
            "(at most 2 s wanted)"
        )
    _together_and_apart()


def _together_and_apart() -> None:
    """Time classes of the size of Syn-Small, on batches, on the population, and by the flow."""
    import numpy as np

    from attnlab import simulate
    from attnlab.tasks.classes import single_common

    sets = [single_common(2, 10, p, vocab_size=34) for p in np.linspace(0.1, 0.5, SETS).tolist()]
    runs: dict[str, dict[str, Any]] = {
        "1000 steps on the population": {"gradient": "population", "steps": 1000, "at": [1000]},
        "100 steps on batches": {"length": 128, "batch_size": 128, "steps": 100, "at": [100]},
        "flow to time 1000": {"time": 1000, "at": [1000]},
    }
    for name, settings in runs.items():
        words = []
        for calls in ([sets], sets):
            for _ in range(2):  # the first time compiles
                timed = _Timed(simulate)
                for classes in calls:
                    timed(classes, what=("statistics", "loss"), progress=False, **settings)
            words.append(f"{timed.wall:.2f} s ({timed.cpu:.2f} s of processor time)")
        print(f"{SETS} sets of classes, {name}: together {words[0]}, one by one {words[1]}")


class _Timed:
    """Call a function and add up the time."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.wall, self.cpu = function, 0.0, 0.0

    def __call__(self, *args: Any, **given: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            return self.function(*args, **given)
        finally:
            self.wall += time.perf_counter() - wall
            self.cpu += time.process_time() - cpu
