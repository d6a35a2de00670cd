"""Simulations by recipe: a grid of rates and of class parameters, many seeds, one file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from attnlab.data import SequenceClasses, classes_from
from attnlab.dynamics import Engine, Flow, Limit, Optimizer, Sampled, Save, simulate
from attnlab.figures.code import code_digest, digest_of
from attnlab.figures.recipe import FigureRecipe
from attnlab.results import DamagedFile, load, save

RATES = ("eta_y", "eta_z", "ratio")
# What decides a simulation's numbers, apart from its recipe.
CODE = ("data", "dynamics", "results")

Progress = Callable[[float], None] | Literal[False]


@dataclass(frozen=True)
class EngineRecipe:
    """An engine by name; `length` and `batch_size` as in `Sampled` and `Limit`."""

    name: Literal["sampled", "limit", "flow"]
    length: int | None = None
    batch_size: int | None = None

    def engine(self) -> Engine:
        """The engine that this stands for."""
        if self.name == "sampled":
            given = {"length": self.length, "batch_size": self.batch_size}
            return Sampled(**{key: value for key, value in given.items() if value is not None})
        return Limit(self.batch_size) if self.name == "limit" else Flow()

    def __post_init__(self) -> None:
        if self.length is not None and self.name != "sampled":
            raise ValueError(f"length: belongs to the engine 'sampled', not to {self.name!r}")
        if self.batch_size is not None and self.name == "flow":
            raise ValueError("batch_size: the flow has no batches")
        self.engine()  # whose own checks apply


@dataclass(frozen=True, kw_only=True)
class SimulationRecipe(FigureRecipe):
    """A figure that comes from simulations.

    grid: for each name the values to take, in all combinations: `eta_z`, then `eta_y` or `ratio`
    (eta_y = ratio * eta_z), and parameters of the preset that `classes` names. The rest is what
    `simulate` takes.
    """

    classes: str
    grid: dict[str, tuple[float, ...]]
    engine: EngineRecipe
    optimizer: Optimizer = field(default_factory=Optimizer)
    init: Literal["zero", "uniform"] = "zero"
    steps: float
    seeds: int = 1
    save: Save
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if "eta_z" not in self.grid or ("eta_y" in self.grid) == ("ratio" in self.grid):
            raise ValueError("grid: give eta_z, and either eta_y or ratio (eta_y = ratio * eta_z)")
        for name, values in self.grid.items():
            if not values or len(set(values)) < len(values):
                raise ValueError(f"grid.{name}: expected a list of different values")
        if self.seeds < 1:
            raise ValueError(f"seeds: expected at least 1, got {self.seeds}")

    def rates(self) -> tuple[xr.DataArray, xr.DataArray]:
        """eta_y and eta_z, one dim for each rate in the grid."""
        axes = {
            name: xr.DataArray(list(values), dims=name, coords={name: list(values)})
            for name, values in self.grid.items()
            if name in RATES
        }
        eta_z = axes["eta_z"]
        return (axes["eta_y"] if "eta_y" in axes else axes["ratio"] * eta_z), eta_z

    def groups(self) -> list[tuple[dict[str, float], SequenceClasses]]:
        """The classes of the grid, each with the parameters that made them."""
        swept = [name for name in self.grid if name not in RATES]
        groups = []
        for values in product(*(self.grid[name] for name in swept)):
            chosen = dict(zip(swept, values, strict=True))
            given = ",".join(f"{name}={value:g}" for name, value in chosen.items())
            joint = "," if ":" in self.classes else ":"
            groups.append((chosen, classes_from(f"{self.classes}{joint}{given}".rstrip(":,"))))
        return groups


@dataclass(frozen=True)
class Group:
    """The runs of one set of classes: the class parameters that were swept, and the result."""

    parameters: dict[str, float]
    result: xr.Dataset


def run(
    recipe: SimulationRecipe, *, progress: Progress = False, keep: Path | None = None
) -> list[Group]:
    """Simulate the grid of a recipe, one call of `simulate` for each set of classes.

    progress: called with the fraction done. keep: a folder in which results are kept, and found
    again when the same simulation is asked for, by whichever figure.
    """
    groups = recipe.groups()
    eta_y, eta_z = recipe.rates()
    weights = [classes.vocab_size for _, classes in groups]
    done, out = 0, []
    for (parameters, classes), weight in zip(groups, weights, strict=True):

        def report(fraction: float, done: int = done, weight: int = weight) -> None:
            if progress:
                progress((done + fraction * weight) / sum(weights))

        def make(classes: SequenceClasses = classes, report: Any = report) -> xr.Dataset:
            return simulate(
                classes, recipe.engine.engine(), eta_y=eta_y, eta_z=eta_z, steps=recipe.steps,
                optimizer=recipe.optimizer, init=recipe.init, seeds=recipe.seeds,
                save=recipe.save, dtype=recipe.dtype, progress=report,
            )  # fmt: skip

        if keep is None:
            result = make()
        else:
            result = _kept(keep / f"{_digest(recipe, classes)}.nc", make)
        out.append(Group(parameters, result))
        done += weight
        report(0.0, done, weight)
    return out


def by_size(groups: list[Group], arrays: list[xr.DataArray]) -> xr.DataArray:
    """One array per group along `num_last`, the number of queries; K stands beside it."""
    coords = {
        "num_last": [int(group.parameters["num_last"]) for group in groups],
        "classes": ("num_last", [group.result.sizes["sequence_class"] for group in groups]),
    }
    return xr.concat(arrays, "num_last").assign_coords(coords)


def size_titles(data: xr.Dataset) -> list[str]:
    """A title for each size along `num_last`."""
    sizes = zip(data["num_last"].values, data["classes"].values, strict=True)
    return [f"{n} {'query' if n == 1 else 'queries'}, K = {k}" for n, k in sizes]


def _digest(recipe: SimulationRecipe, classes: SequenceClasses) -> str:
    """What the numbers depend on: not the words of the recipe, nor where the classes came from."""
    rates = {name: recipe.grid[name] for name in RATES if name in recipe.grid}
    names = ("engine", "optimizer", "init", "steps", "seeds", "save", "dtype")
    asked = {name: value for name, value in asdict(recipe).items() if name in names}
    return digest_of([classes.digest, rates, asked, code_digest(*CODE)])[:20]


def _kept(path: Path, make: Callable[[], xr.Dataset]) -> xr.Dataset:
    with suppress(FileNotFoundError, DamagedFile):
        return load(path)
    result = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    save(result, path)
    return result
