"""Sweep recipes: a value written down, and a grid over any of its fields."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Self, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from attnlab.files.documents import did_you_mean, shown, within
from attnlab.files.errors import InputError
from attnlab.files.recipe import Named, Recipe, as_value, inline, plain
from attnlab.sweeping.kind import Axes, Kind, label
from attnlab.sweeping.simulations import SIMULATIONS
from attnlab.sweeping.trainings import TRAININGS

Value = bool | int | float | str

KINDS: tuple[Kind, ...] = (SIMULATIONS, TRAININGS)
SEEDS = 2**32  # they are numbers below this
MOST_RUNS, MOST_SETTINGS = 10_000_000, 100_000
# Dims of a result that a swept parameter may not take.
TAKEN = (
    "seed", "step", "time", "sequence_class", "query", "token", "head", "layer", "distance",
    "probe", "key", "k",
)  # fmt: skip


def kind_in(given: Mapping[str, Any]) -> Kind:
    """The kind of value that a file, or what was read from it, describes."""
    return next((kind for kind in KINDS if kind.source in given), SIMULATIONS)


@dataclass(frozen=True, kw_only=True)
class SweepRecipe(Recipe):
    """A grid of simulations or of trainings on text: the fields of one, and the values to try.

    Parameters
    ----------
    given : mapping, optional
        The fields of a `Simulation` that are the same for all. In a file they stand beside `grid`,
        which makes the file that of a simulation, but for three things: rates are numbers, `ratio`
        may stand for eta_y (eta_y = ratio * eta_z), and classes are named, by a preset that may
        lack those parameters that are in the grid. A file that has a `corpus` instead is that of a
        `Training`.
    grid : mapping, optional
        For each name the values to take, in all combinations. A name is a rate (`eta_y`, `eta_z`,
        `ratio`; of trainings `rate`), a field (`init`, `steps`, `classes`, `model`), a field inside
        one (`engine.length`, `optimizer.beta_2`, `model.position.slope`), or a parameter of the
        preset that `classes` names (`num_last`).
    """

    given: dict[str, Any] = field(
        default_factory=dict, metadata=inline(lambda document: kind_in(document).fields())
    )
    grid: dict[str, tuple[dict[str, Any] | Value, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        said = {name: of for name, of in self.given.items() if of is not None}
        object.__setattr__(self, "given", said)
        if self.kind.source not in said:
            raise InputError(f"{self.kind.source}: missing")
        for name, values in self.grid.items():
            self._check_values(name, values)
        if len(set(self.dims())) < len(self.grid):
            raise InputError(f"grid: two of its names give the same dim: {list(self.dims())}")
        self.kind.check(said, self.grid)
        self._check_seeds()
        self._check_size()

    @property
    def kind(self) -> Kind:
        """What is swept: simulations or trainings."""
        return kind_in(self.given)

    @property
    def base(self) -> Any:
        """The value at the first point of the grid, with the rates that are not swept."""
        kind, (way, source) = self.kind, next(self._settings())
        points = {name: of[:1] for name, of in self.points.items()}
        return kind.value_at(way, [source], points, self.seeds, kind.record_steps(way))

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, one by one."""
        given = self.given.get("seeds", 1)
        return tuple(range(given)) if isinstance(given, int) else tuple(given)

    def changed(self, **changes: Any) -> Self:
        """The recipe with other fields of its value."""
        return replace(self, given={**self.given, **changes})

    def to_document(self) -> dict[str, Any]:
        """The value and the grid as plain values, as a file has them."""
        said = {name: of for name, of in self.given.items() if name != self.kind.source}
        named = self.kind.written(self.given[self.kind.source])
        grid = {name: [plain(value) for value in values] for name, values in self.grid.items()}
        return {self.kind.source: named, **plain(said), "grid": grid}

    # -- checks ---------------------------------------------------------------------------------

    def _check_values(self, name: str, values: tuple[Any, ...]) -> None:
        if name not in self.kind.rates:
            kind = self._kind_of(name)
            for i, value in enumerate(values):
                if kind is not Any and not is_dataclass(value):
                    as_value(f"grid.{name}[{i}]", value, kind)
        if not values or len(set(map(label, values))) < len(values):
            raise InputError(f"grid.{name}: expected a list of different values")

    def _kind_of(self, name: str) -> Any:
        """What the values are of something that is swept and no rate, if there is such a thing."""
        kind = self.kind
        own = kind.swept()
        sources = (self.given[kind.source], *self.grid.get(kind.source, ()))
        parameters = [key for source in sources for key in kind.parameters(source)]
        if name in own:
            return own[name]
        # looking inside of a model imports the models of all papers
        if "." in name and name in _inside(own):
            return Any  # its own dataclass knows better
        if name.removeprefix(f"{kind.source}.") in parameters:
            return int | float
        known = [*kind.rates, *own, *parameters, *_inside(own)]
        words = did_you_mean(name, dict.fromkeys(known))
        if not parameters:
            words += f"; {shown(kind.title(sources[0]))} has no parameters of its own"
        raise InputError(f"{within('grid', name)}: unknown key; {words}")

    def _check_seeds(self) -> None:
        seeds = self.given.get("seeds", 1)
        if not isinstance(seeds, tuple | list):
            if not 1 <= as_value("seeds", seeds, int) <= SEEDS:
                raise InputError(f"seeds: expected at least 1, or a list of them, got {seeds}")
            return
        for i, seed in enumerate(seeds):
            if not 0 <= as_value(f"seeds[{i}]", seed, int) < SEEDS:
                raise InputError(f"seeds[{i}]: expected a number from 0 to 2^32 - 1, got {seed}")
        if not seeds or len(set(seeds)) < len(seeds):
            raise InputError("seeds: expected at least 1, or a list of different ones")

    def _check_size(self) -> None:
        """Refuse what could not even be counted out."""
        sizes = {f"grid.{name}": len(values) for name, values in self.grid.items()}
        rates = {f"grid.{name}" for name in self.kind.rates}
        settings = {name: n for name, n in sizes.items() if name not in rates}
        seeds = self.given.get("seeds", 1)
        count_of_seeds = seeds if isinstance(seeds, int) else len(seeds)
        for what, factors, most in (
            ("settings", settings, MOST_SETTINGS),
            ("runs", {**sizes, "seeds": count_of_seeds}, MOST_RUNS),
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
        """The dim that each name of the grid has in the result: `engine.length` has `length`."""
        return dict(zip(map(_dim, self.grid), self.grid, strict=False))

    def axes(self) -> tuple[Axes, Axes]:
        """The values along each dim: of what makes a setting, and of the rates."""
        rates = self.kind.rates
        settings = {
            dim: tuple(map(label, self.grid[name]))
            for dim, name in self.dims().items()
            if name not in rates
        }
        return settings, self.kind.axes(self.given, self.grid)

    @cached_property
    def points(self) -> dict[str, NDArray[np.float64]]:
        """The rates of every cell, by the fields that they stand in."""
        return self.kind.points(self.given, self.grid)

    def settings(self) -> list[tuple[Any, Any]]:
        """(way, source) of each combination of what is not a rate, in the order of the grid.

        Those that go alike but for their source have their way, a value, in common.
        """
        return list(self._settings())

    def _settings(self) -> Iterator[tuple[Any, Any]]:
        kind = self.kind
        swept = [name for name in self.grid if name not in kind.rates]
        of_ways = [name for name in swept if self._is_field(name)]
        sources: dict[Any, Any] = {}
        ways: dict[Any, Any] = {}
        for values in product(*(self.grid[name] for name in swept)):
            chosen = dict(zip(swept, values, strict=True))
            how = {name: chosen.pop(name) for name in of_ways}
            try:
                of_source = tuple(chosen.values())
                if of_source not in sources:
                    sources[of_source] = self._source(chosen)
                source, of_way = sources[of_source], tuple(map(label, how.values()))
                if of_way not in ways:
                    ways[of_way] = kind.way(source, self._fields(how))
            except InputError as error:
                words = ", ".join(f"{n} = {label(v)}" for n, v in zip(swept, values, strict=True))
                raise InputError(f"grid: at {words}: {error}" if words else str(error)) from error
            yield ways[of_way], source

    def _is_field(self, name: str) -> bool:
        """Whether a name of the grid is a field, or inside one, and not of the source."""
        fields_ = self.kind.fields()
        return name.partition(".")[0] in fields_ and name.partition(".")[0] != self.kind.source

    def _source(self, chosen: Mapping[str, Any]) -> Any:
        name = self.kind.source
        source = self.given[name]
        rest = dict(chosen)
        if name in rest and not isinstance(rest[name], int | float):  # which is a parameter
            source = rest.pop(name)
        parameters = {key.removeprefix(f"{name}."): value for key, value in rest.items()}
        return self.kind.source_with(source, parameters)

    def _fields(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a way, with some set, which are checked as they would be in a file."""
        kinds = {**self.kind.fields(), **self.kind.swept()}
        made = {name: of for name, of in self.given.items() if name != self.kind.source}
        parts: dict[str, dict[str, Any]] = {}
        for name, value in chosen.items():
            home, *path = name.split(".")
            if not path:
                made[name] = value if is_dataclass(value) else as_value(name, value, kinds[name])
                continue
            if home not in parts:
                part = made[home] if home in made else _default(self.kind.value, home)
                parts[home] = {**_written(part)}
            inner = parts[home]
            for key in path[:-1]:
                inner = inner.setdefault(key, {})
            inner[path[-1]] = plain(value)
        return made | {home: as_value(home, of, kinds[home]) for home, of in parts.items()}


def _inside(kinds: Mapping[str, Any], within_: str = "") -> list[str]:
    """The names of fields inside of fields, and inside of those."""
    found: list[str] = []
    for name, kind in kinds.items():
        for part in (kind, *get_args(kind)):
            if not isinstance(part, type):
                continue
            if issubclass(part, Named):
                found += [f"{within_}{name}.name"]
            options = list(part.kinds().values()) if issubclass(part, Named) else [part]
            for option in filter(is_dataclass, options):
                hints = get_type_hints(option)
                own = {item.name: hints[item.name] for item in fields(option) if item.init}
                found += [f"{within_}{name}.{key}" for key in own]
                found += _inside(own, f"{within_}{name}.")
    return list(dict.fromkeys(found))


def _written(part: Any) -> dict[str, Any]:
    """A part as a file has it."""
    document: dict[str, Any] = part.to_document() if hasattr(part, "to_document") else plain(part)
    return document


def _default(kind: type, name: str) -> Any:
    """What a field of a dataclass is by default."""
    (of_name,) = (item for item in fields(kind) if item.name == name)
    if of_name.default_factory is not MISSING:
        return of_name.default_factory()
    return of_name.default


def _dim(name: str) -> str:
    home, _, inner = name.rpartition(".")
    if inner == "name":
        return home.rpartition(".")[-1]
    return f"{home.replace('.', '_')}_{inner}" if inner in TAKEN else inner
