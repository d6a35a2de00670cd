"""sweep(): a grid of simulations from Python, as one labelled dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from attnlab.data import SequenceClasses
from attnlab.dynamics import (
    AlibiPosition,
    Engine,
    FixedPosition,
    LearnedPosition,
    Model,
    Optimizer,
    Pairwise,
    Sampled,
    Save,
)
from attnlab.dynamics.optimizers import as_optimizer
from attnlab.files.documents import shown, within
from attnlab.files.errors import InputError
from attnlab.files.provenance import provenance
from attnlab.sweep.choices import EngineRecipe, ModelRecipe
from attnlab.sweep.directory import open_sweep, run_in
from attnlab.sweep.executor import Executor
from attnlab.sweep.plan import MEMORY_BUDGET, make_plan
from attnlab.sweep.recipe import SweepRecipe, Value
from attnlab.sweep.run import run_plan
from attnlab.sweep.store import Memory
from attnlab.sweep.whole import whole


def sweep(
    classes: SequenceClasses | str,
    engine: Engine | None = None,
    *,
    grid: Mapping[str, Sequence[Value]],
    steps: float,
    eta_y: float | None = None,
    eta_z: float | None = None,
    ratio: float | None = None,
    optimizer: str | Optimizer = "sgd",
    momentum: float | None = None,
    model: Model | None = None,
    init: Any = "zero",
    seeds: int | Sequence[int] = 1,
    save: Save | None = None,
    dtype: Any = "float32",
    out: str | Path | None = None,
    executor: Executor | None = None,
    memory_budget: float = MEMORY_BUDGET,
) -> xr.Dataset:
    """Simulate every combination of the values in `grid`, each with every seed.

    grid: values by name: "eta_y", "eta_z", "ratio" (eta_y = ratio * eta_z), "init", "steps",
        "classes", fields like "engine.length", "optimizer.beta_2" or "model.heads", and parameters
        of the preset that `classes` names. Each becomes a dim of the result.
    eta_y, eta_z, ratio: rates that are not swept. The other settings are those of `simulate`.
    out: a directory in which results are kept, group by group; the same call resumes there, and
        `open_sweep` opens it. Without it everything stays in memory.
    executor: `Local()` (in this process), `Local(workers=2)` or `Ray(...)`.
    memory_budget: bytes that a group of runs may take.

    Runs that diverge are NaN from that step on and marked in `finished`.
    """
    given = None if isinstance(classes, str) else classes
    if isinstance(seeds, np.integer):
        seeds = int(seeds)
    recipe = SweepRecipe(
        classes=classes if isinstance(classes, str) else classes.origin,
        grid={name: _plain(within("grid", name), values) for name, values in grid.items()},
        eta_y=eta_y,
        eta_z=eta_z,
        ratio=ratio,
        engine=_engine_recipe(Sampled() if engine is None else engine),
        optimizer=as_optimizer(optimizer, momentum),
        model=_model_recipe(Pairwise() if model is None else model),
        init=init,
        steps=steps,
        seeds=seeds if isinstance(seeds, int) else _plain("seeds", seeds),
        save=Save() if save is None else save,
        dtype=dtype,
    )
    plan = make_plan(recipe, classes=given, memory_budget=memory_budget)
    if out is not None:
        run_in(Path(out), plan, executor=executor)
        return open_sweep(out)
    store = Memory()
    index = run_plan(plan, store, executor=executor).index
    made = whole(index, store.read).load()
    return made.assign_attrs(provenance({"recipe": asdict(recipe)}, failed_runs=index.failed_runs))


def _plain(where: str, values: Any) -> tuple[Any, ...]:
    """Values as Python has them, also those of an array."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{where}: expected a list, got {shown(values)}")
    return tuple(value.item() if isinstance(value, np.generic) else value for value in values)


def _engine_recipe(engine: Engine) -> EngineRecipe:
    given: dict[str, Any] = asdict(engine)  # type: ignore[call-overload]
    if isinstance(engine, Sampled) and engine.batch_size is None:
        given["batch_size"] = engine.sequences  # the same: the whole training set
    return EngineRecipe(type(engine).__name__.lower(), **given)  # type: ignore[arg-type]


def _model_recipe(model: Model) -> ModelRecipe:
    given = {item.name: getattr(model, item.name) for item in fields(model)}  # type: ignore[arg-type]
    position = given.get("position")
    if isinstance(position, LearnedPosition):
        given["position"] = "learned"
    elif isinstance(position, AlibiPosition):
        given["position"] = f"alibi:{position.slope!r}"
    elif isinstance(position, FixedPosition):
        given["position"] = f"fixed:{','.join(map(repr, position.bias))}"
    return ModelRecipe(type(model).__name__.lower(), **given)  # type: ignore[arg-type]
