"""Simulation: one frozen value that says everything about a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pkgutil import resolve_name
from typing import Any, Literal, get_args, get_type_hints

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.defaults import ETA_Y, ETA_Z, LENGTH
from attnlab.files.documents import check_keys, did_you_mean, shown
from attnlab.files.errors import InputError
from attnlab.files.recipe import Named, Numbers, as_value, default_of, plain
from attnlab.models.base import LossName, Model
from attnlab.models.sequence import EXACT_NAMES, checked_init, initial_logits
from attnlab.simulation.labels import classes_of
from attnlab.simulation.learner import PARAMETERS, Learner, TaskLearner
from attnlab.simulation.motion import Batches, Gradient, Motion, Optimizer, Population, Steps
from attnlab.simulation.rates import (
    NAME,
    RATE,
    SEEDS,
    Grid,
    as_rate,
    as_seeds,
    make_grid,
    rates_by_group,
    require_groups,
)
from attnlab.simulation.record import Record
from attnlab.tasks.base import Task
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.sequences import Sequences, read_sets

Precision = Literal["default", "highest", "bfloat16"]
Dtype = Literal["float32", "float64"]
StartDocument = Literal["zero", "uniform"] | Numbers | dict[str, Any] | None
LARGEST_USUAL_RATE = 1e4  # learning rates above it are cautioned against
BASES: dict[str, type[Named]] = {
    "task": Task,
    "model": Model,
    "motion": Motion,
    "gradient": Gradient,
}


def read_task(where: str, document: Any) -> Any:
    """Return a task as a document gives it; it may be a value already."""
    if isinstance(document, Task):
        return document
    if isinstance(document, dict) and isinstance(document.get("name"), str):
        name = document["name"]
        of_learner = name in Learner.kinds() and name not in Task.kinds(name)
        return as_value(where, document, Learner if of_learner else Task)
    return read_sets(where, document)


def read_start(where: str, document: Any) -> Any:
    """Return a start as its document gives it, with arrays where that has groups of lists."""
    read = as_value(where, document, StartDocument)
    return _arrays(read) if isinstance(read, dict) else read


def _arrays(groups: Any) -> Any:
    """Return the arrays of a start, which a document has as lists."""
    if isinstance(groups, dict):
        return {name: _arrays(of) for name, of in groups.items()}
    try:
        return np.asarray(groups, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"init: expected numbers by group, got {shown(groups)}") from None


def start_document(init: Any) -> Any:
    """Return a start as plain values; a result by the digest of its spec."""
    if isinstance(init, Mapping) and not isinstance(init, xr.Dataset):
        return {name: start_document(of) for name, of in init.items()}
    if isinstance(init, xr.Dataset):
        return {"result": hashlib.sha256(init.attrs.get("spec", "").encode()).hexdigest()}
    return init if init is None or isinstance(init, str) else np.asarray(init).tolist()


# How the field `init` of a run is read from documents and written to them.
START = {"kind": StartDocument, "read": read_start, "write": start_document}


@dataclass(frozen=True, eq=False)
class Simulation:
    """A training as a value: task, model, motion, and the records to make.

    A value is checked when it is made, equal to others by content, and changed by
    `dataclasses.replace`, or by `as_simulation` with the flat names of settings inside it.

    Parameters
    ----------
    task : Task, Learner, SequenceClasses, str or sequence of classes
        What is learned. Classes, or the name of a preset ("syn-medium:num_last=3") or file, stand
        for `Sequences` of them: of 128 tokens, or of infinite length where the gradient is that of
        the population. A `Learner` needs no model and no loss.
    model : Model, optional
        What learns; on sequence classes `Pairwise()` (Y and Z) by default.
    motion : Motion, optional
        How parameters move: `Steps(steps, optimizer, clip)` or `Flow(time, solver)`.
    gradient : Gradient, optional
        Where the gradient comes from: `Batches(size)`, or `Population()`, the default of the flow
        and of learners.
    learning_rate : float, sequence, DataArray, Piecewise, function, None or mapping, optional
        Learning rate of all groups of parameters, or a mapping of groups to theirs. A list becomes
        a dim of its name, `learning_rate` or `learning_rate_<group>`; a DataArray keeps its dims;
        all run together. `Piecewise` or a function of the step is a schedule; None keeps a group
        fixed: no gradient, no decay.
    eta_y : float, sequence, DataArray, Piecewise, function or None, optional
        Learning rate of the decoder Y of sequence-class models (their group `decoder`).
    eta_z : float, sequence, DataArray, Piecewise, function or None, optional
        Learning rate of their attention logits Z (the group `attention`).
    loss : str, optional
        "cross_entropy" (with labels or probabilities), "square", "logistic", or "task", its own.
    init : str, array_like, mapping or Dataset, optional
        Start of the parameters. On sequence classes "zero"; "uniform", each entry of Y and Z
        uniform in +-1/sqrt(M) (`Embedded` says what it draws); or logits z(0), an array (query,
        token) or (token,), with Y(0) = 0; with several heads also (head, query, token). Of any
        model its own, arrays by group, or a result that has recorded parameters (on sequence
        classes these two take the general path).
    seeds : int or sequence, optional
        Number of seeds, or their list. A seed fixes the data and the start; runs that differ only
        in learning rates see the same data, so that their differences have little noise.
    independent : bool, optional
        Let each combination of task, model, motion and learning rates draw data and start of its
        own, so that cells are independent.
    record : Record, optional
        What to record and when.
    dtype : {"float32", "float64"}, optional
        Type of all numbers.
    precision : {"default", "highest", "bfloat16"}, optional
        Precision of matrix products outside the exact path: the device's default, float32, or the
        default with the decoder's products in bfloat16.
    exact : bool, optional
        Take the exact path of sequence classes where there is one; off only to check it.

    Examples
    --------
    >>> import attnlab
    >>> run = attnlab.Simulation("syn-small", eta_y=[1, 2], motion=attnlab.Steps(20))
    >>> run.task.length, run.gradient.size, run.grid.points
    (128, 128, 2)
    """

    task: Any = field(metadata={"read": read_task})
    model: Any = field(default=None, metadata={"kind": Model | None})
    motion: Any = field(default_factory=Steps, metadata={"kind": Motion})
    gradient: Any = field(default=None, metadata={"kind": Gradient})
    learning_rate: Any = field(default=None, metadata=RATE)
    eta_y: Any = field(default=ETA_Y, metadata=RATE)
    eta_z: Any = field(default=ETA_Z, metadata=RATE)
    loss: LossName = "cross_entropy"
    init: Any = field(default=None, metadata=START)
    seeds: int | Sequence[int] = field(default=1, metadata=SEEDS)
    independent: bool = False
    record: Record = field(default_factory=Record)
    dtype: Dtype = "float32"
    precision: Precision = "default"
    exact: bool = True

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        for name, base in BASES.items():
            if name != "task" and isinstance(getattr(self, name), str):
                put(name, as_value(name, getattr(self, name), base))
        of_learner = isinstance(self.task, Learner)
        if self.gradient is None:
            whole = of_learner or self.motion.needs_population
            put("gradient", Population() if whole else Batches())
        if not of_learner and not isinstance(self.task, Task):
            infinite = self.gradient.size is None
            put("task", Sequences(self.task, length="inf" if infinite else LENGTH))
        if self.model is None and not of_learner and self.task.default_model:
            put("model", resolve_name(self.task.default_model)())
        if of_learner != (self.model is None):
            raise InputError("model: expected a model for a task, and None for a learner")
        for name, base in BASES.items():
            value = getattr(self, name)
            if not isinstance(value, base) and not (of_learner and name in ("task", "model")):
                known = ", ".join(kind.__name__ for kind in base.kinds().values())
                raise InputError(f"{name}: expected one of {known}, got {value!r}")
            _require_value(name, value)
        for name, kind in (("loss", LossName), ("dtype", Dtype), ("precision", Precision)):
            if getattr(self, name) not in get_args(kind):
                choices = ", ".join(map(repr, get_args(kind)))
                raise InputError(f"{name}: expected one of {choices}, got {getattr(self, name)!r}")
        if isinstance(self.task, Sequences) and self.loss != "cross_entropy":
            raise InputError("loss: targets of sequence classes are tokens; use 'cross_entropy'")
        if self.motion.needs_population and self.gradient.size is not None:
            raise InputError("gradient: a flow needs Population(); or take Steps")
        self.motion.check(self.dtype)
        put("seeds", tuple(as_seeds(self.seeds).tolist()))
        self._put_rates(put)
        if self.symbols:  # of other models the groups are known when a run begins
            _ = self.optimizers
        of_sequences = isinstance(self.task, Sequences) and self.gradient.size is None
        if of_sequences and not (self.task.infinite or self.task.training_set):
            raise InputError(
                f"gradient: the population of sequences of {self.task.length} tokens cannot be "
                "listed; give length=inf, a training_set, or Batches"
            )
        if self.is_exact:
            given = "zero" if self.init is None else self.init
            put("init", checked_init(self.sets[0], given, heads=self.model.heads))
        elif self.init is not None:
            put("init", self.learner.checked_start(self))
        self._check_record()
        if self.model is not None:
            self.model.check(self)

    def _check_record(self) -> None:
        """Refuse to record names that the exact path or a learner does not have."""
        if self.is_exact:
            for name in self.record.what or ():
                if name not in EXACT_NAMES:
                    general = "the exact path has none; take exact=False"
                    hint = general if name == PARAMETERS else did_you_mean(name, EXACT_NAMES)
                    raise InputError(f"what: {name!r} cannot be recorded; {hint}")
        if self.record.evaluate and (self.is_exact or self.model is None):
            kind = "the exact path" if self.is_exact else "a learner"
            remedy = "take exact=False" if self.is_exact else "leave it out"
            raise InputError(f"evaluate: {kind} has no other tasks; {remedy}")

    def _put_rates(self, put: Any) -> None:
        """Keep learning rates as numbers, schedules or DataArrays, by symbol if there are any."""
        given = self.learning_rate
        if given is None and not self.symbols:
            raise InputError(f"{NAME}: missing; give one number, or a mapping of groups to numbers")
        if given is not None and self.symbols:
            by_group = given if isinstance(given, Mapping) else dict.fromkeys(self.symbols, given)
            require_groups(NAME, by_group, self.symbols)
            for group, symbol in self.symbols.items():
                put(symbol, by_group.get(group, getattr(self, symbol)))
            put(NAME, None)
        if self.symbols and all(getattr(self, of) is None for of in self.symbols.values()):
            names = " or ".join(self.symbols.values())
            raise InputError(f"{NAME}: no group moves; give a number to {names}")
        for symbol in self.symbols.values():
            put(symbol, as_rate(symbol, getattr(self, symbol), self.dtype))
        if isinstance(self.learning_rate, Mapping):
            rates = {
                str(group): as_rate(f"{NAME}_{group}", rate, self.dtype)
                for group, rate in self.learning_rate.items()
            }
            put(NAME, rates)
        elif self.learning_rate is not None:
            put(NAME, as_rate(NAME, self.learning_rate, self.dtype))

    # -- parts ----------------------------------------------------------------------------------

    @property
    def symbols(self) -> Mapping[str, str]:
        """Symbols of the learning rates of the model's groups, where it has any."""
        return {} if self.model is None else self.model.symbols

    @property
    def cautions(self) -> list[str]:
        """Sentences on settings that are allowed, but with which a run says little."""
        said = []
        # "zero" first: other models may count their heads by layer
        zero = isinstance(self.init, str) and self.init == "zero"
        if zero and getattr(self.model, "heads", 1) > 1:
            said.append("init: heads that start alike stay alike; give init='uniform' to part them")
        for name in self.symbols.values() if self.clock == "step" else ():
            rate = getattr(self, name)
            if rate is not None and not callable(rate) and np.max(rate) > LARGEST_USUAL_RATE:
                said.append(
                    f"{name}: at {float(np.max(rate)):g} a single step saturates the softmax; "
                    "learning rates up to 100 are usual"
                )
        return said

    @property
    def is_exact(self) -> bool:
        """True if the run takes the exact path of sequence classes."""
        has_path = isinstance(self.task, Sequences) and bool(getattr(self.model, "exact", ""))
        # its layout rests on a symmetric decoder, which a start by group need not have
        return has_path and self.exact and not isinstance(self.init, Mapping)

    @property
    def classes(self) -> Any:
        """The sequence classes of the task, one set or several."""
        if not isinstance(self.task, Sequences):
            raise InputError(f"task: expected sequence classes, got {type(self.task).__name__}")
        return self.task.classes

    @property
    def sets(self) -> tuple[SequenceClasses, ...]:
        """The sets of classes, one or several."""
        return self.classes if isinstance(self.classes, tuple) else (self.classes,)

    @property
    def clock(self) -> Literal["step", "time"]:
        """The dim along which runs are recorded."""
        clock: Literal["step", "time"] = self.motion.clock
        return clock

    @property
    def last(self) -> float:
        """The last step or time."""
        last: float = self.motion.last
        return last

    @cached_property
    def learner(self) -> Learner:
        """The learner that the trainer runs."""
        if isinstance(self.task, Learner):
            return self.task
        if self.task.learner and self.exact:
            made: Learner = resolve_name(self.task.learner)(self)
            return made
        return TaskLearner(self.task, self.model, self.loss, self.precision)

    @cached_property
    def tables(self) -> list[Any]:
        """Arrays that all seeds share, for each of the settings that run together."""
        return self.learner.tables(self)

    @property
    def title(self) -> str:
        """A few words for progress bars."""
        return self.sets[0].origin if isinstance(self.task, Sequences) else "training"

    def salt(self, setting: int, point: int) -> NDArray[np.uint32]:
        """Return two words, derived from a run's settings, that seed its data if `independent`."""
        text = self.learner.identity(self, int(setting), int(point))
        digest = hashlib.sha256(text.encode()).digest()
        return np.frombuffer(digest[:8], "<u4").astype(np.uint32)

    @cached_property
    def grid(self) -> Grid:
        """The runs, by seed and by learning rates."""
        seeds = np.asarray(self.seeds, dtype=np.int64)
        if self.symbols:
            rates = {group: getattr(self, symbol) for group, symbol in self.symbols.items()}
            return make_grid(rates, self.symbols, seeds, self.dtype)
        groups, fixed = self.learner.groups(self), self.learner.fixed
        by_group = rates_by_group(self.learning_rate, groups, fixed)
        one = not isinstance(self.learning_rate, Mapping)
        names = {group: NAME if one else f"{NAME}_{group}" for group in groups}
        return make_grid(by_group, names, seeds, self.dtype)

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """The optimizers of the groups that move; none in a flow."""
        groups = self.symbols or self.learner.groups(self)
        momentum = getattr(self.task, "momentum", 0.0)
        found: dict[str, Optimizer] = self.motion.optimizers(self.grid.moving, groups, momentum)
        return found

    @property
    def momentum(self) -> float:
        """Momentum of the optimizers; 0 where groups that move differ in it."""
        found = {of.momentum or 0.0 for of in self.optimizers.values()}
        return found.pop() if len(found) == 1 else 0.0

    @cached_property
    def record_steps(self) -> NDArray[Any]:
        """The steps, or flow times, at which runs are recorded."""
        return self.record.clock(
            self.last, whole=self.clock == "step", bytes_per_record=self.bytes_per_record
        )

    @property
    def bytes_per_record(self) -> int:
        """Bytes of one record of all runs."""
        known = None if self.model is None else self.model.record_numbers(self)
        numbers = self.learner.record_numbers(self) if known is None else known
        return int(numbers * self.grid.runs * np.dtype(self.dtype).itemsize)

    def start_logits(self, classes: SequenceClasses) -> NDArray[np.float64]:
        """Return z(0) of one of the sets, (query, token) or (head, query, token)."""
        return initial_logits(
            classes, self.init, heads=self.model.heads, neutral=self.model.neutral_logit
        )

    # -- identity and documents -------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """A content hash: equal for equal simulations."""
        content = {"spec": _without_origins(self.spec), "data": self._data_digests()}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Simulation) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def _data_digests(self) -> Any:
        if isinstance(self.task, Sequences):
            return [[of.digest, of.names] for of in self.sets]
        return getattr(self.task, "digest", None)

    def to_document(self, *, defaults: bool = False) -> dict[str, Any]:
        """Return all of it as plain values, as a recipe file has them."""
        standard = {of.name: plain(default_of(of)) for of in fields(self)}
        found: dict[str, Any] = {}
        for item in fields(self):
            name, value = item.name, getattr(self, item.name)
            if name in ("eta_y", "eta_z") and name not in self.symbols.values():
                continue
            write = item.metadata.get("write")
            value = write(value) if write else plain(value, defaults=defaults)
            if defaults or name in ("task", "model", "motion") or value != standard[name]:
                found[name] = value
        return found

    @cached_property
    def spec(self) -> dict[str, Any]:
        """All of it with every default written out, as a result carries it; `of` reads it.

        Classes can be large: they are named here, and a result has their probabilities.
        """
        return self.to_document(defaults=True)

    @classmethod
    def from_document(cls, document: Any) -> Simulation:
        """Return the simulation that a document describes; errors name field and remedy."""
        if isinstance(document, dict):
            refuse_old(document)
        check_keys("", document, FIELD_KINDS, ("task",))
        return cls(**{name: read_field(name, of) for name, of in document.items()})

    @classmethod
    def of(cls, result: xr.Dataset) -> Simulation:
        """Return the simulation that a labelled result was made from."""
        try:
            spec = json.loads(result.attrs["spec"])
        except (KeyError, TypeError, json.JSONDecodeError):
            spec = None
        if not isinstance(spec, dict):
            raise InputError("result: not one that simulate() or predict() made")
        refuse_old(spec)
        if "task" not in spec:
            raise InputError("result: not one that simulate() or predict() made")
        spec["task"] = _task_of(result, spec["task"])
        others = spec["record"].pop("evaluate")
        record = read_field("record", spec.pop("record"))
        evaluate = {
            name: read_field("task", _task_of(xr.Dataset(), task)) for name, task in others.items()
        }
        fields_of = {name: read_field(name, of) for name, of in spec.items()}
        return cls(**fields_of, record=replace(record, evaluate=evaluate))


