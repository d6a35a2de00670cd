"""sweep(): a grid of simulations or trainings from Python, as one labelled dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import xarray as xr

from attnlab.data import SequenceClasses
from attnlab.dynamics import Engine, Simulation
from attnlab.dynamics.optimizers import as_optimizer
from attnlab.dynamics.simulation import Fields
from attnlab.files.documents import shown, within
from attnlab.files.errors import InputError
from attnlab.files.provenance import provenance
from attnlab.sweeping.directory import open_sweep, run_in
from attnlab.sweeping.driver import run_plan
from attnlab.sweeping.executor import Executor
from attnlab.sweeping.plan import MEMORY_BUDGET, make_plan
from attnlab.sweeping.recipe import KINDS, SweepRecipe
from attnlab.sweeping.store import Memory
from attnlab.sweeping.whole import whole
from attnlab.text import Training


class SweepFields(Fields, total=False):
    """The fields of a `Simulation`, and `ratio`, for eta_y = ratio * eta_z."""

    ratio: float | None


def sweep(
    value: Simulation | Training | SequenceClasses | str,
    engine: Engine | None = None,
    *,
    grid: Mapping[str, Sequence[Any]],
    out: str | Path | None = None,
    executor: Executor | None = None,
    memory_budget: float = MEMORY_BUDGET,
    **fields: Unpack[SweepFields],
) -> xr.Dataset:
    """Run every combination of the values in `grid`, each with every seed.

    Runs that diverge are NaN from that step on and marked in `finished`.

    Parameters
    ----------
    value : Simulation, Training, SequenceClasses or str
        A `Simulation`, or the classes of one; or a `Training` on text, whose rates are "rate" in
        the grid.
    engine : Engine, optional
        Of the simulation, where classes are given.
    grid : mapping
        Values by name, each of which becomes a dim of the result: "eta_y", "eta_z", "ratio" (eta_y
        = ratio * eta_z), any field ("init", "steps", "classes", "model"), a field inside one
        ("engine.length", "optimizer.beta_2", "model.heads"), and parameters of the preset that
        `classes` names. Rates that are not swept are given as fields.
    out : path, optional
        A directory in which results are kept, group by group; the same call resumes there, and
        `open_sweep` opens it. Without it everything stays in memory.
    executor : Executor, optional
        `Local()` (in this process), `Local(workers=2)` or `Ray(...)`.
    memory_budget : float, optional
        Bytes that a group of runs may take.
    **fields
        Other fields of the value, the same in all runs.

    Returns
    -------
    xarray.Dataset
        A dim for each name in the grid, `seed`, and those of a single run.

    Examples
    --------
    >>> import attnlab
    >>> grid = {"eta_z": [1, 2], "ratio": [1, 5]}
    >>> found = attnlab.sweep("syn-small", attnlab.Limit(), grid=grid, steps=100)
    >>> found.attention.dims[:3]
    ('eta_z', 'ratio', 'seed')
    """
    given = _given(value, {"engine": engine, **fields}, grid)
    if isinstance(given.get("seeds"), np.integer):
        given["seeds"] = int(given["seeds"])
    if not isinstance(given.get("seeds", 1), int):
        given["seeds"] = _plain("seeds", given["seeds"])
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


def _given(value: Any, fields: Mapping[str, Any], grid: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of what is swept: those of a value, and those that were said beside it."""
    said = {name: of for name, of in fields.items() if of is not None}
    momentum = said.pop("momentum", None)
    if "optimizer" in said or momentum is not None:
        said["optimizer"] = as_optimizer(said.get("optimizer", "sgd"), momentum)
    of_value = [kind for kind in KINDS if isinstance(value, kind.value)]
    if not of_value:
        return {KINDS[0].source: value, **said}
    own = of_value[0].given_by(value)
    for name, field in of_value[0].rates.items():
        if name in said or name in grid:
            own.pop(field, None)
    return own | said


def _plain(where: str, values: Any) -> tuple[Any, ...]:
    """Values as Python has them, also those of an array."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{where}: expected a list, got {shown(values)}")
    return tuple(value.item() if isinstance(value, np.generic) else value for value in values)
