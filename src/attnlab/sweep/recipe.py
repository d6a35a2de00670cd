"""Sweep recipes: a grid over any parameter of data, rates, engine, optimiser, model and start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from attnlab.data import SequenceClasses
from attnlab.data.presets import parameters_of
from attnlab.defaults import ENGINE
from attnlab.dynamics import Optimizer, Save, Simulation
from attnlab.files.documents import SUFFIXES, did_you_mean, shown, within
from attnlab.files.errors import InputError
from attnlab.files.recipe import Recipe, as_recipe, as_value
from attnlab.sweep.choices import EngineRecipe, ModelRecipe

Value = bool | int | float | str

Init = Literal["zero", "uniform"]
Precision = Literal["float32", "float64"]

RATES = ("eta_y", "eta_z", "ratio")
PARTS = ("engine", "optimizer", "model")  # of a recipe, which have fields of their own
SEEDS = 2**32  # they are numbers below this
MOST_RUNS, MOST_SETTINGS = 10_000_000, 100_000
# Dims of a result that a swept parameter may not take.
TAKEN = ("seed", "step", "time", "sequence_class", "query", "token", "head", "layer", "distance")


@dataclass(frozen=True, kw_only=True)
class SweepRecipe(Recipe):
    """Simulations on a grid: what `simulate` takes, and the values to try.

    grid: for each name the values to take, in all combinations. A name is a rate (`eta_y`, `eta_z`,
    or `ratio`, for eta_y = ratio * eta_z), a field of the recipe (`init`, `steps`, `classes`), a
    field inside one (`engine.length`, `optimizer.beta_2`, `model.heads`), or a parameter of the
    preset that `classes` names (`num_last`).
    eta_y, eta_z, ratio: rates that are not swept.
    seeds: how many, or which. own_data: see `simulate`; cells share their data otherwise.
    """

    classes: str
    grid: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    eta_y: float | None = None
    eta_z: float | None = None
    ratio: float | None = None
    engine: EngineRecipe = field(default_factory=lambda: EngineRecipe(ENGINE))
    optimizer: Optimizer = field(default_factory=Optimizer)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    init: Init = "zero"
    steps: float
    seeds: int | tuple[int, ...] = 1
    own_data: bool = False
    save: Save = field(default_factory=Save)
    dtype: Precision = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        as_value("dtype", self.dtype, Precision)
        as_value("own_data", self.own_data, bool)
        for name, values in self.grid.items():
            self._check_values(name, values)
        if len(set(self.dims())) < len(self.grid):
            raise InputError(f"grid: two of its names give the same dim: {list(self.dims())}")
        self._check_rates()
        if not as_value("steps", self.steps, float) > 0:
            raise InputError(f"steps: expected a positive number, got {self.steps!r}")
        if not isinstance(self.init, str) or self.init not in get_args(Init):
            raise InputError(f"init: expected one of {get_args(Init)}, got {self.init!r}")
        self._check_seeds()
        self._check_size()

    def _check_values(self, name: str, values: tuple[Value, ...]) -> None:
        kind = None if name in RATES else self._kind(name)
        for i, value in enumerate(values):
            if kind is None:
                self._check_rate(f"grid.{name}[{i}]", value)
            else:
                as_value(f"grid.{name}[{i}]", value, kind)
        if not values or len(set(values)) < len(values):
            raise InputError(f"grid.{name}: expected a list of different values")

    def _kind(self, name: str) -> Any:
        """What the values are of something that is swept and no rate, if there is such a thing."""
        own = {"init": Init, "steps": float, "classes": str | int}
        inside = [f"{part}.{item.name}" for part in PARTS for item in fields(getattr(self, part))]
        named = (self.classes, *self.grid.get("classes", ()))
        parameters = [key for text in named for key in parameters_of(str(text))]
        if name in own:
            return own[name]
        if name in inside:
            return Value  # its own dataclass knows better
        if name.removeprefix("classes.") in parameters:
            return int | float
        words = did_you_mean(name, dict.fromkeys([*RATES, *own, *parameters, *inside]))
        if not parameters:
            words += f"; {shown(self.classes)} has no parameters of its own"
        raise InputError(f"{within('grid', name)}: unknown key; {words}")

    def _check_rates(self) -> None:
        given = {
            name: self.grid.get(name, (getattr(self, name),))
            for name in RATES
            if name in self.grid or getattr(self, name) is not None
        }
        if list(given) not in (["eta_y", "eta_z"], ["eta_z", "ratio"]):
            raise InputError(
                "grid: give eta_z, and either eta_y or ratio (eta_y = ratio * eta_z), here or "
                "outside the grid"
            )
        for name in given:
            alone = getattr(self, name)
            if name in self.grid and alone is not None:
                raise InputError(f"{name}: is swept in the grid; leave it out here")
            if name not in self.grid:
                self._check_rate(name, alone)
        if "ratio" in given:
            largest = math.prod(max(map(float, values)) for values in given.values())
            self._check_rate("ratio: eta_y = ratio * eta_z", largest)

    def _check_rate(self, where: str, value: Any) -> None:
        if not 0 <= as_value(where, value, float) <= float(np.finfo(self.dtype).max):
            raise InputError(
                f"{where}: expected a number of at least 0 that is finite in {self.dtype}, "
                f"got {value}"
            )

    def _check_seeds(self) -> None:
        if not isinstance(self.seeds, tuple):
            if not 1 <= as_value("seeds", self.seeds, int) <= SEEDS:
                raise InputError(f"seeds: expected at least 1, or a list of them, got {self.seeds}")
            return
        for i, seed in enumerate(self.seeds):
            if not 0 <= as_value(f"seeds[{i}]", seed, int) < SEEDS:
                raise InputError(f"seeds[{i}]: expected a number from 0 to 2^32 - 1, got {seed}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError("seeds: expected at least 1, or a list of different ones")

    def _check_size(self) -> None:
        """Refuse what could not even be counted out."""
        sizes = {f"grid.{name}": len(values) for name, values in self.grid.items()}
        settings = {name: n for name, n in sizes.items() if name.removeprefix("grid.") not in RATES}
        seeds = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
        for what, factors, most in (
            ("settings", settings, MOST_SETTINGS),
            ("runs", {**sizes, "seeds": seeds}, MOST_RUNS),
        ):
            if (count := math.prod(factors.values())) > most:
                longest = max(factors, key=factors.__getitem__)
                words = " x ".join(f"{n:,}" for n in factors.values() if n > 1)
                raise InputError(
                    f"{longest}: {words} = {count:,} {what}, and a sweep has at most {most:,}; "
                    f"give fewer values here, or make several sweeps of it"
                )

    def simulation(
        self, classes: SequenceClasses | tuple[SequenceClasses, ...], **fields: Any
    ) -> Simulation:
        """What a setting, which is a recipe without a grid, asks for; rates are given beside."""
        return Simulation(
            classes, self.engine.engine(), model=self.model.model(), optimizer=self.optimizer,
            init=self.init, steps=self.steps, own_data=self.own_data, dtype=self.dtype,
            **{"save": self.save, **fields},
        )  # fmt: skip

    def seed_list(self) -> tuple[int, ...]:
        """The seeds, one by one."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else tuple(self.seeds)

    @property
    def clock(self) -> str:
        """The dim along which runs are recorded."""
        return "time" if self.engine.name == "flow" else "step"

    def dims(self) -> dict[str, str]:
        """The dim that each name of the grid has in the result: `engine.length` has `length`."""
        return dict(zip(map(_dim, self.grid), self.grid, strict=False))

    def axes(self) -> tuple[dict[str, tuple[Value, ...]], dict[str, tuple[float, ...]]]:
        """The values along each dim: of what makes a setting, and of the rates."""
        values = {dim: self.grid[name] for dim, name in self.dims().items()}
        rates = {name: tuple(map(float, values.pop(name))) for name in RATES if name in values}
        return values, {name: rates[name] for name in self.grid if name in rates}

    def settings(self) -> list[SweepRecipe]:
        """One recipe for each combination of what is not a rate, in the order of the grid."""
        rest = [name for name in self.grid if name not in RATES]
        plain = replace(self, grid={name: v for name, v in self.grid.items() if name in RATES})
        made = []
        for values in product(*(self.grid[name] for name in rest)):
            chosen = dict(zip(rest, values, strict=True))
            try:
                made.append(_with(plain, chosen))
            except InputError as error:
                words = ", ".join(f"{name} = {value}" for name, value in chosen.items())
                raise InputError(f"grid: at {words}: {error}") from error
        return made

    def rates(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """eta_y and eta_z of every combination of rates, the last of the grid varying fastest."""
        _, swept = self.axes()
        mesh = np.meshgrid(*swept.values(), indexing="ij") if swept else []
        points = dict(zip(swept, mesh, strict=True))
        size = mesh[0].shape if mesh else ()
        for name in RATES:
            if getattr(self, name) is not None:
                points[name] = np.full(size, float(getattr(self, name)))
        eta_y = points["eta_y"] if "eta_y" in points else points["ratio"] * points["eta_z"]
        return eta_y.ravel(), points["eta_z"].ravel()


def _with(recipe: SweepRecipe, chosen: Mapping[str, Value]) -> SweepRecipe:
    """The recipe with some parameters set, which are checked as they would be in a file."""
    parts: dict[str, dict[str, Value]] = {}
    parameters = []
    for name, value in chosen.items():
        home, dot, inner = name.rpartition(".")
        if dot and home != "classes":
            parts.setdefault(home, {})[inner] = value
        elif name in ("init", "steps") or (name == "classes" and isinstance(value, str)):
            recipe = replace(recipe, **{name: value})  # type: ignore[arg-type]
        else:
            parameters.append(f"{inner}={_number(value)}")
    for home, given in parts.items():
        part = getattr(recipe, home)
        try:
            made = as_recipe({**asdict(part), **given}, type(part))
        except InputError as error:
            raise InputError(f"{home}.{error}") from error
        recipe = replace(recipe, **{home: made})
    if not parameters:
        return recipe
    if recipe.classes.lower().endswith(SUFFIXES):
        raise InputError(f"{parameters[0]}: classes from a file have no parameters")
    joint = "," if ":" in recipe.classes else ":"
    return replace(recipe, classes=f"{recipe.classes}{joint}{','.join(parameters)}")


def _dim(name: str) -> str:
    home, _, inner = name.rpartition(".")
    if inner == "name":
        return home
    return f"{home}_{inner}" if inner in TAKEN else inner


def _number(value: Value) -> str:
    """A number as text that loses nothing; whole ones without a point, as presets want them."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        value = int(value)
    return repr(value)
