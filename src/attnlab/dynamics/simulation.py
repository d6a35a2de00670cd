"""Simulation: one value that says everything about a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.data.class_files import classes_document, classes_from_document
from attnlab.data.classes import SequenceClasses
from attnlab.data.presets import is_preset, resolve
from attnlab.defaults import ETA_Y, ETA_Z, STEPS
from attnlab.dynamics.engines import Engine, Sampled
from attnlab.dynamics.grid import Grid, as_rate, make_grid
from attnlab.dynamics.labels import classes_of
from attnlab.dynamics.models import Model, Pairwise
from attnlab.dynamics.optimizers import (
    Optimizer,
    Transformation,
    as_optimizer,
    optimizer_from,
)
from attnlab.dynamics.save import Save
from attnlab.dynamics.start import Init, checked_init, initial_logits
from attnlab.files.documents import check_keys
from attnlab.files.errors import InputError
from attnlab.files.recipe import Numbers, as_value, plain

Classes = SequenceClasses | str | Sequence[SequenceClasses | str]
Precision = Literal["float32", "float64"]


@dataclass(frozen=True)
class _RateDocument:
    """A rate along dims, as it stands in a file: values nested as the dims are."""

    dims: tuple[str, ...]
    values: Numbers
    coords: dict[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Simulation:
    """The training of a 1-layer transformer on sequence classes, and what to record of it.

    The defaults are the paper's protocol for Syn-Small. A value that is checked when it is made,
    equal to others by content, and changed by `dataclasses.replace`.

    Parameters
    ----------
    classes : SequenceClasses, str or sequence of them
        What is learnt from, or the name of a preset ("syn-medium:num_last=3"). Several sets of the
        same sizes and queries, as a list, run together and have a dim `setting`.
    engine : Engine, optional
        `Sampled(length=128, batch_size=128)` (default), `Limit(batch_size=None)` or `Flow()`.
    model : Model, optional
        `Pairwise()` (Y and Z, default), `Embedded(dim)` (U, W_Q, W_K, W_V), `Extended(...)`
        (residual, normalisation, heads, positions, self-attention; docs/guides/variants.md),
        `Joint(hidden, activation, attention)` (an MLP over attention, the model of JoMA).
    optimizer : str, Optimizer or callable, optional
        "sgd", "adam", "adamw", an `Optimizer`, or a function that makes an optax transformation
        from a rate. The momentum of sgd is 0.9 unless it is given; the flow has none.
    eta_y, eta_z
        Rates of the decoder Y and of the attention Z; numbers, lists (each becomes a dim) or
        DataArrays (their dims are kept), all run together.
    steps : float, optional
        Optimiser steps; for `Flow`, time in units of one expected-gradient step.
    init : str or array_like, optional
        "zero"; "uniform", each entry of Y and Z uniform in +-1/sqrt(M) (`Embedded` and `Joint` say
        what they draw); or logits z(0), an array (query, token) or (token,), with Y(0) = 0; with
        several heads also (head, query, token).
    seeds : int or sequence, optional
        How many, or which. A seed fixes the data and the start; runs that differ only in rates see
        the same data, so that their differences have little noise.
    independent : bool, optional
        Let each combination of classes, engine, model, optimiser and rates draw data and start of
        its own, so that cells are independent.
    save : Save, optional
        What to record and when; see `Save`.
    dtype : {"float32", "float64"}, optional
        "float32" or "float64".
    lump : bool, optional
        Let exchangeable tokens share one entry; exact, and off only to check that it is.
    """

    classes: Classes
    engine: Engine = field(default_factory=Sampled)
    model: Model = field(default_factory=Pairwise)
    optimizer: str | Optimizer | Transformation = field(default_factory=Optimizer)
    eta_y: Any = ETA_Y
    eta_z: Any = ETA_Z
    steps: float = STEPS
    init: Init = "zero"
    seeds: int | Sequence[int] = 1
    independent: bool = False
    save: Save = field(default_factory=Save)
    dtype: Precision = "float32"
    lump: bool = True

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("classes", _resolved(self.classes))
        put("optimizer", as_optimizer(self.optimizer))
        for name, base in (("engine", Engine), ("model", Model)):
            value = getattr(self, name)
            if not isinstance(value, base):
                known = ", ".join(kind.__name__ for kind in base.kinds().values())
                raise InputError(f"{name}: expected one of {known}, got {value!r}")
            if not is_dataclass(value) or type(value).__hash__ is None:
                raise InputError(
                    f"{name}: {type(value).__name__} is no frozen dataclass; write "
                    "@dataclass(frozen=True) above the class"
                )
        if self.dtype not in ("float32", "float64"):
            raise InputError(f"dtype: expected 'float32' or 'float64', got {self.dtype!r}")
        self.engine.check(self.steps, self.dtype, self.moving)
        self.model.check(self.engine, self.init)
        put("steps", float(self.steps) if self.clock == "time" else int(self.steps))
        grid = make_grid(self.eta_y, self.eta_z, self.seeds, self.dtype)
        put("eta_y", as_rate("eta_y", self.eta_y, self.dtype))
        put("eta_z", as_rate("eta_z", self.eta_z, self.dtype))
        put("seeds", tuple(grid.seeds.tolist()))
        put("init", checked_init(self.sets[0], self.init, heads=self.model.heads))

    @property
    def sets(self) -> tuple[SequenceClasses, ...]:
        """The sets of classes, one or several."""
        made: Any = self.classes  # read from their names by now
        return made if isinstance(made, tuple) else (made,)

    @property
    def moving(self) -> Optimizer:
        """The optimiser as it is with this engine."""
        return as_optimizer(self.optimizer).with_momentum(self.engine.usual_momentum)

    @property
    def clock(self) -> Literal["step", "time"]:
        """The dim along which runs are recorded."""
        return self.engine.clock

    @cached_property
    def grid(self) -> Grid:
        """The runs, by seed and by rates."""
        return make_grid(self.eta_y, self.eta_z, self.seeds, self.dtype)

    @cached_property
    def record_steps(self) -> NDArray[Any]:
        """The steps, or times of the flow, at which runs are recorded."""
        first, what = self.sets[0], self.save.what
        rows = ("attention" in what) * len(first) + ("logits" in what) * first.queries.size
        numbers = self.model.heads * rows * first.vocab_size
        numbers += ("logits" in what) * self.model.extra_numbers(first)
        numbers *= len(self.sets) * self.grid.runs
        record_bytes = numbers * np.dtype(self.dtype).itemsize
        return self.engine.record_steps(self.save, self.steps, record_bytes)

    def start_logits(self, classes: SequenceClasses) -> NDArray[np.float64]:
        """z(0) of one of the sets, (query, token) or (head, query, token)."""
        return initial_logits(
            classes, self.init, heads=self.model.heads, neutral=self.model.neutral_logit
        )

    # -- identity ---------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """A content hash: equal for equal simulations."""
        sets = [[of.digest, of.names] for of in self.sets]
        settings = {name: of for name, of in self.spec.items() if name != "classes"}
        content = [isinstance(self.classes, tuple), sets, settings]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Simulation) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    # -- documents ----------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """All of it as plain values, as a recipe file has them."""
        sets = [_as_written(of) for of in self.sets]
        return {
            "classes": sets if isinstance(self.classes, tuple) else sets[0],
            **self._settings(),
        }

    @cached_property
    def spec(self) -> dict[str, Any]:
        """What a result says that it was made from, with every default written out; `of` reads it.

        Classes can be large: they are named here, and kept beside as probabilities.
        """
        sets = [{"origin": of.origin, "digest": of.digest} for of in self.sets]
        return {
            "classes": sets if isinstance(self.classes, tuple) else sets[0],
            **self._settings(),
            "engine": self.engine.to_document(defaults=True),
            "model": self.model.to_document(defaults=True),
            "optimizer": self.moving.to_document(defaults=True),
            "seeds": list(self.seeds),  # type: ignore[arg-type]
            "save": plain(self.save, defaults=True),
        }

    def _settings(self) -> dict[str, Any]:
        seeds = list(self.seeds)  # type: ignore[arg-type]
        return {
            "engine": self.engine.to_document(),
            "model": self.model.to_document(),
            "optimizer": as_optimizer(self.optimizer).to_document(),
            "eta_y": _rate_document(self.eta_y),
            "eta_z": _rate_document(self.eta_z),
            "steps": self.steps,
            "init": self.init if isinstance(self.init, str) else np.asarray(self.init).tolist(),
            "seeds": len(seeds) if seeds == list(range(len(seeds))) else seeds,
            "independent": self.independent,
            "save": plain(self.save),
            "dtype": self.dtype,
            "lump": self.lump,
        }

    @classmethod
    def from_document(cls, document: Any) -> Simulation:
        """The simulation that a document describes; errors name the field and the remedy."""
        check_keys("", document, ("classes", *FIELD_KINDS), ("classes",))
        classes = document["classes"]
        if isinstance(classes, list):
            made: Any = tuple(_read_classes(f"classes[{i}]", of) for i, of in enumerate(classes))
        else:
            made = _read_classes("classes", classes)
        settings = {name: value for name, value in document.items() if name != "classes"}
        return cls(classes=made, **_read_settings(settings))

    @classmethod
    def of(cls, result: xr.Dataset) -> Simulation:
        """The simulation that a labelled result was made from."""
        try:
            spec = json.loads(result.attrs["spec"])
            settings = {name: spec[name] for name in FIELD_KINDS}
        except (KeyError, TypeError, json.JSONDecodeError):
            raise InputError("result: not one that simulate() or predict() made") from None
        return cls(classes=classes_of(result, spec["classes"]), **_read_settings(settings))


class Fields(TypedDict, total=False):
    """The fields of a `Simulation` past its classes and engine, and the momentum of its sgd."""

    model: Model | None
    optimizer: str | Optimizer | Transformation
    momentum: float | None
    eta_y: Any
    eta_z: Any
    steps: float
    init: Init
    seeds: int | Sequence[int]
    independent: bool
    save: Save | None
    dtype: str
    lump: bool


def as_simulation(
    given: Simulation | Classes, engine: Engine | None = None, **fields: Unpack[Fields]
) -> Simulation:
    """A simulation, or what makes one: its classes, engine and any of its fields.

    What is None is as by default; with a simulation, the fields given replace its own.

    Parameters
    ----------
    given : Simulation, SequenceClasses, str or sequence of them
        A simulation, or its classes.
    engine : Engine, optional
        Its engine.
    **fields
        Its other fields, and the momentum of its sgd.

    Returns
    -------
    Simulation
        The value.

    Examples
    --------
    >>> from attnlab.dynamics import as_simulation
    >>> as_simulation("syn-small", eta_y=2.0).eta_y
    2.0
    """
    chosen = {name: value for name, value in fields.items() if value is not None}
    if engine is not None:
        chosen["engine"] = engine
    momentum = chosen.pop("momentum", None)
    if "optimizer" in chosen or momentum is not None:
        optimizer: Any = chosen.get("optimizer", "sgd")
        chosen["optimizer"] = as_optimizer(optimizer, momentum)  # type: ignore[arg-type]
    if isinstance(given, Simulation):
        return replace(given, **chosen)  # type: ignore[arg-type]
    return Simulation(classes=given, **chosen)  # type: ignore[arg-type]


FIELD_KINDS: dict[str, Any] = {
    "engine": Engine,
    "model": Model,
    "optimizer": Optimizer,
    "eta_y": float | tuple[float, ...] | _RateDocument,
    "eta_z": float | tuple[float, ...] | _RateDocument,
    "steps": float,
    "init": Literal["zero", "uniform"] | Numbers,
    "seeds": int | tuple[int, ...],
    "independent": bool,
    "save": Save,
    "dtype": Precision,
    "lump": bool,
}


def _read_settings(document: dict[str, Any]) -> dict[str, Any]:
    """The fields past the classes, from a document."""
    given = {
        name: optimizer_from(value)
        if name == "optimizer"
        else as_value(name, value, FIELD_KINDS[name])
        for name, value in document.items()
    }
    if isinstance(given.get("init"), tuple):
        given["init"] = np.asarray(document["init"], dtype=np.float64)
    for name in ("eta_y", "eta_z"):
        if isinstance(rate := given.get(name), _RateDocument):
            coords = {dim: list(labels) for dim, labels in rate.coords.items()}
            given[name] = xr.DataArray(np.asarray(rate.values, np.float64), coords, rate.dims)
    return given


def _rate_document(rate: float | xr.DataArray) -> Any:
    if not isinstance(rate, xr.DataArray):
        return rate
    coords = {
        str(name): of.values.tolist() for name, of in rate.coords.items() if name in rate.dims
    }
    return {
        "dims": [str(dim) for dim in rate.dims],
        "values": rate.values.tolist(),
        "coords": coords,
    }


def _as_written(classes: SequenceClasses) -> Any:
    """Classes as a file names them: by their preset, or entry by entry."""
    try:
        if is_preset(classes.origin) and resolve(classes.origin) == classes:
            return classes.origin
    except InputError:
        pass  # made from a preset and changed: "syn-small with prior ..."
    return classes_document(classes)


def _read_classes(where: str, document: Any) -> SequenceClasses:
    if isinstance(document, str):
        return resolve(document)
    try:
        return classes_from_document(document)
    except InputError as error:
        raise InputError(f"{where}.{error}") from error


def _resolved(classes: Any) -> SequenceClasses | tuple[SequenceClasses, ...]:
    """The sets of classes, one or several, which must fit into one dataset."""
    if isinstance(classes, str):
        return resolve(classes)
    if isinstance(classes, SequenceClasses):
        return classes
    sets = tuple(resolve(of) if isinstance(of, str) else of for of in classes)
    kinds = {(of.vocab_size, len(of), tuple(of.queries.tolist()), of.names is None) for of in sets}
    if len(kinds) != 1:
        raise InputError(
            "classes: sets that run together have the same numbers of tokens and of classes, the "
            "same queries, and names for all or for none"
        )
    return sets
