"""Sources of the gradient, optimizers (through optax), and motions of the parameters.

The gradient's source and the motion are two independent choices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from attnlab.defaults import BATCH_SIZE, STEPS
from attnlab.files.errors import InputError, refuse_if, require_choice, require_whole
from attnlab.files.recipe import Named, own_fields, read_dataclass
from attnlab.simulation.rates import require_groups

if TYPE_CHECKING:
    import jax
    import optax

MOST_STEPS = 2**31 - 1  # counted in 32 bits
DEFAULT_MOST_STEPS = 100_000  # flows that end take hundreds, or thousands where rates are far apart


Name = Literal["sgd", "adam", "adamw"]
Transformation = Callable[[Any], "optax.GradientTransformation"]  # of the learning rate
ADAMW_DECAY = 1e-2


class Gradient(Named, ABC):
    """Source of a step's gradient: `size` examples, or None for the population."""

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


@dataclass(frozen=True)
class Optimizer:
    """An optimizer by name and its constants; a `Simulation` has the learning rates.

    SGD's momentum is the ordinary form: m <- momentum * m + gradient, parameter -= learning rate
    * m. None stands for what the task takes: 0.9 on sequence classes, 0 elsewhere.

    Weight decay (None: 0.01 for adamw, else 0) acts on all that is trained. For sgd and adam it is
    the L2 penalty weight_decay |w|^2 / 2: the gradient has weight_decay * w added before momentum
    or Adam's moments see it. For adamw it is decoupled: w -= learning rate *
    weight_decay * w in addition.

    Parameters
    ----------
    name : str, optional
        "sgd", "adam" or "adamw".
    momentum : float, optional
        Momentum of sgd; by default 0.9 on sequence classes, else 0.
    beta_1 : float, optional
        Adam's decay of the mean of gradients.
    beta_2 : float, optional
        Adam's decay of the mean of squared gradients.
    epsilon : float, optional
        Adam's addition to the root of the mean square.
    weight_decay : float, optional
        Weight decay; by default 0.01 for adamw, else 0.
    """

    name: Name = "sgd"
    momentum: float | None = None
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        require_choice("optimizer", self.name, get_args(Name))
        for field_name in ("momentum", "beta_1", "beta_2"):
            value = getattr(self, field_name)
            refuse_if(not 0 <= (value or 0.0) < 1, field_name, "a number in [0, 1)", value)
        if self.weight_decay is None:
            object.__setattr__(self, "weight_decay", _default_decay(self.name))
        for field_name in ("epsilon", "weight_decay"):
            value = getattr(self, field_name)
            refuse_if(not 0 <= value < np.inf, field_name, "a number of at least 0", value)
        if self.name != "sgd" and self.momentum:
            raise InputError("momentum: belongs to sgd; for Adam set beta_1")

    def with_momentum(self, momentum: float) -> Optimizer:
        """Return the same, with this momentum for an sgd that was given none."""
        if self.momentum is not None:
            return self
        return replace(self, momentum=momentum if self.name == "sgd" else 0.0)

    def to_document(self, *, defaults: bool = False) -> dict[str, Any]:
        """Return the name, and what is not as it is by default; all of it with `defaults`."""
        given = own_fields(self, defaults=defaults)
        if not defaults and self.weight_decay == _default_decay(self.name):
            del given["weight_decay"]
        return {"name": self.name, **given}

    @staticmethod
    def from_document(where: str, document: Any) -> Any:
        """Return the optimizer that a document describes, or a mapping of groups to optimizers."""
        if isinstance(document, str):
            document = {"name": document}
        if isinstance(document, dict) and "name" not in document:
            return {
                name: Optimizer.from_document(f"{where}.{name}", of)
                for name, of in document.items()
            }
        name = document.get("name") if isinstance(document, dict) else None
        if isinstance(name, str) and "." in name:
            raise InputError(
                f"{where}: {name} is a function, which a file cannot hold; give it from Python"
            )
        return read_dataclass(where, document, Optimizer)

    @property
    def keeps_still(self) -> bool:
        """True if entries without a gradient do not move."""
        return self.name == "sgd" and not self.momentum and not self.weight_decay

    def transform(self, rate: float | jax.Array) -> optax.GradientTransformation:
        """Return the optax transformation at a learning rate (a number or a traced scalar)."""
        import optax

        if self.name == "adamw":
            return optax.adamw(
                rate, self.beta_1, self.beta_2, self.epsilon, weight_decay=self.weight_decay
            )
        if self.name == "adam":
            plain = optax.adam(rate, self.beta_1, self.beta_2, self.epsilon)
        else:
            plain = optax.sgd(rate, momentum=self.momentum or None)
        if not self.weight_decay:
            return plain
        return optax.chain(optax.add_decayed_weights(self.weight_decay), plain)


