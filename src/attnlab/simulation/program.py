"""The compiled programs of a run: begin, advance, record.

Runs differ in their seed and their learning rates, the vectorised axes, from the outer to the
inner. Runs of one seed see the same data and batches, which are drawn once for all learning rates.
Random numbers are functions of seed and step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from attnlab.dynamics.compiling import compiled
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.program import each
from attnlab.models.base import Params
from attnlab.simulation.learner import Learner, TaskLearner
from attnlab.simulation.motion import Gradient

DATA, START, BATCH, DROPOUT, PROBE, EVALUATE = range(6)  # the uses of a seed
Rates = dict[str, tuple[jax.Array, jax.Array]]  # by group: where pieces begin, and their values
LOSS, PARAMETERS = "loss", "parameters"
EVALUATED = 256  # examples of another task


@dataclass(frozen=True)
class Plan:
    """Static argument of the compiled programs: the learner, and how it is moved and recorded."""

    learner: Learner
    gradient: Gradient
    optimizers: tuple[tuple[str, Optimizer], ...]  # of the groups that move; empty in a flow
    moving: tuple[str, ...]
    clip: float | None
    what: tuple[str, ...]  # all that there is, where it is empty
    probe: int
    evaluate: tuple[tuple[str, TaskLearner], ...]


class Kept(NamedTuple):
    """Constants of a run, for each seed: its instance and the groups that are fixed."""

    seeds: jax.Array
    data: Any
    fixed: Params


class State(NamedTuple):
    """Runs between two steps, (seed, point, ...)."""

    params: Params  # the groups that move
    memory: Any  # of the optimizers, by group
    failed: dict[str, jax.Array]  # by group and loss: first step that is not finite, or -1


def key_of(seed: jax.Array, use: int) -> jax.Array:
    """Return the key of one use of a seed; the generator is named so that it never varies."""
    return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), use)


@compiled("plan")
def begin(plan: Plan, seeds: jax.Array, rates: Rates, start: Params) -> tuple[Kept, State]:
    """Return what is kept of each seed and the states before the first step.

    start: arrays by group, in place of the learner's own.
    """
    learner, moving = plan.learner, plan.moving

    def one_seed(seed: jax.Array) -> tuple[Any, Params]:
        data = learner.draw(key_of(seed, DATA))
        return data, {**learner.init(key_of(seed, START), data), **start}

    data, params = jax.vmap(one_seed)(seeds)
    fixed = {name: value for name, value in params.items() if name not in moving}
    points = next(iter(rates.values()))[1].shape[0]
    moved = {
        name: jax.tree.map(lambda x: jnp.repeat(x[:, None], points, axis=1), params[name])
        for name in moving
    }

    def one_run(params: Params) -> State:
        memory = {name: of.transform(0.1).init(params[name]) for name, of in plan.optimizers}
        never = {name: jnp.int32(-1) for name in (*moving, LOSS)}
        return State(params, memory, never)

    return Kept(seeds, data, fixed), jax.vmap(jax.vmap(one_run))(moved)


@compiled("plan")
def advance(
    plan: Plan, kept: Kept, states: State, rates: Rates, first: jax.Array, count: jax.Array
) -> State:
    """Take `count` steps from step `first` on."""
    at = {name: starts for name, (starts, _) in rates.items()}
    values = {name: of for name, (_, of) in rates.items()}

    def one_seed(kept: Kept, states: State) -> State:
        whole = plan.learner.population(kept.data) if plan.gradient.size is None else None

        def step(i: jax.Array, states: State) -> State:
            examples = examples_of(plan, kept, whole, i)
            key = jax.random.fold_in(key_of(kept.seeds, DROPOUT), i)

            def one_run(state: State, values: dict[str, jax.Array]) -> State:
                now = {name: rate_at(at[name], of, i) for name, of in values.items()}
                return _step(plan, kept, examples, key, state, now, i)

            return each(one_run)(states, values)

        return jax.lax.fori_loop(first, first + count, step, states)

    return each(one_seed)(kept, states)


@compiled("plan")
def record(plan: Plan, kept: Kept, params: Params, step: jax.Array) -> dict[str, Any]:
    """Return what was asked for, of every run; the loss is that of the batch about to be taken."""

    def one_seed(kept: Kept, params: Params) -> dict[str, Any]:
        learner, data = plan.learner, kept.data
        if plan.gradient.size is None:
            probe = whole = learner.population(data)
        else:
            whole = None
            probe = learner.batch(data, key_of(kept.seeds, PROBE), jnp.int32(0), plan.probe)
        others = [
            (name, other, *_held(other, jax.random.fold_in(key_of(kept.seeds, EVALUATE), i)))
            for i, (name, other) in enumerate(plan.evaluate)
        ]
        examples = examples_of(plan, kept, whole, step)

        def one_run(moved: Params) -> dict[str, Any]:
            params = {**kept.fixed, **moved}
            found = learner.capture(data, params, probe) | leaves_of(params)
            found[LOSS] = learner.loss_and_grad(data, params, examples, None, plan.moving)[0]
            for name, other, theirs, held in others:
                found[f"{LOSS}_{name}"] = other.loss(theirs, params, held, None)
            return {name: of for name, of in found.items() if not plan.what or name in plan.what}

        return each(one_run)(params)

    return each(one_seed)(kept, params)


def examples_of(plan: Plan, kept: Kept, whole: Any, step: jax.Array) -> Any:
    """Return what the gradient of a step is computed from: its batch, or the population."""
    if plan.gradient.size is None:
        return whole
    key = jax.random.fold_in(key_of(kept.seeds, BATCH), step)
    return plan.learner.batch(kept.data, key, step, plan.gradient.size)


def rate_at(at: jax.Array, values: jax.Array, now: jax.Array) -> jax.Array:
    """Return the learning rate of the piece that `now` is in."""
    return values[0] if len(at) == 1 else values[jnp.sum(at <= now) - 1]


def leaves_of(params: Params) -> dict[str, jax.Array]:
    """Return the arrays of all groups as parameters.group, or parameters.group.name."""
    leaves, _ = jax.tree.flatten_with_path({PARAMETERS: params})
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _step(
    plan: Plan, kept: Kept, examples: Any, key: jax.Array, state: State,
    rates: dict[str, jax.Array], step: jax.Array,
) -> State:  # fmt: skip
    """One run after one step of its optimizers."""
    params = {**kept.fixed, **state.params}
    loss, slope = plan.learner.loss_and_grad(kept.data, params, examples, key, plan.moving)
    if plan.clip is not None:
        factor = jnp.minimum(1.0, plan.clip / _length(slope))
        slope = jax.tree.map(lambda leaf: factor * leaf, slope)
    moved, memory = {}, {}
    for name, optimizer in plan.optimizers:
        updates, memory[name] = optimizer.transform(rates[name]).update(
            slope[name], state.memory[name], state.params[name]
        )
        moved[name] = optax.apply_updates(state.params[name], updates)
    finite = {name: _finite(group) for name, group in moved.items()}
    failed = {
        name: jnp.where((before < 0) & ~finite[name], step + 1, before)
        for name, before in state.failed.items()
        if name != LOSS
    }
    before = state.failed[LOSS]
    failed[LOSS] = jnp.where((before < 0) & ~jnp.isfinite(loss), step, before)
    return State(moved, memory, failed)


def _length(slope: Params) -> jax.Array:
    return jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(slope)))


def _finite(group: Any) -> jax.Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(group)]))


def _held(other: TaskLearner, key: jax.Array) -> tuple[Any, Any]:
    """An instance of another task, and the examples on which a model is evaluated there."""
    of_data, of_batch = jax.random.split(key)
    data = other.draw(of_data)
    whole = other.task.population(data)
    if whole is not None:
        return data, whole
    return data, other.batch(data, of_batch, jnp.int32(0), EVALUATED)