def refuse_old(document: Mapping[str, Any]) -> None:
    """Refuse the fields that version 0.1 had, and say what they are now."""
    for name, now in OLD.items():
        if name in document and name not in FIELD_KINDS:
            raise InputError(f"{name}: was a field of version 0.1; now {now}")


OLD = {
    "classes": "task: the name of the classes, or {name: sequences, classes: ..., length: ...}",
    "engine": (
        "sampled is task: {name: sequences, length: T} with gradient: {name: batches, size: N}, "
        "limit is gradient: population, and flow is motion: {name: flow, time: t}"
    ),
    "corpus": "task: {name: text, corpus: ...}",
    "optimizer": "motion: {name: steps, optimizer: ...}",
    "steps": "motion: {name: steps, steps: ...} or {name: flow, time: ...}",
    "save": "record",
    "lump": "task: {name: sequences, lump: ...}",
    "rates": NAME,
    "measure_every": "record: {every: ...}",
}
READERS = {of.name: of.metadata["read"] for of in fields(Simulation) if "read" in of.metadata}
HINTS = get_type_hints(Simulation)
FIELD_KINDS = {of.name: of.metadata.get("kind", HINTS[of.name]) for of in fields(Simulation)}


def read_field(name: str, value: Any) -> Any:
    """Return a field as its document gives it; a task may be a value already."""
    if name in READERS:
        return READERS[name](name, value)
    return as_value(name, value, FIELD_KINDS[name])