@dataclass(frozen=True)
class OptaxOptimizer(Optimizer):
    """Any optax transformation, as a function of the learning rate.

    `simulate(optimizer=function)` makes it.

    It is called by the module and the name of its function, which a file can hold and not give
    back. Of the fields, none but the function is its own.
    """

    function: Transformation | None = field(
        default=None, repr=False, kw_only=True, metadata={"written": False}
    )

    def __post_init__(self) -> None:
        for item in fields(Optimizer)[1:]:
            if getattr(self, item.name) not in (item.default, 0.0):
                raise InputError(f"{item.name}: set it in the function that makes the optimizer")
        name = getattr(self.function, "__qualname__", "<none>")
        if "<" in name:  # a lambda, or a function inside another
            raise InputError(
                f"optimizer: expected a function that is defined in a module, by whose name "
                f"results can say what it was; got {self.function!r}"
            )
        name = f"{self.function.__module__}.{name}"
        for field_name, value in (("name", name), ("momentum", 0.0), ("weight_decay", 0.0)):
            object.__setattr__(self, field_name, value)

    def transform(self, rate: float | jax.Array) -> optax.GradientTransformation:
        """Return the optax transformation at a learning rate (a number or a traced scalar)."""
        assert self.function is not None
        return self.function(rate)

    def to_document(self, *, defaults: bool = False) -> dict[str, Any]:
        """Return the name alone."""
        return {"name": self.name}


def _default_decay(name: str) -> float:
    return ADAMW_DECAY if name == "adamw" else 0.0


def as_optimizer(given: str | Optimizer | Transformation) -> Optimizer:
    """Return an optimizer that was given by name, as a function, or as an `Optimizer`."""
    if isinstance(given, str):
        return Optimizer(given)  # type: ignore[arg-type]
    if isinstance(given, Optimizer):
        return given
    if not callable(given):
        raise InputError(
            f"optimizer: expected one of {get_args(Name)}, an Optimizer or a function that makes "
            f"an optax transformation from a learning rate, got {given!r}"
        )
    return OptaxOptimizer(function=given)


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

    def optimizers(
        self, moving: Sequence[str], groups: Collection[str], momentum: float
    ) -> dict[str, Optimizer]:
        """Return the optimizers of the groups that move, none in a flow.

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
        refuse_if(self.steps > MOST_STEPS, "steps", f"at most {MOST_STEPS:,}", self.steps)
        object.__setattr__(self, "steps", int(self.steps))
        given = self.optimizer
        made: Any = (
            {str(name): as_optimizer(of) for name, of in given.items()}
            if isinstance(given, Mapping)
            else as_optimizer(given)
        )
        object.__setattr__(self, "optimizer", made)
        if self.clip is not None:
            refuse_if(not 0 < self.clip < np.inf, "clip", "a positive number", self.clip)
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

    def optimizers(
        self, moving: Sequence[str], groups: Collection[str], momentum: float
    ) -> dict[str, Optimizer]:
        """Return the optimizers of the groups that move."""
        given = self.optimizer
        by_group = given if isinstance(given, dict) else dict.fromkeys(groups, given)
        require_groups("optimizer", by_group, groups)
        for name in moving:
            if name not in by_group:
                raise InputError(f"optimizer: missing for the group {name!r}; give one for each")
        return {name: by_group[name].with_momentum(momentum) for name in moving}


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
    rtol : float, optional
        Relative tolerance of the solver; by default what the dtype can carry.
    atol : float, optional
        Absolute tolerance of the solver; by default what the dtype can carry.
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
    most_steps: int = DEFAULT_MOST_STEPS
    weight_decay: float = field(default=0.0, metadata={"flat": "flow_weight_decay"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", float(self.time))
        require_choice("solver", self.solver, ("explicit", "implicit"))
        require_whole("most_steps", self.most_steps, 1)
        most, decay = self.most_steps, self.weight_decay
        refuse_if(most > MOST_STEPS, "most_steps", f"at most {MOST_STEPS:,}", most)
        refuse_if(not 0 <= decay < np.inf, "weight_decay", "a number of at least 0", decay)
        self.check("float64")

    @property
    def last(self) -> float:
        """The last time."""
        return self.time

    def check(self, dtype: str) -> None:
        """Refuse times and tolerances that numbers of this dtype cannot carry."""
        numbers = np.finfo(dtype)
        fits = 0 < self.time <= float(numbers.max)
        refuse_if(not fits, "time", f"a positive number, finite in {dtype}", self.time)
        least = {"rtol": 10 * float(numbers.eps), "atol": float(numbers.tiny)}
        for name, smallest in least.items():
            value = getattr(self, name)
            wrong = value is not None and not smallest <= value < np.inf
            refuse_if(wrong, name, f"a number of at least {smallest:.1e} in {dtype}", value)

    @property
    def side_by_side(self) -> bool:
        """True where explicit: two implicit flows in two threads were seen to hang."""
        return self.solver == "explicit"
