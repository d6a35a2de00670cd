"""Where the gradient comes from, and how parameters move: two independent choices."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics.optimizers import Optimizer, as_optimizer
from attnlab.files.errors import InputError, require_whole

NAME = "learning_rate"


@dataclass(frozen=True)
class Batches:
    """The gradient of `size` fresh examples a step."""

    size: int = 64

    def __post_init__(self) -> None:
        require_whole("size", self.size, 1)


@dataclass(frozen=True)
class Population:
    """The gradient of the expected loss."""

    size: ClassVar[None] = None


@dataclass(frozen=True)
class Piecewise:
    """A learning rate that is constant between steps (or flow times): training in stages.

    Parameters
    ----------
    at : sequence
        Where each piece begins; the first is 0.
    values : sequence
        The learning rate of each piece.
    """

    at: Sequence[float]
    values: Sequence[float]

    def __post_init__(self) -> None:
        at, values = (tuple(float(x) for x in of) for of in (self.at, self.values))
        if len(at) != len(values) or not at or at[0] != 0 or list(at) != sorted(set(at)):
            raise InputError(
                "at: expected increasing numbers from 0 on, one for each of the values, got "
                f"{self.at} and {self.values}"
            )
        _require_rates("values", values)
        object.__setattr__(self, "at", at)
        object.__setattr__(self, "values", values)


Rate = float | Sequence[float] | Piecewise | None
RATE_DOC = "a number, a list (a dim), Piecewise, or None (fixed), or a mapping of groups to these"


class Motion(ABC):
    """A rule by which parameters move."""

    clock: ClassVar[Literal["step", "time"]]
    needs_population: ClassVar[bool] = False
    learning_rate: Rate | Mapping[str, Rate]

    @property
    @abstractmethod
    def last(self) -> float:
        """The last step or time."""

    @property
    def side_by_side(self) -> bool:
        """True if two programs may run at once on a processor."""
        return True

    def optimizers(self, groups: Sequence[str]) -> tuple[tuple[str, Optimizer], ...]:
        """Return the optimizers of these groups."""
        return ()

    @property
    def longest(self) -> float | None:
        """Longest gradient, over all groups."""
        return None


@dataclass(frozen=True)
class Steps(Motion):
    """Parameters move by steps of an optimizer.

    Parameters
    ----------
    steps : int
        How many.
    learning_rate : float, sequence, Piecewise, None or mapping, optional
        One for all groups, or by group. A list becomes a dim of its name, `learning_rate` or
        `learning_rate_<group>`; None keeps a group fixed: no gradient, no decay.
    optimizer : str, Optimizer, function or mapping, optional
        "sgd" (without momentum), "adam" or "adamw"; an `Optimizer` with its constants and decay; a
        function from a learning rate to an optax transformation; one for all groups, or by group.
    clip : float, optional
        Longest gradient, over all groups.
    """

    clock: ClassVar[Literal["step", "time"]] = "step"

    steps: int
    learning_rate: Rate | Mapping[str, Rate] = 0.1
    optimizer: Any = "sgd"
    clip: float | None = None

    def __post_init__(self) -> None:
        require_whole("steps", self.steps, 1)
        object.__setattr__(self, "steps", int(self.steps))
        object.__setattr__(self, "learning_rate", _checked(self.learning_rate))
        given = self.optimizer
        made: Any = (
            {name: _optimizer(of) for name, of in given.items()}
            if isinstance(given, Mapping)
            else _optimizer(given)
        )
        object.__setattr__(self, "optimizer", made)
        if self.clip is not None and not 0 < self.clip < np.inf:
            raise InputError(f"clip: expected a number above 0, got {self.clip}")

    @property
    def last(self) -> float:
        """The last step."""
        return self.steps

    @property
    def longest(self) -> float | None:
        """The field `clip`."""
        return self.clip

    def optimizers(self, groups: Sequence[str]) -> tuple[tuple[str, Optimizer], ...]:
        """Return the optimizers of these groups."""
        given = self.optimizer
        by_group = given if isinstance(given, dict) else dict.fromkeys(groups, given)
        for name in groups:
            if name not in by_group:
                raise InputError(f"optimizer: missing for the group {name!r}; give one for each")
        return tuple((name, by_group[name]) for name in groups)


@dataclass(frozen=True)
class Flow(Motion):
    """Parameters follow the gradient flow, d(group)/dt = -learning_rate dL/d(group).

    Needs the gradient of the population. Integrated adaptively by diffrax.

    Parameters
    ----------
    time : float
        Where it ends.
    learning_rate : float, sequence, Piecewise, None or mapping, optional
        As in `Steps`; one unit of time is one small step at this learning rate.
    solver : {"explicit", "implicit"}, optional
        Tsit5, or Kvaerno5 for stiff problems: it solves for a matrix of parameters x parameters.
    rtol, atol : float, optional
        Tolerances; by default what the dtype can carry.
    most_steps : int, optional
        Steps of the solver before a run is given up.
    """

    clock: ClassVar[Literal["step", "time"]] = "time"
    needs_population: ClassVar[bool] = True

    time: float
    learning_rate: Rate | Mapping[str, Rate] = 1.0
    solver: Literal["explicit", "implicit"] = "explicit"
    rtol: float | None = None
    atol: float | None = None
    most_steps: int = 100_000

    def __post_init__(self) -> None:
        if not 0 < self.time < np.inf:
            raise InputError(f"time: expected a number above 0, got {self.time}")
        if self.solver not in ("explicit", "implicit"):
            raise InputError(f"solver: expected 'explicit' or 'implicit', got {self.solver!r}")
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise InputError(f"{name}: expected a number between 0 and 1, got {value}")
        require_whole("most_steps", self.most_steps, 1)
        object.__setattr__(self, "learning_rate", _checked(self.learning_rate))

    @property
    def last(self) -> float:
        """The last time."""
        return self.time

    @property
    def side_by_side(self) -> bool:
        """Only where explicit: two implicit flows in two threads were seen to hang."""
        return self.solver == "explicit"


Gradient = Batches | Population


@dataclass(frozen=True)
class Rates:
    """The learning rates of the groups that move, over the points of a grid.

    dims: the swept learning rates by name. at, values: by group, where pieces begin (pieces,) and
    what the learning rates are there (point, piece).
    """

    dims: dict[str, NDArray[Any]]
    at: dict[str, NDArray[Any]]
    values: dict[str, NDArray[Any]]

    @property
    def points(self) -> int:
        """Number of points of the grid."""
        return int(np.prod([of.size for of in self.dims.values()], dtype=int))

    def describe(self, point: int) -> str:
        """Return the learning rates of a point in words."""
        places = np.unravel_index(point, [of.size for of in self.dims.values()] or [1])
        named = zip(self.dims.items(), places, strict=False)
        return "".join(f"{name} = {of[place]:g}, " for (name, of), place in named)


def rates_of(motion: Motion, groups: Sequence[str], fixed: Sequence[str]) -> Rates:
    """Return the learning rates of those groups that move."""
    given = motion.learning_rate
    by_group: Mapping[str, Any] = (
        given if isinstance(given, dict) else {name: given for name in groups if name not in fixed}
    )
    for name in by_group:
        if name not in groups:
            raise InputError(f"{NAME}: the groups are {', '.join(groups)}, got {name!r}")
        if name in fixed and by_group[name] is not None:
            raise InputError(f"{NAME}: the group {name!r} is fixed by the model; give None")
    for name in groups:
        if name not in by_group and name not in fixed:
            raise InputError(f"{NAME}: missing for the group {name!r}; give None to keep it fixed")
    moving = {name: rate for name, rate in by_group.items() if rate is not None}
    if not moving:
        raise InputError(f"{NAME}: no group moves; give a number to one of {', '.join(groups)}")
    dim_of = {
        name: f"{NAME}_{name}" if isinstance(given, dict) else NAME
        for name, rate in moving.items()
        if isinstance(rate, tuple)
    }
    dims = {dim: np.asarray(moving[name]) for name, dim in dim_of.items()}
    grid = list(itertools.product(*dims.values()))
    places = {dim: i for i, dim in enumerate(dims)}
    at, values = {}, {}
    for name, rate in sorted(moving.items()):
        if isinstance(rate, Piecewise):
            at[name] = np.asarray(rate.at)
            values[name] = np.tile(np.asarray(rate.values), (len(grid), 1))
        else:
            at[name] = np.zeros(1)
            chosen = [point[places[dim_of[name]]] if name in dim_of else rate for point in grid]
            values[name] = np.asarray(chosen, dtype=np.float64)[:, None]
    return Rates(dims, at, values)


def _optimizer(given: Any) -> Optimizer:
    return as_optimizer(given).with_momentum(0.0)


def _checked(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {str(name): _one_rate(f"{NAME}.{name}", rate) for name, rate in given.items()}
    if given is None:
        raise InputError(f"{NAME}: nothing would move; expected {RATE_DOC}")
    return _one_rate(NAME, given)


def _one_rate(name: str, given: Any) -> Any:
    if given is None or isinstance(given, Piecewise):
        return given
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.zeros((1, 1))
    if values.ndim > 1:
        raise InputError(f"{name}: expected {RATE_DOC}, got {given!r}")
    _require_rates(name, values.ravel())
    return float(values) if values.ndim == 0 else tuple(values.tolist())


def _require_rates(name: str, values: Any) -> None:
    values = np.asarray(values)
    if values.size == 0 or not np.all((values >= 0) & np.isfinite(values)):
        raise InputError(f"{name}: expected finite numbers of at least 0, got {values.tolist()}")
