"""Flow: the gradient flow of the expected loss, integrated adaptively.

The solver's steps are diffrax's; the loop around them is ours, so that it comes back after a while
(to report progress, to be stopped, to give up) and goes on where it was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from attnlab.data.classes import SequenceClasses
from attnlab.dynamics import program
from attnlab.dynamics.batch import Batch
from attnlab.dynamics.compiling import compiled
from attnlab.dynamics.engines.base import MOST_STEPS, Engine
from attnlab.dynamics.engines.limit import Limit, LimitRows
from attnlab.dynamics.gradient import Parameters, class_rows
from attnlab.dynamics.layout import Layout, TokenMap
from attnlab.dynamics.models.base import Model
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.positions import Position
from attnlab.dynamics.save import Save
from attnlab.files.errors import InputError, require_whole

FIRST_STEP = 1e-3
TOLERANCES = {"float32": (1e-5, 1e-7), "float64": (1e-9, 1e-11)}
USUAL_MOST_STEPS = (
    100_000  # flows that end take a few hundred, or thousands where rates are far apart
)


class State(NamedTuple):
    """A run of the flow between two steps of its solver."""

    time: Any
    trained: Parameters
    size: Any  # of the next step
    taken: Any  # steps, counting those that had to be repeated
    there: Parameters  # what is trained at the time that was asked for last


class Memory(NamedTuple):
    """What diffrax remembers from step to step, anew in each call."""

    of_solver: Any
    of_controller: Any


class Limits(NamedTuple):
    """What holds for all runs: how exact, how many steps at most in all and in this call."""

    rtol: Any
    atol: Any
    steps: Any
    steps_of_call: Any


class FlowBatch(Batch):
    """Runs of the flow, each at a time of its own."""

    times: NDArray[Any] = np.zeros(1)  # until it begins

    def start(self, states: program.State) -> None:
        self.times = np.zeros(self.shape, self.run.dtype)
        size, taken = np.full_like(self.times, FIRST_STEP), np.zeros(self.shape, np.int32)
        self.state = State(self.times, states.trained, size, taken, states.trained)

    def states(self) -> program.State:
        return program.State(self.state.there, ((), ()))

    @property
    def reached(self) -> float:
        return float(self.times.min())

    @property
    def fraction(self) -> float:
        """By the logarithm of time: steps grow with it."""
        passed, last = (np.log1p(t / FIRST_STEP) for t in (self.times, self.record_steps[-1]))
        return float(passed.mean() / last) if last else 1.0

    @property
    def engine(self) -> Flow:
        assert isinstance(self.run.simulation.engine, Flow)
        return self.run.simulation.engine

    @property
    def most_steps(self) -> int:
        return self.engine.most_steps or USUAL_MOST_STEPS

    def compile_advance(self) -> None:
        self.call(0.0, 0)

    def advance(self, step: float) -> bool:
        before, begun = self.state.taken, time.perf_counter()
        self.state, arrived, lost = self.call(step, self.pace.steps)
        self.pace.took(int(np.max(self.state.taken - before)), time.perf_counter() - begun)
        self.times = np.where(arrived, self.run.dtype.type(step), self.state.time)
        taken = int(np.max(self.state.taken))
        self.note = f"time {self.reached:.3g}, step {taken:,} of {self.most_steps:,} at most"
        for setting, seed, point in np.argwhere(lost).tolist():
            place = setting, seed, point
            self.recorded.failures[place] = self._failure(place)
        return bool(np.all(arrived | lost))

    def call(self, target: float, steps: int) -> tuple[State, NDArray[Any], NDArray[Any]]:
        """The runs after up to so many steps towards the time `target`; which of them are there,
        and which never will be."""
        number, (rtol, atol) = self.run.dtype.type, TOLERANCES[str(self.run.dtype)]
        limits = Limits(
            number(self.engine.rtol or rtol), number(self.engine.atol or atol),
            np.int32(self.most_steps), np.int32(steps),
        )  # fmt: skip
        state, arrived, lost = _advance(
            self.run.simulation.model, self.run.optimizer.weight_decay, self.stack.data.layout,
            self.fixed, self.state, self.rates, number(target), limits,
        )  # fmt: skip
        state = state._replace(
            time=np.asarray(state.time), size=np.asarray(state.size), taken=np.asarray(state.taken)
        )
        return state, np.asarray(arrived), np.asarray(lost)

    def _failure(self, place: tuple[int, int, int]) -> tuple[float, str]:
        """When and why the flow of a run was given up."""
        time, size = float(self.state.time[place]), float(self.state.size[place])
        if self.state.taken[place] < self.most_steps:
            return time, f"the flow could take no further step in {self.run.dtype}"
        left = (float(self.record_steps[-1]) - time) / max(size, np.finfo(self.run.dtype).tiny)
        return (
            time,
            f"the flow was given up after {self.most_steps:,} steps (about {left:.0e} left)",
        )


@dataclass(frozen=True)
class Flow(Engine):
    """Continuous time: the gradient flow of the expected loss for T to infinity.

    Time is measured in expected-gradient steps: dY/dt = -eta_y dL/dY, dZ/dt = -eta_z dL/dZ, so
    one unit of time is one small step of ``Limit()``. Integrated adaptively; `rtol` and `atol`
    default to what the dtype can carry. A run that has not arrived after `most_steps` steps of the
    solver (by default 100,000) is given up, as `Diverged`; and so is one that reaches infinity in
    finite time (`Joint` with a stationary gradient), whose `diverged_step` is the time when: steps
    shrink on the way there, to what the dtype can tell from none.

    Parameters
    ----------
    rtol : float, optional
        Relative tolerance of the solver.
    atol : float, optional
        Absolute tolerance.
    most_steps : int, optional
        Steps of the solver before a run is given up.
    """

    clock: ClassVar[Literal["step", "time"]] = "time"
    batch: ClassVar[type[Batch]] = FlowBatch
    usual_momentum: ClassVar[float] = 0.0
    row_kind: ClassVar[Literal["tokens", "slots", "classes"]] = "classes"

    rtol: float | None = None
    atol: float | None = None
    most_steps: int | None = None

    def __post_init__(self) -> None:
        self._require_precision("float64")
        if self.most_steps is not None:
            require_whole("most_steps", self.most_steps, 1)
            if self.most_steps > MOST_STEPS:
                raise InputError(
                    f"most_steps: expected at most {MOST_STEPS:,}, got {self.most_steps}"
                )

    def source(
        self, classes: SequenceClasses, where: TokenMap, position: Position | None
    ) -> LimitRows:
        """The flow draws nothing: its rows are those of the expected gradient."""
        return Limit().source(classes, where, position)

    def check(self, steps: Any, dtype: str, optimizer: Optimizer) -> None:
        """Refuse times and tolerances beyond the dtype, and what is no plain gradient descent."""
        if not 0 < steps <= float(np.finfo(dtype).max):
            raise InputError(f"steps: expected a positive time, finite in {dtype}, got {steps}")
        self._require_precision(dtype)
        if optimizer != Optimizer(momentum=0.0, weight_decay=optimizer.weight_decay):
            raise InputError(
                "optimizer: the flow is that of plain gradient descent; use 'sgd' without "
                "momentum, or a stepping engine"
            )

    def record_steps(self, save: Save, last: float, bytes_per_record: int) -> NDArray[Any]:
        """The times to record at."""
        return save.times(float(last), bytes_per_record)

    def _require_precision(self, dtype: str) -> None:
        """Refuse tolerances that numbers of the dtype cannot meet."""
        numbers = np.finfo(dtype)
        least = {"rtol": 10 * float(numbers.eps), "atol": float(numbers.tiny)}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and not smallest <= value < np.inf:
                raise InputError(
                    f"{name}: expected a number of at least {smallest:.1e} in {dtype}, got {value}"
                )


@compiled("model", "weight_decay")
def _advance(
    model: Model,
    weight_decay: float,
    layout: Layout,
    fixed: Any,
    states: State,
    rates: tuple[jax.Array, jax.Array],
    target: jax.Array,
    limits: Limits,
) -> tuple[State, jax.Array, jax.Array]:
    """Integrate towards the time `target`; whether each run has arrived, and whether it never
    will, being out of steps or unable to take one."""
    import diffrax

    factors = model.rate_factors()
    # An explicit method suffices: the loss and its curvature decay alike, about as 1/t, so that
    # stable steps grow in proportion to t.
    solver = diffrax.Tsit5(scan_kind="lax")
    controller = diffrax.PIDController(limits.rtol, limits.atol)

    def one_run(
        layout: Layout, fixed: Any, start: State, eta_y: jax.Array, eta_z: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        rows = class_rows(layout, layout.prior)

        def velocity(t: jax.Array, trained: Parameters, args: None) -> Parameters:
            _, slope = model.loss_and_gradient(layout, rows, trained, fixed)
            if weight_decay:
                slope = jax.tree.map(lambda g, w: g + weight_decay * w, slope, trained)
            return Parameters(
                jax.tree.map(lambda g: -eta_y * factors[0] * g, slope.Y),
                jax.tree.map(lambda g: -eta_z * factors[1] * g, slope.Z),
            )

        term = diffrax.ODETerm(velocity)
        order = solver.error_order(term)

        def lost(state: State) -> jax.Array:
            stuck = state.time + state.size == state.time
            return stuck | (state.taken >= limits.steps)

        def goes_on(carry: tuple[State, Memory, jax.Array]) -> jax.Array:
            state, _, arrived = carry
            return ~arrived & ~lost(state) & (state.taken - start.taken < limits.steps_of_call)

        def step(carry: tuple[State, Memory, jax.Array]) -> tuple[State, Memory, jax.Array]:
            """One of the solver's size; or to the target if that is nearer, where the run is shown
            and goes on from where it was: records change nothing."""
            state, memory, _ = carry
            within = state.size <= target - state.time
            end = jnp.where(within, state.time + state.size, target)
            there, error, _, of_solver, _ = solver.step(
                term, state.time, end, state.trained, None, memory.of_solver, made_jump=False
            )
            error = jax.tree.map(lambda leaf: jnp.where(jnp.isnan(leaf), jnp.inf, leaf), error)
            good, begin, next_end, _, of_controller, _ = controller.adapt_step_size(
                state.time, end, state.trained, there, None, error, order, memory.of_controller
            )
            moves, arrives = good & within, good & ~within
            # A step that failed and is, by rounding, to be repeated as it was would fail for ever.
            shrinks = next_end - begin < end - state.time
            size = jnp.where(good | shrinks, next_end - begin, 0.0)
            after = State(
                time=jnp.where(moves, end, state.time),
                trained=_choose(moves, there, state.trained),
                size=jnp.where(arrives, state.size, size),
                taken=state.taken + 1,
                there=_choose(arrives, there, state.there),
            )
            kept = Memory(
                _choose(moves, of_solver, memory.of_solver),
                _choose(arrives, memory.of_controller, of_controller),
            )
            return after, kept, arrives

        first = start.time, start.time + start.size, start.trained
        memory = Memory(
            solver.init(term, *first, None),
            controller.init(term, *first, start.size, None, solver.func, order)[1],
        )
        state, _, arrived = jax.lax.while_loop(goes_on, step, (start, memory, jnp.asarray(False)))
        return state, arrived, ~arrived & lost(state)

    def one_setting(layout: Layout, fixed: Any, states: State) -> Any:
        def one_seed(fixed: Any, states: State) -> Any:
            return program.each(partial(one_run, layout, fixed))(states, *rates)

        return program.each(one_seed)(fixed, states)

    return program.each(one_setting)(layout, fixed, states)


def _choose(condition: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
