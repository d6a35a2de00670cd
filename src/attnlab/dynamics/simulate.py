"""simulate(): one entry point for every engine, optimiser, start and model."""

from __future__ import annotations

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
from attnlab.dynamics.divergence import Diverged
from attnlab.dynamics.engines import Engine, Flow, Limit, Sampled
from attnlab.dynamics.extended import Extended
from attnlab.dynamics.flow import run_flow
from attnlab.dynamics.grid import Grid, make_grid
from attnlab.dynamics.layout import dense_layout, sparse_layout
from attnlab.dynamics.models import Embedded, Model, Pairwise
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.positions import FixedPosition
from attnlab.dynamics.progress import Choice, reporting
from attnlab.dynamics.run import Recorded, Run
from attnlab.dynamics.save import Save
from attnlab.dynamics.start import Init, initial_logits, is_symmetric
from attnlab.dynamics.stepping import run_steps
from attnlab.results.provenance import provenance


def simulate(
    classes: SequenceClasses | str,
    engine: Engine | None = None,
    *,
    eta_y: Any,
    eta_z: Any,
    steps: float,
    optimizer: str | Optimizer = "sgd",
    momentum: float = 0.0,
    init: Init = "zero",
    seeds: int | Sequence[int] = 1,
    save: Save | None = None,
    dtype: str = "float32",
    model: Model | None = None,
    lump: bool = True,
    progress: Choice = "auto",
) -> xr.Dataset:
    """Train the 1-layer transformer of "Scan and Snap" on sequence classes and record it.

    classes: what is learnt from, or the name of a preset ("syn-medium:num_last=3").
    engine: `Sampled(length, batch_size)`, `Limit(batch_size=None)` (default) or `Flow()`.
    eta_y, eta_z: rates of the decoder Y and of the attention Z; numbers, lists (each becomes a
        dim) or DataArrays (their dims are kept), all run together.
    steps: optimiser steps; for `Flow`, time in units of one expected-gradient step.
    optimizer, momentum: "sgd", "adam", "adamw" or an `Optimizer`.
    init: "zero"; "uniform", each entry of Y and Z uniform in +-1/sqrt(M); or logits z(0), an
        array (query, token) or (token,), with Y(0) = 0; with several heads also (head, query,
        token).
    seeds: how many, or which. A seed fixes the data and the start; runs that differ only in
        rates see the same data.
    save: what to record and when; see `Save`.
    dtype: "float32" or "float64", for this call only.
    model: `Pairwise()` (Y and Z, default), `Embedded(dim)` (U, W_Q, W_K, W_V), or `Extended(...)`
        (residual, normalisation, heads, positions, self-attention; docs/guides/variants.md).
    lump: let exchangeable tokens share one entry; exact, and off only to check that it is.
    progress: "auto", True, False, or a function that is called with the fraction done.

    Returns a Dataset with dims (swept rates, seed, step or time, sequence_class, query, token);
    docs/results.md describes it. Raises `Diverged`, which carries what was recorded, when
    numbers leave the finite range.
    """
    classes = resolve(classes) if isinstance(classes, str) else classes
    engine = Limit() if engine is None else engine
    model = Pairwise() if model is None else model
    save = Save() if save is None else save
    if isinstance(optimizer, str):
        optimizer = Optimizer(name=optimizer, momentum=momentum)  # type: ignore[arg-type]
    elif momentum:
        raise ValueError("momentum: set it in the Optimizer that was given")
    _check(engine, steps, dtype, optimizer, model, init)
    grid = make_grid(eta_y, eta_z, seeds)
    begun = time.perf_counter()
    # float64 for this call only: the caller's global setting stays as it is
    with jax.enable_x64(dtype == "float64"):
        run = _prepare(classes, engine, model, optimizer, init, grid, save, steps, dtype, lump)
        with reporting(progress, grid.runs * float(run.moments[-1]), classes.origin) as report:
            recorded = (run_flow if isinstance(engine, Flow) else run_steps)(run, report)
        device = jax.devices()[0]
    attrs = provenance(
        _spec(run, steps, save, lump),
        device=f"{device.platform}: {device.device_kind}",
        dtype=dtype,
        vocab_size=classes.vocab_size,
        seconds=time.perf_counter() - begun,
    )
    dataset = label(run, recorded).assign_attrs(attrs)
    if recorded.failures:
        raise Diverged(_explain(grid, recorded), dataset)
    return dataset


def _check(
    engine: Engine, steps: float, dtype: str, optimizer: Optimizer, model: Model, init: Init
) -> None:
    if not isinstance(engine, (Sampled, Limit, Flow)):
        raise ValueError(f"engine: expected Sampled, Limit or Flow, got {engine!r}")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype: expected 'float32' or 'float64', got {dtype!r}")
    if isinstance(engine, Flow):
        if not (np.isfinite(steps) and steps > 0):
            raise ValueError(f"steps: expected a positive time, got {steps}")
        if optimizer != Optimizer(weight_decay=optimizer.weight_decay):
            raise ValueError(
                "optimizer: the flow is that of plain gradient descent; use 'sgd' without "
                "momentum, or a stepping engine"
            )
    elif int(steps) != steps or steps < 1:
        raise ValueError(f"steps: expected a positive whole number, got {steps}")
    if isinstance(model, Embedded) and not isinstance(init, str):
        raise ValueError("init: Embedded starts from 'zero' or 'uniform', not from given logits")
    if isinstance(model, Extended):
        _check_finite_length(model, engine)


