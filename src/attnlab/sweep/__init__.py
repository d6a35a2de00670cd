"""Many runs: grids over any field, in groups that are kept, on one machine or a cluster.

    import attnlab

    result = attnlab.sweep("syn-medium", grid={"num_last": [1, 3], "eta_z": [1, 2]}, ratio=2,
                           steps=100, seeds=10, out="my-sweep")
    result.final_entropy.mean("seed")

`attnlab.sweep` is this folder and, called, the function `sweep` of it.
"""

import sys
from types import ModuleType
from typing import Any

from attnlab.sweep.apart import run_apart
from attnlab.sweep.cluster import Ray
from attnlab.sweep.directory import Status, open_sweep, run_in, status
from attnlab.sweep.driver import Stopped
from attnlab.sweep.executor import Executor
from attnlab.sweep.local import Local
from attnlab.sweep.plan import Plan, make_plan
from attnlab.sweep.recipe import SweepRecipe
from attnlab.sweep.sweep import sweep

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


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return sweep(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
