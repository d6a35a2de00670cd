"""Sweep recipes: a simulation written down, and a grid over any of its settings."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal, Self

import xarray as xr

from attnlab.defaults import ETA_Z
from attnlab.files.documents import shown
from attnlab.files.errors import InputError
from attnlab.files.recipe import Recipe, as_value, inline, plain
from attnlab.simulation.learner import Learner
from attnlab.simulation.rates import NAME, as_labelled, as_seeds, rate_document
from attnlab.simulation.settings import PARTS, as_simulation, parts_of, setting_named, settings_of
from attnlab.simulation.simulation import FIELD_KINDS, Simulation, read_field, refuse_old
from attnlab.sweeping.group import Axes
from attnlab.tasks.base import Task
from attnlab.tasks.classes.class_files import CLASS_SUFFIXES
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.classes.presets import parameters_of
from attnlab.tasks.sequences import Sequences, read_sets, sets_document

Value = bool | int | float | str

RATES = ("eta_y", "eta_z", "ratio", NAME)
CLASSES = ("classes", "task.classes")  # the names of a task's classes in a grid
MOST_RUNS, MOST_SETTINGS = 10_000_000, 100_000
# Dims of a result that a swept setting may not take.
TAKEN = (
    "seed",
    "step",
    "time",
    "sequence_class",
    "query",
    "token",
    "head",
    "layer",
    "distance",
    "probe",
    "key",
    "k",
)


@dataclass(frozen=True)
class FieldReader:
    """The kind of a field of a simulation in a file."""

    name: str

    def from_document(self, where: str, document: Any) -> Any:
        """Return the field; a named task as it stands, until the grid has chosen its classes."""
        if self.name != "task":
            return read_field(self.name, document)
        name = document.get("name") if isinstance(document, dict) else document
        return document if isinstance(name, str) else read_sets(where, document)


def fields_of_file(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a recipe apart from the grid: the fields of a simulation, and `ratio`."""
    if isinstance(document.get("classes"), list):
        raise InputError(
            "these are sequence classes, not a recipe; a recipe names their file, task: FILE, and "
            "has a grid (docs/guides/sweeps.md)"
        )
    refuse_old(document)
    return {**{name: FieldReader(name) for name in FIELD_KINDS}, "ratio": float}


