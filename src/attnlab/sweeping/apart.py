"""Settings apart: one result for each combination of what is not a rate, as figures use them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import xarray as xr

from attnlab.dynamics import Diverged
from attnlab.files.folders import claim
from attnlab.files.progress import Progress
from attnlab.sweeping.driver import Silent, Stopped, run_plan
from attnlab.sweeping.group import Group
from attnlab.sweeping.plan import Plan, make_plan
from attnlab.sweeping.recipe import SweepRecipe
from attnlab.sweeping.store import FILES, Folder, Memory, Store
from attnlab.sweeping.whole import setting_of, whole


def run_apart(
    recipe: SweepRecipe, *, progress: Progress = False, keep: Path | None = None
) -> list[xr.Dataset]:
    """Run a sweep in this process; its results over rates and seeds, in the order of the grid.

    Each has the other parameters that were swept as coords without a dim. progress: called with
    the fraction done. keep: a folder in which groups are kept, and found again when the same
    simulations are asked for, by whichever recipe. Raises `Diverged` when a run does, and
    RuntimeError when a group fails otherwise.

    Parameters
    ----------
    recipe : SweepRecipe
        What is swept.
    progress : callable or False, optional
        Called with the fraction done.
    keep : path, optional
        A folder in which groups are kept, and found again when the same simulations are asked for,
        by whichever recipe.

    Returns
    -------
    list of xarray.Dataset
        In the order of the grid.
    """
    plan = make_plan(recipe)
    if keep is not None:
        claim(keep, FILES)
    store: Store = Memory() if keep is None else Folder(keep)
    watch = _Fraction(progress) if progress else Silent()
    try:
        index = run_plan(plan, store, watch=watch).index
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


class _Fraction(Silent):
    """Tells the fraction of all runs that is done."""

    def __init__(self, progress: Callable[[float], None]) -> None:
        self.progress, self.done, self.total = progress, 0, 1

    def begin(self, plan: Plan, kept: int) -> None:
        self.total = plan.runs

    def within(self, runs: float) -> None:
        self.progress((self.done + runs) / self.total)

    def settled(self, group: Group, failed_runs: int, cause: str) -> None:
        self.done += group.runs
        self.progress(self.done / self.total)
