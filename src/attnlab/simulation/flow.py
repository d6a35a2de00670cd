"""The compiled program of a gradient flow.

The solver's steps are diffrax's; the loop around them is ours, so that it comes back after a while
(to report progress, to be stopped, to give up) and goes on where it was. Records change nothing:
a step that would pass a record is first taken up to it, and then in full from its beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.models.base import Params
from attnlab.simulation.program import Compiled, Kept, Plan, Rates, each, each_seed, use_of

if TYPE_CHECKING:
    from attnlab.simulation.simulation import Simulation

FIRST_STEP = 1e-3
TOLERANCES = {"float32": (1e-5, 1e-7), "float64": (1e-9, 1e-11)}


class State(NamedTuple):
    """A run of the flow between two steps of its solver; parameters are in the groups' order."""

    time: Any
    params: Any
    size: Any  # of the next step
    taken: Any  # steps, counting those that had to be repeated
    there: Any  # the parameters at the time that was asked for last
    memory: Any  # of diffrax: its solver's and its controller's


class Limits(NamedTuple):
    """Tolerances, and the most steps of a run in all and in this call."""

    rtol: Any
    atol: Any
    steps: Any
    steps_of_call: Any


def limits_of(run: Simulation, steps_of_call: int) -> Limits:
    """Return the limits of a run's flow as numbers of its dtype."""
    flow, real = run.motion, np.dtype(run.dtype).type
    rtol, atol = TOLERANCES[run.dtype]
    tolerances = real(flow.rtol or rtol), real(flow.atol or atol)
    return Limits(*tolerances, np.int32(flow.most_steps), np.int32(steps_of_call))


@Compiled
def begin(
    plan: Plan, tables: Any, kept: Kept, params: Params, rates: Rates, limits: Limits
) -> State:
    """Return every run at time 0."""

    def one_run(velocity: Any, params: Params) -> State:
        solver, controller, term = _diffrax(velocity, plan.implicit, limits)
        zero = jnp.zeros((), jnp.result_type(float))
        size = zero + FIRST_STEP
        memory = (
            solver.init(term, zero, size, params, None),
            controller.init(
                term, zero, size, params, size, None, solver.func, solver.error_order(term)
            )[1],
        )
        return State(zero, params, size, jnp.int32(0), params, jax.tree.map(jnp.asarray, memory))

    # In the order of the groups: the solver sums errors over them, and sums round by their order.
    ordered = tuple(params[name] for name in plan.moving)
    return _each_run(one_run, plan, tables, kept, ordered, rates)


@Compiled
def advance(
    plan: Plan,
    tables: Any,
    kept: Kept,
    states: State,
    rates: Rates,
    target: jax.Array,
    limits: Limits,
) -> tuple[State, jax.Array, jax.Array]:
    """Integrate towards the time `target`.

    Returns also whether each run has arrived, and whether it never will: it is out of steps or
    unable to take one.
    """

    def one_run(velocity: Any, start: State) -> Any:
        import diffrax

        solver, controller, term = _diffrax(velocity, plan.implicit, limits)
        order = solver.error_order(term)

        def lost(state: State) -> jax.Array:
            return (state.time + state.size == state.time) | (state.taken >= limits.steps)

        def goes_on(carry: tuple[State, jax.Array]) -> jax.Array:
            state, arrived = carry
            return ~arrived & ~lost(state) & (state.taken - start.taken < limits.steps_of_call)

        def step(carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            state, _ = carry
            of_solver, of_controller = state.memory
            within = state.size <= target - state.time
            end = jnp.where(within, state.time + state.size, target)
            there, error, _, new_solver, result = solver.step(
                term, state.time, end, state.params, None, of_solver, made_jump=False
            )
            failed = ~diffrax.is_okay(result) if plan.implicit else False  # the implicit equations
            error = jax.tree.map(
                lambda leaf: jnp.where(jnp.isnan(leaf) | failed, jnp.inf, leaf), error
            )
            good, begin, next_end, _, new_controller, _ = controller.adapt_step_size(
                state.time, end, state.params, there, None, error, order, of_controller
            )
            moves, arrives = good & within, good & (end == target)
            shown = arrives & ~moves  # goes on from where it was
            # A failed step whose size, by rounding, does not shrink would fail again and again.
            shrinks = next_end - begin < end - state.time
            size = jnp.where(good | shrinks, next_end - begin, 0.0)
            after = State(
                time=jnp.where(moves, end, state.time),
                params=_choose(moves, there, state.params),
                size=jnp.where(shown, state.size, size),
                taken=state.taken + 1,
                there=_choose(arrives, there, state.there),
                memory=(
                    _choose(moves, new_solver, of_solver),
                    _choose(shown, of_controller, new_controller),
                ),
            )
            return after, arrives

        arrived = start.time >= target
        start = start._replace(there=_choose(arrived, start.params, start.there))
        state, arrived = jax.lax.while_loop(goes_on, step, (start, arrived))
        return state, arrived, ~arrived & lost(state)

    return _each_run(one_run, plan, tables, kept, states, rates)


def _diffrax(velocity: Any, implicit: bool, limits: Limits) -> tuple[Any, Any, Any]:
    """Return the solver, the controller of its steps, and the flow of one run."""
    import diffrax

    if implicit:
        root_finder = diffrax.VeryChord(rtol=limits.rtol, atol=limits.atol)
        solver: Any = diffrax.Kvaerno5(scan_kind="lax", root_finder=root_finder)
    else:
        solver = diffrax.Tsit5(scan_kind="lax")
    controller = diffrax.PIDController(limits.rtol, limits.atol)
    return solver, controller, diffrax.ODETerm(velocity)


def _each_run(function: Any, plan: Plan, tables: Any, kept: Kept, trees: Any, rates: Rates) -> Any:
    """Vectorise a function of (velocity, tree) over settings, seeds and points."""
    learner = plan.learner

    def one_seed(tables: Any, key: jax.Array, drawn: Any, fixed: Params, trees: Any) -> Any:
        data = learner.data(tables, drawn)
        of_batch = use_of(key, learner.uses.batch)
        whole = learner.examples(data, learner.prepare(data, None), of_batch, jnp.int32(0), None)

        def one(tree: Any, rates: Rates) -> Any:
            def velocity(t: jax.Array, moved: Any, args: None) -> Any:
                params = {**fixed, **dict(zip(plan.moving, moved, strict=True))}
                _, by_group = learner.loss_and_grad(data, params, whole, None, plan.moving)
                slope = tuple(by_group[name] for name in plan.moving)
                if plan.weight_decay:
                    slope = jax.tree.map(lambda g, w: g + plan.weight_decay * w, slope, moved)
                paces = [plan.rate(name, rates[name], t) for name in plan.moving]
                return tuple(
                    jax.tree.map(lambda g, rate=rate: -rate * g, group)
                    for rate, group in zip(paces, slope, strict=True)
                )

            return function(velocity, tree)

        return each(one)(trees, rates)

    return each_seed(one_seed, tables, kept, trees)


def _choose(condition: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
