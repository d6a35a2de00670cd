"""The compiled program of a gradient flow.

The solver's steps are diffrax's; the loop around them is ours, so that it comes back after a while
(to report progress, to be stopped, to give up) and goes on where it was. Records change nothing:
a step that would pass a record is taken to it from where the run is, and then anew in full.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnlab.dynamics.compiling import compiled
from attnlab.dynamics.program import each
from attnlab.models.base import Params
from attnlab.simulation.motion import Flow
from attnlab.simulation.program import Kept, Plan, Rates, rate_at

FIRST_STEP = 1e-3
TOLERANCES = {"float32": (1e-5, 1e-7), "float64": (1e-9, 1e-11)}


class State(NamedTuple):
    """A run of the flow between two steps of its solver."""

    time: Any
    params: Params
    size: Any  # of the next step
    taken: Any  # steps, counting those that had to be repeated
    there: Params  # the parameters at the time that was asked for last
    memory: Any  # of diffrax: its solver's and its controller's


@compiled("plan", "flow")
def begin(plan: Plan, flow: Flow, kept: Kept, params: Params, rates: Rates) -> State:
    """Return every run at time 0."""

    def one_run(kept: Kept, params: Params, values: dict[str, jax.Array]) -> State:
        solver, controller, term = _diffrax(plan, flow, kept, rates, values)
        zero = jnp.zeros((), jnp.result_type(float))
        size = zero + FIRST_STEP
        memory = (
            solver.init(term, zero, size, params, None),
            controller.init(
                term, zero, size, params, size, None, solver.func, solver.error_order(term)
            )[1],
        )
        return State(zero, params, size, jnp.int32(0), params, jax.tree.map(jnp.asarray, memory))

    return _each_run(one_run, kept, (params,), rates)


@compiled("plan", "flow")
def advance(
    plan: Plan, flow: Flow, kept: Kept, states: State, rates: Rates,
    target: jax.Array, most: jax.Array,
) -> tuple[State, jax.Array, jax.Array]:  # fmt: skip
    """Integrate towards the time `target` by at most `most` steps.

    Returns also whether each run has arrived, and whether it never will: it is out of steps or
    unable to take one.
    """

    def one_run(kept: Kept, start: State, values: dict[str, jax.Array]) -> Any:
        import diffrax

        solver, controller, term = _diffrax(plan, flow, kept, rates, values)
        order = solver.error_order(term)

        def lost(state: State) -> jax.Array:
            return (state.time + state.size == state.time) | (state.taken >= flow.most_steps)

        def goes_on(carry: tuple[State, jax.Array]) -> jax.Array:
            state, arrived = carry
            return ~arrived & ~lost(state) & (state.taken - start.taken < most)

        def step(carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            state, _ = carry
            of_solver, of_controller = state.memory
            within = state.size <= target - state.time
            end = jnp.where(within, state.time + state.size, target)
            there, error, _, new_solver, result = solver.step(
                term, state.time, end, state.params, None, of_solver, made_jump=False
            )
            solved = diffrax.is_okay(result)  # the implicit equations
            error = jax.tree.map(
                lambda leaf: jnp.where(jnp.isnan(leaf) | ~solved, jnp.inf, leaf), error
            )
            good, begin, next_end, _, new_controller, _ = controller.adapt_step_size(
                state.time, end, state.params, there, None, error, order, of_controller
            )
            moves, arrives = good & within, good & (end == target)
            shown = arrives & ~moves  # goes on from where it was
            # A step that failed and is, by rounding, to be repeated as it was would fail for ever.
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

    return _each_run(one_run, kept, (states,), rates)


def _diffrax(
    plan: Plan, flow: Flow, kept: Kept, rates: Rates, values: dict[str, jax.Array]
) -> tuple[Any, Any, Any]:
    """The solver, the controller of its steps, and the flow of one run."""
    import diffrax

    usual = TOLERANCES[str(jnp.result_type(float))]
    rtol, atol = flow.rtol or usual[0], flow.atol or usual[1]
    if flow.solver == "explicit":
        solver: Any = diffrax.Tsit5(scan_kind="lax")
    else:
        solver = diffrax.Kvaerno5(
            scan_kind="lax", root_finder=diffrax.VeryChord(rtol=rtol, atol=atol)
        )
    whole = plan.learner.population(kept.data)

    def velocity(t: jax.Array, moved: Params, args: None) -> Params:
        params = {**kept.fixed, **moved}
        _, slope = plan.learner.loss_and_grad(kept.data, params, whole, None, plan.moving)
        now = {name: rate_at(rates[name][0], of, t) for name, of in values.items()}
        return {
            name: jax.tree.map(lambda g, name=name: -now[name] * g, slope[name]) for name in now
        }

    return solver, diffrax.PIDController(rtol, atol), diffrax.ODETerm(velocity)


def _each_run(function: Any, kept: Kept, trees: tuple[Any, ...], rates: Rates) -> Any:
    """Vectorise a function of (kept, *trees, values) over seeds and points."""
    values = {name: of for name, (_, of) in rates.items()}

    def one_seed(kept: Kept, *trees: Any) -> Any:
        return each(lambda *of: function(kept, *of))(*trees, values)

    return each(one_seed)(kept, *trees)


def _choose(condition: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