def _check_finite_length(model: Extended, engine: Engine) -> None:
    """Refuse what has no meaning for T to infinity, and biases that do not fit the length."""
    if isinstance(engine, Sampled):
        if isinstance(model.position, FixedPosition):
            model.position.biases(engine.length - 1)
    elif model.position is not None:
        raise ValueError(
            "position: for T to infinity a bias by distance cancels, because tokens are drawn "
            "alike at all distances; use the engine Sampled"
        )
    elif model.attend_self:
        raise ValueError(
            "attend_self: for T to infinity the query's own token is one of infinitely many and "
            "has no weight; use the engine Sampled"
        )


def _prepare(
    classes: SequenceClasses,
    engine: Engine,
    model: Model,
    optimizer: Optimizer,
    init: Init,
    grid: Grid,
    save: Save,
    steps: float,
    dtype: str,
    lump: bool,
) -> Run:
    heads = model.heads if isinstance(model, Extended) else 1
    start_logits = initial_logits(classes, init, heads=heads)
    symmetric = not isinstance(model, Embedded) and is_symmetric(init)
    if isinstance(model, Extended):
        layout, where = dense_layout(
            classes,
            symmetric_start=symmetric,
            also=classes.queries if model.residual or model.attend_self else None,
            whole=model.normalization == "layer",  # the mean is taken away from all M coordinates
        )
    elif isinstance(engine, Sampled) or isinstance(model, Embedded):
        layout, where = dense_layout(classes, symmetric_start=symmetric)
    else:
        layout, where = sparse_layout(
            classes,
            symmetric_start=symmetric,
            lump=lump and symmetric,
            start_logits=None if isinstance(init, str) else start_logits,
        )
    layout = layout.on_device(np.dtype(dtype))
    what = tuple(save.what)
    rows = ("attention" in what) * len(classes) + ("logits" in what) * classes.queries.size
    record_bytes = grid.runs * heads * rows * classes.vocab_size * np.dtype(dtype).itemsize
    moments: NDArray[Any] = (
        save.times(float(steps), record_bytes)
        if isinstance(engine, Flow)
        else save.steps(int(steps), record_bytes)
    )
    return Run(
        classes, engine, model, optimizer, init, grid, what, moments, np.dtype(dtype), layout,
        where, start_logits,
    )  # fmt: skip


def label(run: Run, recorded: Recorded) -> xr.Dataset:
    """The recorded arrays as a Dataset of the common schema."""
    classes, grid = run.classes, run.grid
    clock = "time" if isinstance(run.engine, Flow) else "step"
    dims = (*grid.dims(), clock)
    variables: dict[str, Any] = {}
    coords: dict[Any, Any] = {
        **grid.coords(),
        clock: recorded.moments,
        "sequence_class": np.arange(len(classes)),
        "query_token": ("sequence_class", classes.query),
        "next_token": ("sequence_class", classes.next_token),
    }
    # an axis of heads is there where there are several
    head: tuple[str, ...] = ()
    if isinstance(run.model, Extended) and run.model.heads > 1:
        head = ("head",)
        coords["head"] = np.arange(run.model.heads)
    for name, values in recorded.values.items():
        if name == "position_bias":
            coords["distance"] = np.arange(1, values.shape[-1] + 1)
            variables[name] = ((*dims, *head, "distance"), grid.label(values))
        elif "." not in name:
            per_class = (*head, "sequence_class") if values.ndim > 3 else ()
            variables[name] = ((*dims, *per_class), grid.label(values))
    if "attention" in run.what or "logits" in run.what:
        coords["token"] = np.arange(classes.vocab_size)
        if classes.names is not None:
            coords["token_name"] = ("token", np.asarray(classes.names))
        variables["probability"] = (("sequence_class", "token"), classes.probs)
    if "attention.shared" in recorded.values:
        shared, own = recorded.values["attention.shared"], recorded.values["attention.own"]
        attention = run.where.attention(shared, own, classes.vocab_size)
        variables["attention"] = ((*dims, *head, "sequence_class", "token"), grid.label(attention))
    if "logits.shared" in recorded.values:
        coords["query"] = classes.queries
        shared, own = recorded.values["logits.shared"], recorded.values["logits.own"]
        logits = run.where.logits(shared, own, run.start_logits, classes.query_index)
        variables["attention_logits"] = ((*dims, *head, "query", "token"), grid.label(logits))
    if recorded.failures:
        diverged = np.full((grid.seeds.size, grid.points), -1.0)
        for (seed, point), (moment, _) in recorded.failures.items():
            diverged[seed, point] = moment
        variables["diverged_step"] = (grid.dims(), grid.label(diverged))
    return xr.Dataset(variables, coords)


def _spec(run: Run, steps: float, save: Save, lump: bool) -> dict[str, Any]:
    return {
        "classes": {"origin": run.classes.origin, "digest": run.classes.digest},
        "engine": {"name": type(run.engine).__name__, **asdict(run.engine)},
        "model": {"name": type(run.model).__name__, **asdict(run.model)},
        "optimizer": asdict(run.optimizer),
        "init": run.init if isinstance(run.init, str) else "given logits",
        "steps": steps,
        "eta_y": run.grid.eta_y.values.tolist(),
        "eta_z": run.grid.eta_z.values.tolist(),
        "seeds": run.grid.seeds.tolist(),
        "save": asdict(save),
        "dtype": str(run.dtype),
        "lump": lump,
    }


def _explain(grid: Grid, recorded: Recorded) -> str:
    (seed, point), (moment, array) = min(recorded.failures.items(), key=lambda item: item[1])
    name = {"Y": "the decoder Y", "Z": "the attention logits Z"}.get(array, array)
    others = len(recorded.failures) - 1
    return (
        f"{name} became non-finite at step {moment:g} ({grid.describe(seed, point)})"
        + (f", and {others} more of {grid.runs} runs diverged" if others else "")
        + "; what was recorded before is in the error's `dataset`. Try smaller rates."
    )