@dataclass(frozen=True, kw_only=True)
class SweepRecipe(Recipe):
    """A grid of simulations: the fields of one, and the values to try.

    Parameters
    ----------
    given : mapping, optional
        Fields of a `Simulation` that all runs share; from Python also settings inside them by their
        flat names (`steps`, `length`). A file has them next to `grid`, so it is the file of a
        simulation with two exceptions: `ratio` may stand for eta_y (eta_y = ratio *
        eta_z), and a preset may lack those of its parameters that are in the grid.
    grid : mapping, optional
        For each name the values to take, in all combinations. A name is a learning rate (`eta_y`,
        `eta_z`, `ratio`, `learning_rate`, `learning_rate.decoder`), a field (`init`, `model`), a
        setting inside one by its flat name or its path (`length`, `optimizer.beta_2`,
        `model.position.slope`), or a parameter of the preset that the task names (`num_last`).
    """

    given: dict[str, Any] = field(default_factory=dict, metadata=inline(fields_of_file))
    grid: dict[str, tuple[dict[str, Any] | Value, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if "task" not in self.given and "task" not in self.grid:
            raise InputError("task: missing; give sequence classes, or another task")
        for name in self.given.keys() & self.grid.keys():
            raise InputError(f"{name}: is swept in the grid; leave it out here")
        for task in self._tasks:
            _kind_of_task(task)
        read = {name: self._read_values(name, values) for name, values in self.grid.items()}
        object.__setattr__(self, "grid", read)
        if len(self.dims()) < len(self.grid):
            raise InputError(f"grid: two of its names give the same dim: {list(self.dims())}")
        self._check_size()
        _ = self.rates  # each is a number of at least 0

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, one by one."""
        return tuple(as_seeds(self.given.get("seeds", 1)).tolist())

    @property
    def base(self) -> Simulation:
        """The simulation at the first point of the grid."""
        run, classes = next(self._settings())
        first = changed_rates(self.rates, lambda _, rate: float(rate.values.flat[0]))
        return replace(run, **first) if classes is None else with_classes(run, classes, **first)

    def changed(self, **changes: Any) -> Self:
        """Return the recipe with other fields of its simulation."""
        return replace(self, given={**self.given, **changes})

    def to_document(self) -> dict[str, Any]:
        """Return the simulation, with every default, and the grid as plain values of a file.

        Classes are there by their origin alone: entry by entry they can be large.
        """
        base = self.base
        named = {"classes": base.sets[0].origin} if isinstance(base.task, Sequences) else {}
        document = {**base.spec, "task": {**base.spec["task"], **named}}
        left_out = {*self.grid, *(("eta_y",) if "ratio" in self.grid | self.given else ())}
        if base.symbols:
            left_out.add(NAME)
        kept = {name: of for name, of in document.items() if name not in left_out}
        kept |= {name: rate_document(of) for name, of in self.given.items() if name in RATES}
        grid = {name: [plain(value) for value in values] for name, values in self.grid.items()}
        return {**kept, "grid": grid}

    # -- checks ---------------------------------------------------------------------------------

    def _read_values(self, name: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of a name as its setting has them."""
        kind = self._kind_of(name)
        read = tuple(
            value if is_dataclass(value) else as_value(f"grid.{name}[{i}]", value, kind)
            for i, value in enumerate(values)
        )
        if not read or len(set(map(label, read))) < len(read):
            raise InputError(f"grid.{name}: expected a list of different values")
        return read

    def _kind_of(self, name: str) -> Any:
        """Return the kind of the values of a name in the grid."""
        if name == "seeds":
            raise InputError("grid.seeds: every run has all seeds; give them outside the grid")
        if is_rate(name):
            return float
        if name in CLASSES:
            return str | int
        if name in FIELD_KINDS:
            return FieldReader(name) if name == "task" else FIELD_KINDS[name]
        if self._is_parameter(name):
            return int | float
        also = (*RATES, *self._parameters)
        try:
            return setting_named(name, self._task_kind, self._parts, also)[1].hint
        except InputError as error:
            words = ""
            if self._sources and not self._parameters:
                words = f"; {shown(_name_of(self._sources[0]))} has no parameters of its own"
            raise InputError(f"grid.{error}{words}") from None

    @cached_property
    def _tasks(self) -> tuple[Any, ...]:
        return self.grid["task"] if "task" in self.grid else (self.given["task"],)

    @cached_property
    def _task_kind(self) -> type:
        """The class of the task; of tasks that are swept, that of the first."""
        return _kind_of_task(self._tasks[0])

    @cached_property
    def _parts(self) -> dict[str, Any]:
        """Values inside the runs; of a field that is swept, the first."""
        firsts = {name: self.grid[name][0] for name in PARTS if name in self.grid}
        given = {name: of for name, of in {**self.given, **firsts}.items() if name in PARTS}
        read = {
            name: as_value(name, of, FIELD_KINDS[name]) if isinstance(of, str | dict) else of
            for name, of in given.items()
        }
        return parts_of(self._task_kind, read)

    @cached_property
    def _sources(self) -> list[Any]:
        """All that the classes of a run are made from."""
        swept = [value for name in CLASSES for value in self.grid.get(name, ())]
        found = [*map(_classes_in, self._tasks), *(of for of in swept if isinstance(of, str))]
        return [of for of in found if of is not None]

    @cached_property
    def _parameters(self) -> list[str]:
        """Parameters of the presets that the classes are made from."""
        names = [_preset_of(source) for source in self._sources]
        return [key for name in names if name for key in parameters_of(name)]

    def _is_parameter(self, name: str) -> bool:
        """Return True for a parameter of the preset; settings of the same name come first."""
        inner = name.removeprefix("task.").removeprefix("classes.")
        if inner not in self._parameters:
            return False
        kinds = (self._task_kind, *map(type, self._parts.values()))
        return inner != name or not any(
            name in settings_of(kind) for kind in kinds if is_dataclass(kind)
        )

    def _check_size(self) -> None:
        """Refuse a grid with too many settings or runs."""
        sizes = {f"grid.{name}": len(values) for name, values in self.grid.items()}
        settings = {f"grid.{name}": len(self.grid[name]) for name in self.grid if not is_rate(name)}
        for what, factors, most in (
            ("settings", settings, MOST_SETTINGS),
            ("runs", {**sizes, "seeds": len(self.seeds)}, MOST_RUNS),
        ):
            if (count := math.prod(factors.values())) > most:
                longest = max(factors, key=factors.__getitem__)
                words = " x ".join(f"{n:,}" for n in factors.values() if n > 1)
                raise InputError(
                    f"{longest}: {words} = {count:,} {what}, and a sweep has at most {most:,}; "
                    f"give fewer values here, or make several sweeps of it"
                )

    # -- the grid, laid out -----------------------------------------------------------------------

    def dims(self) -> dict[str, str]:
        """Return the name in the grid of each dim of the result: `length` for task.length."""
        return {self._dim(name): name for name in self.grid}

    def _dim(self, name: str) -> str:
        *home, inner = name.split(".")
        if is_rate(name):
            return name.replace(".", "_")
        if inner in TAKEN and not home:
            home = [setting_named(name, self._task_kind, self._parts)[0]]
        return "_".join([*home, inner]) if inner in TAKEN else inner

    def axes(self) -> tuple[Axes, Axes]:
        """Return the values along each dim: of the settings, and of the learning rates."""
        settings = {
            dim: tuple(map(label, self.grid[name]))
            for dim, name in self.dims().items()
            if not is_rate(name)
        }
        cells: Axes = {}

        def collect(_: str, rate: xr.DataArray) -> None:
            cells.update({str(dim): tuple(rate[dim].values.tolist()) for dim in rate.dims})

        changed_rates(self.rates, collect)
        return settings, cells

    @property
    def cells(self) -> int:
        """Number of combinations of learning rates."""
        return math.prod(len(values) for values in self.axes()[1].values())

    @cached_property
    def rates(self) -> dict[str, Any]:
        """Learning rates by field, over all dims along which any of them is swept."""
        found = {name: of for name, of in self.given.items() if name in RATES}
        for name in filter(is_rate, self.grid):
            dim, (field_name, _, group) = self._dim(name), name.partition(".")
            swept: Any = xr.DataArray(list(self.grid[name]), {dim: list(self.grid[name])}, dim)
            if group:
                others = found.get(field_name, {})
                if not isinstance(others, Mapping):
                    raise InputError(f"{field_name}: give it by group; {name} is swept in the grid")
                swept = {**others, group: swept}
            found[field_name] = swept
        found = changed_rates(found, lambda name, rate: as_labelled(name, rate, "float64"))
        if "ratio" in found:
            found["eta_y"] = _from_ratio(found)
        arrays: list[xr.DataArray] = []
        changed_rates(found, lambda _, rate: arrays.append(rate))
        order = [self._dim(name) for name in self.grid if is_rate(name)]
        whole = iter(xr.broadcast(*arrays))
        return changed_rates(found, lambda *_: next(whole).transpose(*order, ...))

    def rates_at(self, cells: slice) -> dict[str, Any]:
        """Return the learning rates of some cells, along the dim `cell`."""
        return changed_rates(
            self.rates, lambda _, rate: xr.DataArray(rate.values.ravel()[cells], dims="cell")
        )

    def settings(self) -> list[tuple[Simulation, SequenceClasses | None]]:
        """Return the simulation and the classes of each setting, in the order of the grid.

        A setting is a combination of all that is not a learning rate. Settings that differ in
        their classes alone share one simulation, which has the classes of the first of them.
        Classes are None where the task is another one.
        """
        return list(self._settings())

    def _settings(self) -> Iterator[tuple[Simulation, SequenceClasses | None]]:
        swept = [name for name in self.grid if not is_rate(name)]
        of_classes = [name for name in swept if name in CLASSES or self._is_parameter(name)]
        made: dict[Any, SequenceClasses] = {}
        runs: dict[Any, Simulation] = {}
        for values in product(*(self.grid[name] for name in swept)):
            chosen = dict(zip(swept, values, strict=True))
            named = {name: chosen.pop(name) for name in of_classes}
            try:
                task = chosen.pop("task", self.given.get("task"))
                classes, source = None, _classes_in(task)
                if source is not None:
                    name = task if isinstance(task, str) else id(task), *named.values()
                    if name not in made:
                        made[name] = _make_classes(source, named)
                    classes = made[name]
                key = None if source is task else id(task), *map(label, chosen.values())
                if key not in runs:
                    runs[key] = self._run(_with_classes(task, classes), chosen)
            except InputError as error:
                words = ", ".join(f"{n} = {label(v)}" for n, v in zip(swept, values, strict=True))
                raise InputError(f"grid: at {words}: {error}" if words else str(error)) from error
            yield runs[key], classes

    def _run(self, task: Any, chosen: Mapping[str, Any]) -> Simulation:
        same = {name: of for name, of in self.given.items() if name not in ("task", "ratio")}
        return as_simulation(task, **{**same, **chosen, **self.rates, "seeds": self.seeds})


def is_rate(name: str) -> bool:
    """Return True for the name of a learning rate."""
    return name in RATES or name.startswith(f"{NAME}.")


def changed_rates(
    rates: Mapping[str, Any], change: Callable[[str, Any], Any], prefix: str = ""
) -> dict[str, Any]:
    """Return learning rates with `change(name, rate)` in place of all but None and schedules."""

    def one(name: str, rate: Any) -> Any:
        if isinstance(rate, Mapping):
            return changed_rates(rate, change, f"{name}_")
        return rate if rate is None or callable(rate) else change(f"{prefix}{name}", rate)

    return {name: one(name, rate) for name, rate in rates.items()}


def _from_ratio(rates: dict[str, Any]) -> xr.DataArray:
    """Take the ratio out of learning rates, and return eta_y = ratio * eta_z."""
    ratio, eta_z = rates.pop("ratio"), rates.get("eta_z", xr.DataArray(ETA_Z))
    if {"eta_y", NAME} & rates.keys():
        raise InputError("ratio: stands for eta_y = ratio * eta_z; leave the others out")
    if not isinstance(ratio, xr.DataArray) or not isinstance(eta_z, xr.DataArray):
        raise InputError("ratio: expected a number, and one for eta_z")
    return ratio * eta_z


def with_classes(run: Simulation, classes: Any, **fields: Any) -> Simulation:
    """Return a simulation with other classes, one set or several, and other fields."""
    return replace(run, task=replace(run.task, classes=classes), **fields)


def label(value: Any) -> Any:
    """Return a value of a grid as a coord has it: numbers and words, or a text of its fields."""
    document = plain(value)
    if not isinstance(document, dict):
        return document
    name = document.pop("name", "")
    rest = ",".join(f"{key}={label(item)}" for key, item in document.items())
    return f"{name}:{rest}" if name and rest else name or rest


# -- the task and its classes ---------------------------------------------------------------------


def _kind_of_task(task: Any) -> type:
    """Return the class of a task, as it is given."""
    if isinstance(task, Mapping):
        name = task.get("name")
        kinds: dict[str, type] = {**Learner.kinds(), **Task.kinds(str(name))}
        return kinds[as_value("task.name", name, Literal[*kinds])]
    return Sequences if _classes_in(task) is not None else type(task)


def _classes_in(task: Any) -> Any:
    """Return the classes that a task is given with, by name or as they are; None if it has none."""
    if isinstance(task, Sequences):
        task = task.classes
    elif isinstance(task, Mapping) and task.get("name") == "sequences":
        task = task.get("classes")
    if isinstance(task, Sequence) and not isinstance(task, str):
        raise InputError("task: a setting has one set of classes; sweep `classes` to have several")
    return task if isinstance(task, str | SequenceClasses) else None


def _with_classes(task: Any, classes: SequenceClasses | None) -> Any:
    """Return a task as a simulation takes it, with these classes."""
    if isinstance(task, Mapping):
        return read_field("task", task if classes is None else {**task, "classes": classes})
    if isinstance(task, Sequences):
        return replace(task, classes=classes)
    return task if classes is None else classes


def _name_of(source: SequenceClasses | str) -> str:
    return source.origin if isinstance(source, SequenceClasses) else source


def _preset_of(source: SequenceClasses | str) -> str:
    """Return the name that classes can be made from; empty where they were made in memory."""
    named = source if isinstance(source, str) else sets_document(source)
    return named if isinstance(named, str) else ""


def _make_classes(source: SequenceClasses | str, named: Mapping[str, Any]) -> SequenceClasses:
    """Return the classes of a setting: of this source, or of another, with some parameters set."""
    parameters = {}
    for name, value in named.items():
        if isinstance(value, str):
            source = value
        else:
            parameters[name.removeprefix("task.").removeprefix("classes.")] = value
    if parameters:
        name, _, rest = _name_of(source).partition(":")
        if name.lower().endswith(CLASS_SUFFIXES):
            raise InputError(f"{next(iter(parameters))}: classes from a file have no parameters")
        kept = dict(part.split("=", 1) for part in rest.split(",") if "=" in part)
        kept = {key.strip(): text for key, text in kept.items()}
        kept |= {key: _number(value) for key, value in parameters.items()}
        source = f"{name}:{','.join(f'{key}={text}' for key, text in kept.items())}"
    made: SequenceClasses = read_sets("classes", source) if isinstance(source, str) else source
    return made


def _number(value: Any) -> str:
    """Return a number as text that loses nothing; whole ones without a point, as presets want."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        value = int(value)
    return repr(value)
