"""Many runs: grids over any field, in groups that are kept, on one machine or a cluster.

    import attnlab

    result = attnlab.sweep("syn-medium", grid={"num_last": [1, 3], "eta_z": [1, 2]}, ratio=2,
                           steps=100, seeds=10, out="my-sweep")
    result.final_entropy.mean("seed")

The same call resumes a sweep that was stopped.
"""

from attnlab.sweeping.cluster import Ray
from attnlab.sweeping.directory import Status, open_sweep, run_in, status
from attnlab.sweeping.driver import Stopped
from attnlab.sweeping.executor import Executor, Local
from attnlab.sweeping.plan import Plan, make_plan
from attnlab.sweeping.recipe import SweepRecipe
from attnlab.sweeping.sweep import run_apart, sweep

__all__ = [
    "Executor",
    "Local",
    "Plan",
    "Ray",
    "Status",
    "Stopped",
    "SweepRecipe",
    "make_plan",
    "open_sweep",
    "run_apart",
    "run_in",
    "status",
    "sweep",
]
