"""simulate(): one entry point for every engine, optimiser, start and model."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import jax
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.data.classes import SequenceClasses
from attnlab.data.presets import resolve
from attnlab.defaults import ETA_Y, ETA_Z, STEPS
from attnlab.dynamics.divergence import Diverged
from attnlab.dynamics.driving import Drive
from attnlab.dynamics.engines import MOST_STEPS, Engine, Flow, Limit, Sampled, require_whole
from attnlab.dynamics.extended import Extended
from attnlab.dynamics.grid import Grid, make_grid
from attnlab.dynamics.layout import dense_layout, sparse_layout
from attnlab.dynamics.models import Embedded, Model, Pairwise
from attnlab.dynamics.optimizers import Optimizer, as_optimizer
from attnlab.dynamics.positions import FixedPosition
from attnlab.dynamics.room import require_room, require_room_to_lay_out
from attnlab.dynamics.run import Recorded, Run, Setting
from attnlab.dynamics.save import Save
from attnlab.dynamics.start import Init, initial_logits, is_symmetric
from attnlab.dynamics.stopping import Interrupted, answering
from attnlab.files.errors import InputError
from attnlab.files.progress import Choice, reporting
from attnlab.files.provenance import provenance

ADVICE = {
    "step": "Try smaller rates.",
    "time": "Try rates closer to each other, a shorter time or more steps (Flow.most_steps).",
}


def simulate(
    classes: SequenceClasses | str | Sequence[SequenceClasses | str],
    engine: Engine | None = None,
    *,
    eta_y: Any = ETA_Y,
    eta_z: Any = ETA_Z,
    steps: float = STEPS,
    optimizer: str | Optimizer = "sgd",
    momentum: float | None = None,
    init: Init = "zero",
    seeds: int | Sequence[int] = 1,
    own_data: bool = False,
    save: Save | None = None,
    dtype: str = "float32",
    model: Model | None = None,
    lump: bool = True,
    progress: Choice = "auto",
) -> xr.Dataset:
    """Train the 1-layer transformer of "Scan and Snap" on sequence classes and record it.

    The defaults are the paper's protocol for Syn-Small, as on the command line.

    classes: what is learnt from, or the name of a preset ("syn-medium:num_last=3"). Several sets
        of the same sizes and queries, as a list, run together and have a dim `setting`.
    engine: `Sampled(length=128, batch_size=128)` (default), `Limit(batch_size=None)` or `Flow()`.
    eta_y, eta_z: rates of the decoder Y and of the attention Z; numbers, lists (each becomes a
        dim) or DataArrays (their dims are kept), all run together.
    steps: optimiser steps; for `Flow`, time in units of one expected-gradient step.
    optimizer, momentum: "sgd", "adam", "adamw" or an `Optimizer`. The momentum of sgd is 0.9 unless
        it is given; the flow has none.
    init: "zero"; "uniform", each entry of Y and Z uniform in +-1/sqrt(M); or logits z(0), an
        array (query, token) or (token,), with Y(0) = 0; with several heads also (head, query,
        token).
    seeds: how many, or which. A seed fixes the data and the start; runs that differ only in
        rates see the same data, so that their differences have little noise.
    own_data: let each combination of classes, engine, model, optimiser and rates draw data and
        start of its own, so that cells are independent.
    save: what to record and when; see `Save`.
    dtype: "float32" or "float64", for this call only.
    model: `Pairwise()` (Y and Z, default), `Embedded(dim)` (U, W_Q, W_K, W_V), or `Extended(...)`
        (residual, normalisation, heads, positions, self-attention; docs/guides/variants.md).
    lump: let exchangeable tokens share one entry; exact, and off only to check that it is.
    progress: "auto", True, False, or a function that is called with the fraction done.

    Returns a Dataset with dims (swept rates, seed, step or time, sequence_class, query, token);
    docs/results.md describes it. Raises `Diverged`, which carries what was recorded, when
    numbers leave the finite range, and `Interrupted`, which does so too, on Ctrl-C.
    """
    sets = _sets(classes)
    engine = Sampled() if engine is None else engine
    model = Pairwise() if model is None else model
    save = Save() if save is None else save
    optimizer = as_optimizer(optimizer, momentum).within(engine)
    check_run(engine, steps, dtype, optimizer, model, init)
    grid = make_grid(eta_y, eta_z, seeds, dtype)
    begun = time.perf_counter()
    run = _prepare(
        sets, engine, model, optimizer, init, grid, own_data, save, steps, dtype, lump
    )  # fmt: skip
    drive, stopped = Drive(run), False
    with reporting(progress, math.prod(run.shape), sets[0].origin) as report:
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
        _spec(run, steps, save, lump),
        device=f"{device.platform}: {device.device_kind}",
        dtype=dtype,
        vocab_size=sets[0].vocab_size,
        seconds=time.perf_counter() - begun,
    )
    dataset = label(run, recorded).assign_attrs(attrs)
    if isinstance(classes, str | SequenceClasses):
        dataset = dataset.squeeze("setting")
    if stopped:
        raise Interrupted(f"stopped at {drive.place()}", dataset if recorded.count else None)
    if recorded.failures:
        raise Diverged(_explain(run, recorded), dataset)
    return dataset


def _sets(
    classes: SequenceClasses | str | Sequence[SequenceClasses | str],
) -> list[SequenceClasses]:
    """The sets of classes, one or several, which must fit into one dataset."""
    given = [classes] if isinstance(classes, str | SequenceClasses) else classes
    sets = [resolve(of) if isinstance(of, str) else of for of in given]
    kinds = {(of.vocab_size, len(of), tuple(of.queries.tolist()), of.names is None) for of in sets}
    if len(kinds) != 1:
        raise InputError(
            "classes: sets that run together have the same numbers of tokens and of classes, the "
            "same queries, and names for all or for none"
        )
    return sets


def check_run(
    engine: Engine, steps: float, dtype: str, optimizer: Optimizer, model: Model, init: Init
) -> None:
    """Refuse what does not go together."""
    if not isinstance(engine, (Sampled, Limit, Flow)):
        raise InputError(f"engine: expected Sampled, Limit or Flow, got {engine!r}")
    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype: expected 'float32' or 'float64', got {dtype!r}")
    if isinstance(engine, Flow):
        if not 0 < steps <= float(np.finfo(dtype).max):
            raise InputError(f"steps: expected a positive time, finite in {dtype}, got {steps}")
        engine.require_precision(dtype)
        if optimizer != Optimizer(momentum=0.0, weight_decay=optimizer.weight_decay):
            raise InputError(
                "optimizer: the flow is that of plain gradient descent; use 'sgd' without "
                "momentum, or a stepping engine"
            )
    else:
        require_whole("steps", steps, 1)
        if steps > MOST_STEPS:
            raise InputError(f"steps: expected at most {MOST_STEPS:,}, got {steps}")
    if isinstance(model, Embedded) and not isinstance(init, str):
        raise InputError("init: Embedded starts from 'zero' or 'uniform', not from given logits")
    if isinstance(model, Extended):
        _check_finite_length(model, engine)


def _check_finite_length(model: Extended, engine: Engine) -> None:
    """Refuse what has no meaning for T to infinity, and biases that do not fit the length."""
    if isinstance(engine, Sampled):
        if isinstance(model.position, FixedPosition):
            model.position.biases(engine.length - 1)
    elif model.position is not None:
        raise InputError(
            "position: for T to infinity a bias by distance cancels, because tokens are drawn "
            "alike at all distances; use the engine Sampled"
        )
    elif model.attend_self:
        raise InputError(
            "attend_self: for T to infinity the query's own token is one of infinitely many and "
            "has no weight; use the engine Sampled"
        )


def _prepare(
    sets: Sequence[SequenceClasses],
    engine: Engine,
    model: Model,
    optimizer: Optimizer,
    init: Init,
    grid: Grid,
    own_data: bool,
    save: Save,
    steps: float,
    dtype: str,
    lump: bool,
) -> Run:
    heads = model.heads if isinstance(model, Extended) else 1
    what, first = tuple(save.what), sets[0]
    rows = ("attention" in what) * len(first) + ("logits" in what) * first.queries.size
    numbers = len(sets) * grid.runs * heads * rows * first.vocab_size
    record_bytes = numbers * np.dtype(dtype).itemsize
    moments: NDArray[Any] = (
        save.times(float(steps), record_bytes)
        if isinstance(engine, Flow)
        else save.steps(int(steps), record_bytes)
    )
    require_room_to_lay_out(
        sets, heads=heads, dense=_is_dense(engine, model), what=what, runs=grid.runs,
        records=moments.size, itemsize=np.dtype(dtype).itemsize,
    )  # fmt: skip
    settings = tuple(_lay_out(classes, engine, model, init, heads, lump) for classes in sets)
    run = Run(
        settings, engine, model, optimizer, init, grid, what, moments, np.dtype(dtype), own_data
    )
    require_room(run)
    return run


def _is_dense(engine: Engine, model: Model) -> bool:
    """Whether every token in play has a place of its own."""
    return isinstance(engine, Sampled) or isinstance(model, Embedded | Extended)


def _lay_out(
    classes: SequenceClasses, engine: Engine, model: Model, init: Init, heads: int, lump: bool
) -> Setting:
    start_logits = initial_logits(classes, init, heads=heads)
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
            lump=lump and symmetric,
            start_logits=None if isinstance(init, str) else start_logits,
        )
    return Setting(classes, layout, where, start_logits)


def label(run: Run, recorded: Recorded) -> xr.Dataset:
    """The recorded arrays as a Dataset of the common schema, with a dim `setting`."""
    sets, grid = [setting.classes for setting in run.settings], run.grid
    clock = run.clock
    outer = ("setting", *grid.dims())
    # an axis of heads is there where there are several
    heads = run.model.heads if isinstance(run.model, Extended) else 1
    head = ("head",) if heads > 1 else ()
    inner = {
        "loss": (),
        "position_bias": (*head, "distance"),
        "attention": (*head, "sequence_class", "token"),
        "attention_logits": (*head, "query", "token"),
    }
    per_class = (*head, "sequence_class")  # the statistics
    variables: dict[str, Any] = {
        name: ((*outer, clock, *inner.get(name, per_class)), grid.label(values))
        for name, values in recorded.values.items()
    }
    coords: dict[Any, Any] = {
        **grid.coords(),
        clock: recorded.moments,
        "sequence_class": np.arange(len(sets[0])),
        "query_token": (("setting", "sequence_class"), [of.query for of in sets]),
        "next_token": (("setting", "sequence_class"), [of.next_token for of in sets]),
    }
    if head:
        coords["head"] = np.arange(heads)
    if "position_bias" in recorded.values:
        coords["distance"] = np.arange(1, recorded.values["position_bias"].shape[-1] + 1)
    if "attention" in run.what or "logits" in run.what:
        coords["token"] = np.arange(sets[0].vocab_size)
        if sets[0].names is not None:
            coords["token_name"] = (("setting", "token"), [of.names for of in sets])
        probs = [of.probs for of in sets]
        variables["probability"] = (("setting", "sequence_class", "token"), probs)
    if "attention_logits" in recorded.values:
        coords["query"] = sets[0].queries
    if recorded.failures:
        diverged = np.full(run.shape, -1.0)
        for place, (moment, _) in recorded.failures.items():
            diverged[place] = moment
        variables["diverged_step"] = (outer, grid.label(diverged))
    return xr.Dataset(variables, coords)


def _spec(run: Run, steps: float, save: Save, lump: bool) -> dict[str, Any]:
    sets = [setting.classes for setting in run.settings]
    classes = [{"origin": of.origin, "digest": of.digest} for of in sets]
    return {
        "classes": classes[0] if len(classes) == 1 else classes,
        "engine": {"name": type(run.engine).__name__, **asdict(run.engine)},
        "model": {"name": type(run.model).__name__, **asdict(run.model)},
        "optimizer": asdict(run.optimizer),
        "init": run.init if isinstance(run.init, str) else "given logits",
        "steps": steps,
        "eta_y": run.grid.eta_y.values.tolist(),
        "eta_z": run.grid.eta_z.values.tolist(),
        "seeds": run.grid.seeds.tolist(),
        "own_data": run.own_data,
        "save": asdict(save),
        "dtype": str(run.dtype),
        "lump": lump,
    }


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
