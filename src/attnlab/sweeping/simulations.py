"""Simulations, as a sweep runs them: their rates and classes, what they cost, what sums them up.

The constants of the cost were read off two CPU cores (`./lab bench sweep` prints estimate and truth
side by side); another machine differs from them by one factor, which the display of a sweep in
progress does not need: it goes by what has been done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab import measures
from attnlab.data import SequenceClasses, classes_from
from attnlab.data.class_files import CLASS_SUFFIXES
from attnlab.data.presets import is_preset, parameters_of
from attnlab.dynamics import Diverged, Engine, Model, Optimizer, Save, Simulation, simulate
from attnlab.dynamics.layout import Sizes
from attnlab.dynamics.simulation import FIELD_KINDS, Precision
from attnlab.files.errors import InputError
from attnlab.files.memory import require_memory
from attnlab.files.recipe import as_value
from attnlab.sweeping.kind import Axes, Cost, Given, Kind, Tell
from attnlab.sweeping.schema import OUTER

Start = Literal["zero", "uniform"]

STEP_SECONDS = 2e-6  # of a step of a run, however small
DRAW_SECONDS = 4e-8  # for each sequence and token of a class
PRODUCT_SECONDS = 1.5e-10  # for each term of a product of rows, tokens and outputs
FLOW_EVALUATIONS = 2000  # of the gradient, however long the flow
# Records are held as they come, as they are labelled, as they are summed up and as they are checked
# against the file.
RECORD_COPIES = 4
# Numbers as large as Y that a run needs: itself, its gradient, memory and stages of a solver.
STATE_COPIES = {"step": 4, "time": 12}
ROW_COPIES = 2  # of sequences: what was drawn, and what the gradient makes of it
TABLE_COPIES = 2  # of what sequences are drawn from: alone and stacked
MOST_RECORDS = 10_000_000

OF_ATTENTION = {
    "entropy": measures.entropy,
    "distinct_entropy": measures.distinct_entropy,
    "common_mass": measures.common_mass,
    "effective_tokens": measures.effective_tokens,
}


class Simulations(Kind):
    """`Simulation`, whose source are its classes: several sets of one size go together."""

    value = Simulation
    source = "classes"
    rates: ClassVar[dict[str, str]] = {"eta_y": "eta_y", "eta_z": "eta_z", "ratio": "eta_y"}
    numbers = ("data", "measures", "dynamics", "sweep")
    compile_seconds = 6.0

    def fields(self) -> dict[str, Any]:
        """Those of a simulation, but for rates, which are single numbers or in the grid."""
        rate = float | None
        return {"classes": str, **FIELD_KINDS, "eta_y": rate, "eta_z": rate, "ratio": rate}

    def swept(self) -> dict[str, Any]:
        return {
            "init": Start, "steps": float, "classes": str | int, "engine": Engine,
            "optimizer": Optimizer, "model": Model, "independent": bool, "dtype": Precision,
            "lump": bool,
        }  # fmt: skip

    def parameters(self, source: SequenceClasses | str | float) -> list[str]:
        return parameters_of(_text(source)) if _can_be_named(source) else []

    def check(self, given: Given, grid: Given) -> None:
        dtype = as_value("dtype", given.get("dtype", "float32"), Precision)
        as_value("independent", given.get("independent", False), bool)
        said = {
            name: grid.get(name, (given.get(name),))
            for name in self.rates
            if name in grid or name in given
        }
        if list(said) not in (["eta_y", "eta_z"], ["eta_z", "ratio"]):
            raise InputError(
                "grid: give eta_z, and either eta_y or ratio (eta_y = ratio * eta_z), here or "
                "outside the grid"
            )
        for name, values in said.items():
            if name in grid and name in given:
                raise InputError(f"{name}: is swept in the grid; leave it out here")
            for i, value in enumerate(values):
                _check_rate(f"grid.{name}[{i}]" if name in grid else name, value, dtype)
        if "ratio" in said:
            largest = math.prod(max(map(float, values)) for values in said.values())
            _check_rate("ratio: eta_y = ratio * eta_z", largest, dtype)
        if "steps" in given and not as_value("steps", given["steps"], float) > 0:
            raise InputError(f"steps: expected a positive number, got {given['steps']!r}")
        init = given.get("init", "zero")
        if isinstance(init, str) and init not in get_args(Start):
            raise InputError(f"init: expected one of {get_args(Start)}, got {init!r}")

    def axes(self, given: Given, grid: Given) -> Axes:
        return {name: tuple(map(float, of)) for name, of in grid.items() if name in self.rates}

    def points(self, given: Given, grid: Given) -> dict[str, NDArray[np.float64]]:
        swept = self.axes(given, grid)
        mesh = np.meshgrid(*swept.values(), indexing="ij") if swept else []
        points = dict(zip(swept, mesh, strict=True))
        size = mesh[0].shape if mesh else ()
        for name in self.rates:
            if name in given:
                points[name] = np.full(size, float(given[name]))
        eta_y = points["eta_y"] if "eta_y" in points else points["ratio"] * points["eta_z"]
        return {"eta_y": eta_y.ravel(), "eta_z": points["eta_z"].ravel()}

    def source_with(self, source: SequenceClasses | str, parameters: Given) -> SequenceClasses:
        if not parameters:
            return classes_from(source) if isinstance(source, str) else source
        name, _, rest = _text(source).partition(":")
        if _text(source).lower().endswith(CLASS_SUFFIXES):
            raise InputError(f"{next(iter(parameters))}: classes from a file have no parameters")
        kept = dict(part.split("=", 1) for part in rest.split(",") if "=" in part)
        kept = {key.strip(): text for key, text in kept.items()}
        kept |= {key: _number(value) for key, value in parameters.items()}
        return classes_from(f"{name}:{','.join(f'{key}={text}' for key, text in kept.items())}")

    def way(self, source: SequenceClasses, fields: Given) -> Simulation:
        rates = {"eta_y": 1.0, "eta_z": 1.0, "seeds": 1}
        return Simulation(source, **{k: v for k, v in fields.items() if k != "ratio"} | rates)

    def sizes(self, source: SequenceClasses) -> tuple[Any, ...]:
        sizes = (source.vocab_size, len(source), source.in_play.size, source.num_nonzeros)
        return *sizes, tuple(source.queries.tolist()), source.names is None

    def record_steps(self, way: Simulation) -> tuple[float, ...]:
        save, steps = way.save, way.steps
        count = steps / save.every if save.every else save.geometric or 0
        if count > MOST_RECORDS:
            field = "every" if save.every else "geometric"
            raise InputError(
                f"save.{field}: would record each run {count:.3g} times; record it at most "
                f"{MOST_RECORDS:,} times"
            )
        return tuple(map(float, way.engine.record_steps(save, steps, 0)))

    def value_at(
        self, way: Simulation, sources: Sequence[SequenceClasses], points: Given,
        seeds: Sequence[int], record_steps: Sequence[float],
    ) -> Simulation:  # fmt: skip
        eta_y, eta_z = (xr.DataArray(points[name], dims="cell") for name in ("eta_y", "eta_z"))
        save = Save(way.save.what, at=record_steps)
        return replace(
            way, classes=tuple(sources), eta_y=eta_y, eta_z=eta_z, seeds=tuple(seeds), save=save
        )

    def title(self, source: SequenceClasses | str) -> str:
        return _text(source)

    # -- what a run costs -------------------------------------------------------------------------

    def cost(self, way: Simulation, source: SequenceClasses, records: int) -> Cost:
        model, engine, what = way.model, way.engine, way.save.what
        sizes = Sizes.expected(source, symmetric_start=model.symmetric(way.init))
        M, K, Q = sizes.vocab_size, sizes.classes, sizes.queries
        itemsize = np.dtype(way.dtype).itemsize
        numbers = model.heads * (
            ("attention" in what) * K * M
            + ("logits" in what) * Q * M
            + ("statistics" in what) * 4 * K
        ) + ("loss" in what)
        numbers += ("logits" in what) * model.extra_numbers(source)
        kept = float(numbers * records * itemsize)
        state = STATE_COPIES[way.clock] * sum(model.numbers(sizes).values())
        state += ROW_COPIES * sum(engine.numbers(sizes, model).values())
        rows = engine.rows_per_step(K)
        gradient = (
            STEP_SECONDS
            + DRAW_SECONDS * engine.draws(source)
            + PRODUCT_SECONDS * model.products(sizes, rows)
        )
        steps = FLOW_EVALUATIONS if way.clock == "time" else way.steps
        cost = Cost(
            RECORD_COPIES * kept + state * itemsize,
            kept,
            float(steps * gradient),
            TABLE_COPIES * engine.table_bytes(source),
        )
        advice = "take fewer tokens, classes, sequences, dims or records"
        require_memory(source.origin, cost.memory + cost.tables, advice)  # of a single run
        return cost

    # -- what a run gives -------------------------------------------------------------------------

    def run(self, value: Simulation, tell: Tell) -> tuple[xr.Dataset, str]:
        cause, record_steps = "", value.record_steps
        try:
            result = simulate(value, progress=tell)
        except Diverged as problem:
            # where every run has diverged, what comes after the last of them is not even recorded
            cause, result = str(problem), problem.dataset.reindex({value.clock: record_steps})
        if "diverged_step" not in result:
            none = np.full((len(value.sets), value.grid.points, len(value.grid.seeds)), -1.0)
            result["diverged_step"] = (OUTER, none)
        return result.assign(summary(result)), cause


SIMULATIONS = Simulations()


def _text(source: Any) -> str:
    return source.origin if isinstance(source, SequenceClasses) else str(source)


def _can_be_named(source: Any) -> bool:
    """Whether the name of a source is all of it."""
    if not isinstance(source, SequenceClasses):
        return True
    return is_preset(source.origin) and classes_from(source.origin) == source


def _check_rate(where: str, value: Any, dtype: str) -> None:
    if not 0 <= as_value(where, value, float) <= float(np.finfo(dtype).max):
        raise InputError(
            f"{where}: expected a number of at least 0 that is finite in {dtype}, got {value}"
        )


def _number(value: Any) -> str:
    """A number as text that loses nothing; whole ones without a point, as presets want them."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        value = int(value)
    return repr(value)


