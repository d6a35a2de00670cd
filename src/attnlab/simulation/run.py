"""Run: one frozen value that says what is learned, what learns, how, and what is recorded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.dynamics.grid import make_grid
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.models import Model
from attnlab.models.base import Params
from attnlab.simulation import program
from attnlab.simulation.learner import Learner, TaskLearner
from attnlab.simulation.losses import LossName
from attnlab.simulation.motion import (
    Batches,
    Gradient,
    Motion,
    Rates,
    rates_of,
)
from attnlab.simulation.record import Record
from attnlab.tasks import Task


@dataclass(frozen=True, eq=False)
class Run:
    """A training as a value: checked when made, equal by content.

    Parameters
    ----------
    task : Task or Learner
        What is learned; or a learner, which needs no model and no loss.
    model : Model, optional
        What learns.
    motion : Steps or Flow
        How parameters move.
    gradient : Batches or Population, optional
        Where the gradient comes from.
    loss : str, optional
        "cross_entropy" (with labels or probabilities), "square", "logistic", or "task", its own.
    init : mapping, optional
        Arrays by group in place of the model's own start, equal for all seeds.
    seeds : int or sequence, optional
        How many, or which.
    record : Record, optional
        What to record and when.
    dtype : str, optional
        "float32" or "float64".
    precision : str, optional
        Of matrix products: "default" (of the device) or "highest".

    Examples
    --------
    >>> from attnlab.models import Transformer
    >>> from attnlab.simulation import Batches, Run, Steps
    >>> from attnlab.tasks import MarkovChains
    >>> motion = Steps(20, learning_rate=[0.1, 0.3])
    >>> run = Run(MarkovChains(length=16), Transformer(), motion, Batches(8), seeds=2)
    >>> run.shape
    (2, 2)
    """

    task: Task | Learner
    model: Model | None
    motion: Motion
    gradient: Gradient = Batches()  # noqa: RUF009 - frozen
    loss: LossName = "cross_entropy"
    init: Mapping[str, Any] | None = None
    seeds: int | Sequence[int] = 1
    record: Record = Record()  # noqa: RUF009 - frozen
    dtype: Literal["float32", "float64"] = "float32"
    precision: Literal["default", "highest"] = "default"

    def __post_init__(self) -> None:
        for name, choices in (
            ("loss", get_args(LossName)), ("dtype", ("float32", "float64")),
            ("precision", ("default", "highest")),
        ):  # fmt: skip
            if getattr(self, name) not in choices:
                raise InputError(f"{name}: expected one of {choices}, got {getattr(self, name)!r}")
        if isinstance(self.task, Learner) != (self.model is None):
            raise InputError("model: expected a model for a task, and None for a learner")
        for name, value in (("task", self.task), ("model", self.model)):
            _require_value(name, value)
        if self.motion.needs_population and self.gradient.size is not None:
            raise InputError("gradient: a flow needs Population(); or take Steps")
        seeds = make_grid(1.0, 1.0, self.seeds).seeds  # which checks them
        object.__setattr__(self, "seeds", tuple(seeds.tolist()))
        if self.init is not None:
            object.__setattr__(self, "init", {name: _frozen(of) for name, of in self.init.items()})
        self._check_init()
        for name in self.what:
            if name not in self.recorded_shapes:
                raise InputError(
                    f"what: {name!r} cannot be recorded; "
                    f"{did_you_mean(name, (program.PARAMETERS, *self.recorded_shapes))}"
                )

    @cached_property
    def learner(self) -> Learner:
        """The learner that the trainer runs."""
        if isinstance(self.task, Learner):
            return self.task
        assert self.model is not None
        return TaskLearner(self.task, self.model, self.loss)

    @cached_property
    def rates(self) -> Rates:
        """The learning rates of the groups that move."""
        return rates_of(self.motion, list(self._start_shapes), self.learner.fixed)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of seeds and of points of the grid of learning rates."""
        return len(self.seeds), self.rates.points  # type: ignore[arg-type]

    @cached_property
    def plan(self) -> program.Plan:
        """Static argument of the compiled programs."""
        return replace(self._plan, what=self.what)

    @cached_property
    def what(self) -> tuple[str, ...]:
        """The names of what is recorded."""
        asked, found = self.record.what, self.recorded_shapes
        if asked is None:
            labels, own = self.learner.labels, program.leaves_of(self._start_shapes)
            return tuple(
                name for name in found if name not in own and "sequence" not in labels.get(name, ())
            )
        own = program.leaves_of(self._start_shapes)
        return tuple(
            one for name in asked for one in (own if name == program.PARAMETERS else (name,))
        )

    @cached_property
    def recorded_shapes(self) -> dict[str, Any]:
        """Shape and dtype of all that can be recorded, (seed, point, ...)."""
        with self.numbers():
            seeds = jax.ShapeDtypeStruct((len(self.seeds),), jnp.uint32)  # type: ignore[arg-type]
            found: dict[str, Any] = jax.eval_shape(self._all_of, seeds)
        return found

    @property
    def document(self) -> dict[str, Any]:
        """The value as plain data; arrays by their digests, classes by their names."""
        described: dict[str, Any] = _described(self)
        return described

    @cached_property
    def digest(self) -> str:
        """A name of the value by its content."""
        return hashlib.sha256(json.dumps(self.document, sort_keys=True).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def numbers(self) -> Any:
        """The run's precision, which is a setting of each thread."""
        from contextlib import ExitStack

        stack = ExitStack()
        stack.enter_context(jax.enable_x64(self.dtype == "float64"))
        stack.enter_context(jax.default_matmul_precision(self.precision))
        return stack

    def start(self) -> Params:
        """The arrays of `init`, in the run's dtype."""
        return jax.tree.map(lambda of: jnp.asarray(of, self.dtype), dict(self.init or {}))

    def rate_arrays(self, points: slice = slice(None)) -> program.Rates:
        """The learning rates as arrays of the run's dtype, of some points."""
        return {
            name: (
                jnp.asarray(at, self.dtype),
                jnp.asarray(self.rates.values[name][points], self.dtype),
            )
            for name, at in self.rates.at.items()
        }

    @cached_property
    def _plan(self) -> program.Plan:
        moving = tuple(self.rates.values)
        if self.record.evaluate and self.model is None:
            raise InputError("evaluate: a learner has no other tasks; leave it out")
        others = tuple(
            (name, TaskLearner(task, self.model, self.loss))  # type: ignore[arg-type]
            for name, task in self.record.evaluate.items()
        )
        return program.Plan(
            self.learner,
            self.gradient,
            self.motion.optimizers(moving),
            moving,
            self.motion.longest,
            (),
            self.record.probe,
            others,
        )

    @cached_property
    def _start_shapes(self) -> Params:
        """Shapes of the learner's parameters, by group."""

        def start() -> Params:
            key = program.key_of(jnp.uint32(0), program.DATA)
            params: Params = self.learner.init(key, self.learner.draw(key))
            return params

        with self.numbers():
            found: Params = jax.eval_shape(start)
        return found

    def _all_of(self, seeds: jax.Array) -> Any:
        kept, state = program.begin.function(self._plan, seeds, self.rate_arrays(), self.start())
        return program.record.function(self._plan, kept, state.params, jnp.int32(0))

    def _check_init(self) -> None:
        for name, group in (self.init or {}).items():
            if name not in self._start_shapes:
                known = ", ".join(self._start_shapes)
                raise InputError(f"init: the groups are {known}, got {name!r}")
            shapes = [jax.tree.map(np.shape, of) for of in (self._start_shapes[name], group)]
            if shapes[0] != shapes[1]:
                raise InputError(
                    f"init: expected shapes {shapes[0]} in the group {name!r}, got {shapes[1]}"
                )


def _require_value(name: str, value: Any) -> None:
    """Refuse what cannot be a static argument of compiled programs."""
    if value is None:
        return
    params = getattr(type(value), "__dataclass_params__", None)
    if params is None or not params.frozen or not params.eq:
        raise InputError(
            f"{name}: {type(value).__name__} is not a frozen dataclass; write "
            "@dataclass(frozen=True) above its class"
        )
    try:
        hash(value)
    except TypeError as problem:
        raise InputError(
            f"{name}: {type(value).__name__} has a field that cannot be hashed ({problem}); use "
            "numbers, strings and tuples"
        ) from None


def _frozen(tree: Any) -> Any:
    def one(of: Any) -> Any:
        array = np.array(of)
        array.setflags(write=False)
        return array

    return jax.tree.map(one, tree)


def _described(value: Any) -> Any:
    """A value as plain data that JSON can hold."""
    if is_dataclass(value) and not isinstance(value, type):
        if hasattr(value, "to_document"):
            return value.to_document(defaults=True)
        kind = f"{type(value).__module__}:{type(value).__qualname__}"
        own = {of.name: _described(getattr(value, of.name)) for of in fields(value)}
        return {"kind": kind, **own}
    if isinstance(value, Mapping):
        return {str(name): _described(of) for name, of in value.items()}
    if isinstance(value, tuple | list):
        return [_described(of) for of in value]
    if isinstance(value, np.ndarray):
        sha = hashlib.sha256(f"{value.dtype} {value.shape}".encode() + value.tobytes())
        return {"shape": list(value.shape), "sha256": sha.hexdigest()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', repr(value))}"
