"""sweep(): a grid of simulations from Python, as one labelled dataset."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from attnlab.files.documents import shown, within
from attnlab.files.errors import InputError
from attnlab.files.folders import claim
from attnlab.files.progress import Progress, reporting
from attnlab.files.provenance import provenance
from attnlab.simulation import Diverged, Learner, Simulation
from attnlab.simulation.rates import NAME
from attnlab.sweeping.directory import open_sweep, run_in
from attnlab.sweeping.driver import Stopped, run_plan
from attnlab.sweeping.executor import Executor
from attnlab.sweeping.index import setting_of, whole
from attnlab.sweeping.plan import MEMORY_BUDGET, make_plan
from attnlab.sweeping.recipe import SweepRecipe
from attnlab.sweeping.store import FILES, Folder, Memory, Store
from attnlab.tasks import Task
from attnlab.tasks.classes import SequenceClasses


def sweep(
    simulation: Simulation | Task | Learner | SequenceClasses | str,
    *,
    grid: Mapping[str, Sequence[Any]],
    out: str | Path | None = None,
    executor: Executor | None = None,
    memory_budget: float = MEMORY_BUDGET,
    **settings: Any,
) -> xr.Dataset:
    """Run every combination of the values in `grid`, each with every seed.

    Runs that diverge are NaN from that step on and marked in `finished`.

    Parameters
    ----------
    simulation : Simulation, Task, Learner, SequenceClasses or str
        A `Simulation`, or its task.
    grid : mapping
        Values by name, each of which becomes a dim of the result: learning rates ("eta_y", "eta_z",
        "ratio" for eta_y = ratio * eta_z, "learning_rate"), any field ("init", "model"), a setting
        inside one by its flat name or its path ("length", "steps", "optimizer.beta_2",
        "model.heads"), and parameters of the preset that the task names.
    out : path, optional
        A directory in which results are kept, group by group; the same call resumes there, and
        `open_sweep` opens it. Without it everything stays in memory.
    executor : Executor, optional
        `Local()` (in this process), `Local(workers=2)` or `Ray(...)`.
    memory_budget : float, optional
        Bytes that a group of runs may take.
    **settings
        Fields of the simulation, and settings inside them by their flat names, the same in all
        runs.

    Returns
    -------
    xarray.Dataset
        A dim for each name in the grid, `seed`, and those of a single run.

    Examples
    --------
    >>> import attnlab
    >>> grid = {"eta_z": [1, 2], "ratio": [1, 5]}
    >>> found = attnlab.sweep("syn-small", gradient="population", grid=grid, steps=100)
    >>> found.attention.dims[:3]
    ('eta_z', 'ratio', 'seed')
    """
    given = {**_fields(simulation, {*settings, *grid}), **settings}
    recipe = SweepRecipe(
        given=given,
        grid={name: _plain(within("grid", name), values) for name, values in grid.items()},
    )
    plan = make_plan(recipe, memory_budget=memory_budget)
    if out is not None:
        run_in(Path(out), plan, executor=executor)
        return open_sweep(out)
    store = Memory()
    index = run_plan(plan, store, executor=executor).index
    made = whole(index, store.read).load()
    spec = {"recipe": recipe.to_document()}
    return made.assign_attrs(provenance(spec, failed_runs=index.failed_runs))


def _fields(simulation: Any, others: set[str]) -> dict[str, Any]:
    """Return the fields of what is swept, without those given in the grid or as settings."""
    if not isinstance(simulation, Simulation):
        return {"task": simulation}
    rates = set(simulation.symbols.values()) or {NAME}
    replaced = rates if NAME in others else {"eta_y"} if "ratio" in others else set()
    names = {of.name for of in fields(Simulation)} - {"eta_y", "eta_z", NAME} | rates - replaced
    return {name: getattr(simulation, name) for name in names - others}


def _plain(where: str, values: Any) -> tuple[Any, ...]:
    """Return values as Python objects, also those of an array."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{where}: expected a list, got {shown(values)}")
    return tuple(value.item() if isinstance(value, np.generic) else value for value in values)


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
