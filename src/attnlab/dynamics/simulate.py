"""simulate(): one entry point for every engine, optimiser, start and model."""

from __future__ import annotations

import math
import time
import warnings
from typing import Unpack

import jax
import numpy as np
import xarray as xr

from attnlab.dynamics.divergence import Diverged
from attnlab.dynamics.driving import Drive
from attnlab.dynamics.engines import Engine
from attnlab.dynamics.labels import label, of_one_set
from attnlab.dynamics.room import require_room, require_room_to_lay_out
from attnlab.dynamics.run import Recorded, Run
from attnlab.dynamics.simulation import Classes, Fields, Simulation, as_simulation
from attnlab.dynamics.stopping import Interrupted, answering
from attnlab.files.progress import Choice, reporting
from attnlab.files.provenance import provenance

ADVICE = {
    "step": "Try smaller rates.",
    "time": "Try rates closer to each other, a shorter time (some flows reach infinity there) or "
    "more steps (Flow.most_steps).",
}


def simulate(
    simulation: Simulation | Classes,
    engine: Engine | None = None,
    *,
    progress: Choice = "auto",
    **fields: Unpack[Fields],
) -> xr.Dataset:
    """Run a simulation and record it.

    Parameters
    ----------
    simulation : Simulation, SequenceClasses, str or sequence of them
        A `Simulation`, which explains every field, or its classes.
    engine : Engine, optional
        Of the simulation. With a `Simulation`, engine and fields replace its own.
    progress : {"auto", True, False} or callable, optional
        Whether to show how far it is, or a function that is called with the fraction done.
    **fields
        Other fields of the simulation: model, optimizer, momentum, eta_y, eta_z, steps, init,
        seeds, independent, save, dtype, lump.

    Returns
    -------
    xarray.Dataset
        With dims (swept rates, seed, step or time, sequence_class, query, token); docs/results.md
        describes it, and `Simulation.of` gives the value back.

    Raises
    ------
    Diverged
        When numbers leave the finite range; it carries what was recorded.
    Interrupted
        On Ctrl-C; so does it.

    Examples
    --------
    >>> import attnlab
    >>> run = attnlab.Simulation("syn-small", attnlab.Limit(), eta_y=[1, 2], steps=100)
    >>> result = attnlab.simulate(run, progress=False)
    >>> result.attention.dims
    ('eta_y', 'seed', 'step', 'sequence_class', 'token')
    """
    simulation = as_simulation(simulation, engine, **fields)
    begun = time.perf_counter()
    require_room_to_lay_out(simulation)
    run = Run.of(simulation)
    require_room(run)
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
    if words := _rounding(simulation):
        attrs["rounding"] = words
        warnings.warn(words, stacklevel=2)
    dataset = _labelled(simulation, recorded).assign_attrs(attrs)
    if stopped:
        raise Interrupted(f"stopped at {drive.place()}", dataset if recorded.count else None)
    if recorded.failures:
        raise Diverged(_explain(run, recorded), dataset)
    return dataset


def _labelled(simulation: Simulation, recorded: Recorded) -> xr.Dataset:
    """What was recorded, with its labels, and the steps at which runs diverged."""
    grid, sets = simulation.grid, simulation.sets
    dataset = label(
        sets, grid, recorded.values, clock=simulation.clock, steps=recorded.steps,
        model=simulation.model,
    )  # fmt: skip
    if recorded.failures:
        diverged = np.full((len(sets), grid.seeds.size, grid.points), -1.0)
        for place, (step, _) in recorded.failures.items():
            diverged[place] = step
        dataset["diverged_step"] = (("setting", *grid.dims()), grid.label(diverged))
    return dataset if isinstance(simulation.classes, tuple) else of_one_set(dataset)


def _rounding(simulation: Simulation) -> str:
    """Say whether attention may be decided by rounding errors; empty if not.

    The gradient of a logit z is a difference of two terms of the size of Y: for a class with its
    attention on one token they are equal, and what is left of them is the rounding error. After
    the first step Y is up to eta_y, and weight decay with eta_y * weight_decay > 1 multiplies it.
    The second step multiplies the error with eta_z: a bound that needs none of the numbers.
    """
    optimizer = simulation.moving
    exact = simulation.clock == "time" or optimizer.name != "sgd"
    if exact or simulation.steps < 2 or not simulation.model.cancels:
        return ""
    eps = float(np.finfo(simulation.dtype).eps)
    eta_y, eta_z = simulation.grid.rates()
    with np.errstate(over="ignore", invalid="ignore"):
        growth = np.maximum(1.0, eta_y * (optimizer.weight_decay or 0.0))
        error = eps * eta_z * eta_y * growth ** (simulation.steps - 2)
    if not (error > 1).any():
        return ""
    worst = int(np.nanargmax(error))
    return (
        f"eta_y = {eta_y[worst]:.4g}, eta_z = {eta_z[worst]:.4g}: from step 2 on the rounding "
        f"errors of attention logits may exceed 1 ({simulation.dtype}), so that attention may be "
        "decided by rounding; try smaller rates"
    )


def _explain(run: Run, recorded: Recorded) -> str:
    place, (step, what) = min(recorded.failures.items(), key=lambda item: item[1])
    setting, seed, point = place
    where = run.simulation.grid.describe(seed, point)
    if len(run.sets) > 1:
        where = f"{run.sets[setting].classes.origin}, {where}"
    clock, others = run.simulation.clock, len(recorded.failures) - 1
    return (
        f"{what} at {clock} {step:g} ({where})"
        + (f", and {others} more of {math.prod(run.shape)} runs diverged" if others else "")
        + f"; what was recorded before is in the error's `dataset`. {ADVICE[clock]}"
    )
