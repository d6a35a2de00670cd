"""Settings apart: one result for each setting of a sweep, as figures use them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import xarray as xr

from attnlab.files.folders import claim
from attnlab.files.progress import Progress, reporting
from attnlab.simulation import Diverged
from attnlab.sweeping.driver import Stopped, run_plan
from attnlab.sweeping.plan import make_plan
from attnlab.sweeping.recipe import SweepRecipe
from attnlab.sweeping.store import FILES, Folder, Memory, Store
from attnlab.sweeping.whole import setting_of, whole


def run_apart(
    recipe: SweepRecipe, *, progress: Progress = False, keep: Path | None = None
) -> list[xr.Dataset]:
    """Run a sweep in this process; return a result over learning rates and seeds for each setting.

    Each has the settings that were swept as coords without a dim. Raises `Diverged` when a run
    does, and RuntimeError when a group fails otherwise.

    Parameters
    ----------
    recipe : SweepRecipe
        The sweep.
    progress : callable or False, optional
        Called with the fraction done.
    keep : path, optional
        A folder that keeps groups, for any recipe that asks for the same simulations.

    Returns
    -------
    list of xarray.Dataset
        In the order of the grid.
    """
    plan = make_plan(recipe)
    if keep is not None:
        claim(keep, FILES)
    store: Store = Memory() if keep is None else Folder(keep)
    try:
        with reporting(progress, plan.runs, "sweep") as report:
            index = run_plan(plan, store, report=report).index
    except Stopped as problem:
        raise Stopped(f"{keep}: {problem}") from problem
    for group in index.groups:
        if group.schema is None:
            raise RuntimeError(group.cause)
        if group.diverged:
            raise Diverged(group.cause, whole(index, store.read).load())
    return [
        setting_of(index, store.read, number)
        .load()
        .assign_coords(dict(zip(index.settings, chosen, strict=True)))
        for number, chosen in enumerate(product(*index.settings.values()))
    ]