def summary(result: xr.Dataset) -> xr.Dataset:
    """Numbers over (setting, cell, seed): means over classes, of what was recorded.

    `final_...` is the value at the last record; `snap_step` (or `snap_time`) is the mean over the
    classes whose attention has snapped.
    """
    if "attention" not in result:
        return _summary(result)
    # tokens have their roles in their own setting; settings that agree in them go together
    alike: dict[bytes, list[int]] = {}
    for number, drawn in enumerate(result["probability"].values > 0):
        alike.setdefault(drawn.tobytes(), []).append(number)
    parts = []
    for numbers in alike.values():
        some = result.isel(setting=numbers)
        parts.append(_summary(some.assign(probability=some["probability"][0])))
    order = np.argsort(np.concatenate(list(alike.values())))
    return xr.concat(parts, "setting").isel(setting=order)


def _summary(result: xr.Dataset) -> xr.Dataset:
    clock = measures.clock_of(result)
    last = result.isel({clock: -1}, drop=True)
    found = {}
    for name, measure in OF_ATTENTION.items():
        if name in result or "attention" in result:
            found[f"final_{name}"] = measure(last)
    if "loss" in result:
        found["final_loss"] = last["loss"]
    if "attention" in result and result.sizes[clock] > 1:
        found[f"snap_{clock}"] = measures.snap_time(result)
    return xr.Dataset({name: _mean(values) for name, values in found.items()})


def _mean(values: xr.DataArray) -> xr.DataArray:
    inner = [dim for dim in values.dims if dim not in OUTER]
    return values.mean(inner).reset_coords(drop=True).drop_attrs()
