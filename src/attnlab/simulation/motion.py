"""Where the gradient comes from, and how parameters move: two independent choices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from attnlab.defaults import BATCH_SIZE, STEPS
from attnlab.files.errors import InputError, require_whole
from attnlab.files.recipe import Named
from attnlab.simulation.optimizers import Optimizer, as_optimizer

MOST_STEPS = 2**31 - 1  # counted in 32 bits
USUAL_MOST_STEPS = 100_000  # flows that end take hundreds, or thousands where rates are far apart


class Gradient(Named, ABC):
    """Where the gradient of a step comes from: `size` examples, or None for the population."""

    size: Any


@dataclass(frozen=True)
class Batches(Gradient):
    """The gradient of fresh examples at each step.

    Parameters
    ----------
    size : int, optional
        Examples in a step.
    """

    size: int = field(default=BATCH_SIZE, metadata={"flat": "batch_size"})

    def __post_init__(self) -> None:
        require_whole("batch_size", self.size, 1)


@dataclass(frozen=True)
class Population(Gradient):
    """The gradient of the expected loss, or of a whole training set."""

    size: ClassVar[None] = None  # type: ignore[misc]


class Motion(Named, ABC):
    """A rule by which parameters move."""

    clock: ClassVar[Literal["step", "time"]]
    needs_population: ClassVar[bool] = False
    weight_decay: float
    clip: float | None = None
    reset_moments: bool = False

    @property
    @abstractmethod
    def last(self) -> float:
        """The last step or time."""

    @abstractmethod
    def check(self, dtype: str) -> None:
        """Refuse what numbers of this dtype cannot carry."""

    @property
    def side_by_side(self) -> bool:
        """True if two programs may run at once on a processor."""
        return True

    def optimizers(self, groups: Sequence[str], momentum: float) -> dict[str, Optimizer]:
        """Return the optimizers of these groups, none in a flow.

        momentum: of an sgd that was given none.
        """
        return {}


@dataclass(frozen=True)
class Steps(Motion):
    """Parameters move by steps of an optimizer.

    Parameters
    ----------
    steps : int, optional
        Optimizer steps.
    optimizer : str, Optimizer, function or mapping, optional
        Optimizer by name, "sgd", "adam" or "adamw". Or an `Optimizer` with its constants and decay;
        a function from a learning rate to an optax transformation; one for all groups, or by group.
    clip : float, optional
        Largest norm of the gradient over all groups; longer gradients are scaled down to it.
    reset_moments : bool, optional
        Reset the optimizer's moments at the end of each pass over the data. This is training with a
        new optimizer for every epoch.
    """

    clock: ClassVar[Literal["step", "time"]] = "step"

    steps: int = STEPS
    optimizer: Any = field(default_factory=Optimizer, metadata={"kind": Optimizer})
    clip: float | None = None
    reset_moments: bool = False

    def __post_init__(self) -> None:
        require_whole("steps", self.steps, 1)
        if self.steps > MOST_STEPS:
            raise InputError(f"steps: expected at most {MOST_STEPS:,}, got {self.steps}")
        object.__setattr__(self, "steps", int(self.steps))
        given = self.optimizer
        made: Any = (
            {str(name): as_optimizer(of) for name, of in given.items()}
            if isinstance(given, Mapping)
            else as_optimizer(given)
        )
        object.__setattr__(self, "optimizer", made)
        if self.clip is not None:
            if not 0 < self.clip < np.inf:
                raise InputError(f"clip: expected a positive number, got {self.clip}")
            object.__setattr__(self, "clip", float(self.clip))

    def __hash__(self) -> int:
        chosen = self.optimizer
        by_group = tuple(sorted(chosen.items())) if isinstance(chosen, dict) else chosen
        return hash((self.steps, by_group, self.clip, self.reset_moments))

    @property
    def last(self) -> float:
        """The last step."""
        return self.steps

    def check(self, dtype: str) -> None:
        """Accept every dtype."""

    def optimizers(self, groups: Sequence[str], momentum: float) -> dict[str, Optimizer]:
        """Return the optimizers of these groups."""
        given = self.optimizer
        by_group = given if isinstance(given, dict) else dict.fromkeys(groups, given)
        for name in groups:
            if name not in by_group:
                raise InputError(f"optimizer: missing for the group {name!r}; give one for each")
        return {name: by_group[name].with_momentum(momentum) for name in groups}


@dataclass(frozen=True)
class Flow(Motion):
    """Parameters follow the gradient flow, d(group)/dt = -learning_rate dL/d(group).

    One unit of time is one small step at the learning rate. Needs the gradient of the population.
    Integrated adaptively by diffrax. A run that has not arrived after `most_steps` steps of the
    solver is given up, as `Diverged`; and so is one that reaches infinity in finite time, whose
    `diverged_step` is the time when: steps shrink on the way there, to what the dtype cannot tell
    from 0.

    Parameters
    ----------
    time : float, optional
        End of the flow.
    solver : {"explicit", "implicit"}, optional
        Tsit5, or Kvaerno5 for stiff problems: it solves for a matrix of parameters x parameters.
    rtol, atol : float, optional
        Relative and absolute tolerance; by default what the dtype can carry.
    most_steps : int, optional
        Steps of the solver before a run is given up.
    weight_decay : float, optional
        Adds weight_decay times the parameters to the gradient.
    """

    clock: ClassVar[Literal["step", "time"]] = "time"
    needs_population: ClassVar[bool] = True

    time: float = float(STEPS)
    solver: Literal["explicit", "implicit"] = "explicit"
    rtol: float | None = None
    atol: float | None = None
    most_steps: int = USUAL_MOST_STEPS
    weight_decay: float = field(default=0.0, metadata={"flat": "flow_weight_decay"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", float(self.time))
        if self.solver not in ("explicit", "implicit"):
            raise InputError(f"solver: expected 'explicit' or 'implicit', got {self.solver!r}")
        require_whole("most_steps", self.most_steps, 1)
        if self.most_steps > MOST_STEPS:
            raise InputError(f"most_steps: expected at most {MOST_STEPS:,}, got {self.most_steps}")
        if not 0 <= self.weight_decay < np.inf:
            raise InputError(
                f"weight_decay: expected a number of at least 0, got {self.weight_decay}"
            )
        self.check("float64")

    @property
    def last(self) -> float:
        """The last time."""
        return self.time

    def check(self, dtype: str) -> None:
        """Refuse times and tolerances that numbers of this dtype cannot carry."""
        numbers = np.finfo(dtype)
        if not 0 < self.time <= float(numbers.max):
            raise InputError(
                f"time: expected a positive number, finite in {dtype}, got {self.time}"
            )
        least = {"rtol": 10 * float(numbers.eps), "atol": float(numbers.tiny)}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and not smallest <= value < np.inf:
                raise InputError(
                    f"{name}: expected a number of at least {smallest:.1e} in {dtype}, got {value}"
                )

    @property
    def side_by_side(self) -> bool:
        """True where explicit: two implicit flows in two threads were seen to hang."""
        return self.solver == "explicit"
