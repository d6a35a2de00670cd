"""Kind: what a sweep needs to know of the values that it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.recipe import plain

Axes = dict[str, tuple[Any, ...]]
Given = Mapping[str, Any]
Tell = Callable[[float], None]


@dataclass(frozen=True)
class Cost:
    """Of one run: bytes of memory while it lasts, bytes of records, and seconds on two cores.

    tables: bytes that a setting takes besides its runs, to draw sequences from.
    """

    memory: float
    records: float
    seconds: float
    tables: float = 0.0


class Kind(ABC):
    """A kind of value that can be swept: simulations, or trainings on text.

    Of a grid, the combinations of rates are *cells*, which run together as the seeds do, and all
    other combinations are *settings*: a source (what is learnt from) and a way (all the rest).

    value: the class. source: its field that names the source, by which a file is told to be of this
    kind. rates: the names of a grid that are rates, and the
    fields that they stand for. numbers: the folders that make its numbers.
    compile_seconds: of the programs of one shape.
    """

    value: ClassVar[type]
    source: ClassVar[str]
    rates: ClassVar[Mapping[str, str]]
    numbers: ClassVar[tuple[str, ...]]
    compile_seconds: ClassVar[float]

    # -- the recipe -----------------------------------------------------------------------------

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """What a recipe of this kind may say, each with the kind of its value."""

    @abstractmethod
    def swept(self) -> dict[str, Any]:
        """The fields that can be in the grid, each with the kind of a value there."""

    def parameters(self, source: Any) -> list[str]:
        """The names in a grid that belong to a source: of a preset, its parameters."""
        return []

    @abstractmethod
    def check(self, given: Given, grid: Given) -> None:
        """Refuse rates that are not as they should be."""

    @abstractmethod
    def axes(self, given: Given, grid: Given) -> Axes:
        """The rates along each dim; their combinations are the cells, the last varying fastest."""

    @abstractmethod
    def points(self, given: Given, grid: Given) -> dict[str, NDArray[np.float64]]:
        """The fields that rates stand in, at each cell."""

    @abstractmethod
    def source_with(self, source: Any, parameters: Given) -> Any:
        """The source, read or made, with some of its parameters set."""

    @abstractmethod
    def way(self, source: Any, fields: Given) -> Any:
        """A value of this source and these fields; its rates and seeds do not matter."""

    def given_by(self, value: Any) -> dict[str, Any]:
        """The fields of a value, as if each had been given."""
        return {name: getattr(value, name) for name in self.fields() if hasattr(value, name)}

    # -- the plan -------------------------------------------------------------------------------

    @abstractmethod
    def sizes(self, source: Any) -> Any:
        """Equal for sources that can be part of one value."""

    @abstractmethod
    def record_steps(self, way: Any) -> tuple[float, ...]:
        """The steps or times that are recorded: the same however runs are grouped."""

    @abstractmethod
    def cost(self, way: Any, source: Any, records: int) -> Cost:
        """What a run costs, roughly; refuses one that this machine has no memory for."""

    @abstractmethod
    def value_at(
        self, way: Any, sources: Sequence[Any], points: Given, seeds: Sequence[int],
        record_steps: Sequence[float],
    ) -> Any:  # fmt: skip
        """The value that has these sources, rates and seeds."""

    def written(self, source: Any) -> Any:
        """A source as a recipe names it."""
        return self.title(source)

    @abstractmethod
    def title(self, source: Any) -> str:
        """A source in a few words."""

    # -- the runs -------------------------------------------------------------------------------

    @abstractmethod
    def run(self, value: Any, tell: Tell) -> tuple[xr.Dataset, str]:
        """The dataset of a value, with dims (setting, cell, seed, ...), its numbers that sum it up
        (`final_...`, `snap_...`) and the `diverged_step` of each run, or -1; and why any failed.

        tell: called with the fraction done.
        """


def label(value: Any) -> Any:
    """A value of a grid as a coord has it: numbers and words as they are, the rest as a text."""
    document = plain(value)
    if not isinstance(document, dict):
        return document
    name = document.pop("name", "")
    rest = ",".join(f"{key}={label(item)}" for key, item in document.items())
    return f"{name}:{rest}" if name and rest else name or rest
