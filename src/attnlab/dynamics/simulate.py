"""simulate(): one entry point for every engine, optimiser, start and model."""

from __future__ import annotations

import math
import time
from typing import Unpack

import jax
import numpy as np
import xarray as xr

from attnlab.data.classes import SequenceClasses
from attnlab.dynamics.divergence import Diverged
from attnlab.dynamics.driving import Drive
from attnlab.dynamics.engines import Engine, Sampled
from attnlab.dynamics.labels import label, of_one_set
from attnlab.dynamics.layout import dense_layout, sparse_layout
from attnlab.dynamics.models import Embedded, Extended, Model
from attnlab.dynamics.room import require_room, require_room_to_lay_out
from attnlab.dynamics.run import Recorded, Run, Setting
from attnlab.dynamics.simulation import Classes, Fields, Simulation, as_simulation
from attnlab.dynamics.start import is_symmetric
from attnlab.dynamics.stopping import Interrupted, answering
from attnlab.files.progress import Choice, reporting
from attnlab.files.provenance import provenance

ADVICE = {
    "step": "Try smaller rates.",
    "time": "Try rates closer to each other, a shorter time or more steps (Flow.most_steps).",
}


def simulate(
    simulation: Simulation | Classes,
    engine: Engine | None = None,
    *,
    progress: Choice = "auto",
    **fields: Unpack[Fields],
) -> xr.Dataset:
    """Run a simulation and record it.

        attnlab.simulate("syn-small", eta_y=2.0, steps=1000, seeds=3)

    simulation: a `Simulation`, which explains every field, or its classes; then `engine` and
        `fields` (model, optimizer, momentum, eta_y, eta_z, steps, init, seeds, own_data, save,
        dtype, lump) are its fields. With a simulation they replace its own.
    progress: "auto", True, False, or a function that is called with the fraction done.

    Returns a Dataset with dims (swept rates, seed, step or time, sequence_class, query, token);
    docs/results.md describes it, and `Simulation.of` gives the value back. Raises `Diverged`, which
    carries what was recorded, when numbers leave the finite range, and `Interrupted`, which does so
    too, on Ctrl-C.
    """
    simulation = as_simulation(simulation, engine, **fields)
    begun = time.perf_counter()
    run = _prepare(simulation)
    drive, stopped = Drive(run), False
    with reporting(progress, math.prod(run.shape), simulation.sets[0].origin) as report:
        try:
            answering(lambda stopping: drive.go(report, stopping))
        except KeyboardInterrupt:
            stopped = True
        except jax.errors.JaxRuntimeError as problem:
            if "RESOURCE_EXHAUSTED" not in str(problem):
                raise
            raise MemoryError(str(problem).splitlines()[0]) from problem
    recorded, device = drive.recorded(), jax.devices()[0]
    if stopped:
        recorded.drop_the_rest()
    attrs = provenance(
        simulation.spec,
        device=f"{device.platform}: {device.device_kind}",
        dtype=simulation.dtype,
        vocab_size=simulation.sets[0].vocab_size,
        seconds=time.perf_counter() - begun,
    )
    dataset = _labelled(simulation, recorded).assign_attrs(attrs)
    if stopped:
        raise Interrupted(f"stopped at {drive.place()}", dataset if recorded.count else None)
    if recorded.failures:
        raise Diverged(_explain(run, recorded), dataset)
    return dataset


def _prepare(simulation: Simulation) -> Run:
    """Everything laid out, and room for it made sure of."""
    s, what = simulation, tuple(simulation.save.what)
    itemsize = np.dtype(s.dtype).itemsize
    require_room_to_lay_out(
        s.sets, heads=s.model.heads, dense=_is_dense(s.engine, s.model), what=what,
        runs=s.grid.runs, records=s.moments.size, itemsize=itemsize,
    )  # fmt: skip
    settings = tuple(_lay_out(classes, s) for classes in s.sets)
    run = Run(
        settings, s.engine, s.model, s.moving, s.init, s.grid, what, s.moments, np.dtype(s.dtype),
        s.own_data,
    )  # fmt: skip
    require_room(run)
    return run


def _is_dense(engine: Engine, model: Model) -> bool:
    """Whether every token in play has a place of its own."""
    return isinstance(engine, Sampled) or isinstance(model, Embedded | Extended)


def _lay_out(classes: SequenceClasses, simulation: Simulation) -> Setting:
    engine, model, init = simulation.engine, simulation.model, simulation.init
    start_logits = simulation.start_logits(classes)
    symmetric = not isinstance(model, Embedded) and is_symmetric(init)
    if isinstance(model, Extended):
        layout, where = dense_layout(
            classes,
            symmetric_start=symmetric,
            also=classes.queries if model.residual or model.attend_self else None,
            whole=model.normalization == "layer",  # the mean is taken away from all M coordinates
        )
    elif isinstance(model, Embedded):
        layout, where = dense_layout(classes, symmetric_start=symmetric)
    elif isinstance(engine, Sampled):
        layout, where = dense_layout(classes, symmetric_start=symmetric, by_class=True)
    else:
        layout, where = sparse_layout(
            classes,
            symmetric_start=symmetric,
            lump=simulation.lump and symmetric,
            start_logits=None if isinstance(init, str) else start_logits,
        )
    return Setting(classes, layout, where, start_logits)


def _labelled(simulation: Simulation, recorded: Recorded) -> xr.Dataset:
    """What was recorded, with its labels, and the steps at which runs diverged."""
    grid, sets = simulation.grid, simulation.sets
    dataset = label(
        sets, grid, recorded.values, clock=simulation.clock, moments=recorded.moments,
        heads=simulation.model.heads,
    )  # fmt: skip
    if recorded.failures:
        diverged = np.full((len(sets), grid.seeds.size, grid.points), -1.0)
        for place, (moment, _) in recorded.failures.items():
            diverged[place] = moment
        dataset["diverged_step"] = (("setting", *grid.dims()), grid.label(diverged))
    return dataset if isinstance(simulation.classes, tuple) else of_one_set(dataset)


def _explain(run: Run, recorded: Recorded) -> str:
    place, (moment, what) = min(recorded.failures.items(), key=lambda item: item[1])
    setting, seed, point = place
    where = run.grid.describe(seed, point)
    if len(run.settings) > 1:
        where = f"{run.settings[setting].classes.origin}, {where}"
    others = len(recorded.failures) - 1
    return (
        f"{what} at {run.clock} {moment:g} ({where})"
        + (f", and {others} more of {math.prod(run.shape)} runs diverged" if others else "")
        + f"; what was recorded before is in the error's `dataset`. {ADVICE[run.clock]}"
    )