def _task_of(result: xr.Dataset, task: Any) -> Any:
    """Return the task of a result's spec, with the classes that the result has."""
    if not isinstance(task, dict) or task.get("name") != Sequences.called():
        return task
    settings = {name: of for name, of in task.items() if name not in ("name", "classes")}
    return Sequences(classes_of(result, task["classes"]), **settings)


def _without_origins(document: Any) -> Any:
    """Return a document without the origins of classes, which their digests identify."""
    if isinstance(document, list):
        return [_without_origins(of) for of in document]
    if not isinstance(document, dict):
        return document
    drop = "origin" if "digest" in document else None
    return {name: _without_origins(of) for name, of in document.items() if name != drop}


def _require_value(name: str, value: Any) -> None:
    """Refuse what cannot be a static argument of compiled programs."""
    if value is None:
        return
    params = getattr(type(value), "__dataclass_params__", None)
    if params is None or not params.frozen or not params.eq:
        raise InputError(
            f"{name}: {type(value).__name__} is not a frozen dataclass; write "
            "@dataclass(frozen=True) above the class"
        )
    base = Learner if isinstance(value, Learner) else BASES[name]
    for item in fields(value):
        if callable(getattr(base, item.name, None)):
            raise InputError(
                f"{name}: the field {item.name!r} of {type(value).__name__} hides a method of "
                f"{base.__name__}; rename it"
            )
    try:
        hash(value)
    except TypeError as problem:
        raise InputError(
            f"{name}: {type(value).__name__} has a field that cannot be hashed ({problem}); use "
            "numbers, strings and tuples"
        ) from None
