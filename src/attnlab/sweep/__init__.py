"""Many runs: grids over any parameter, in groups that are kept, on one machine or a cluster.

    import attnlab

    result = attnlab.sweep("syn-medium", grid={"num_last": [1, 3], "eta_z": [1, 2]}, ratio=2,
                           steps=100, seeds=10, out="my-sweep")
    result.final_entropy.mean("seed")

`attnlab.sweep` is this folder and, called, the function `sweep` of it.
"""

import sys
from types import ModuleType
from typing import Any

from attnlab.sweep.choices import EngineRecipe, ModelRecipe
from attnlab.sweep.cluster import Ray
from attnlab.sweep.directory import Status, open_sweep, run_in, status
from attnlab.sweep.executor import Executor
from attnlab.sweep.local import Local
from attnlab.sweep.parts import Part, Progress, run_parts
from attnlab.sweep.plan import Plan, make_plan
from attnlab.sweep.recipe import SweepRecipe
from attnlab.sweep.run import Stopped
from attnlab.sweep.sweep import sweep

__all__ = [
    "EngineRecipe",
    "Executor",
    "Local",
    "ModelRecipe",
    "Part",
    "Plan",
    "Progress",
    "Ray",
    "Status",
    "Stopped",
    "SweepRecipe",
    "make_plan",
    "open_sweep",
    "run_in",
    "run_parts",
    "status",
    "sweep",
]


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return sweep(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
