"""The compiled programs of a run: start, advance, record.

Runs differ in their setting (the classes that they learn), their seed and their rates: the
vectorised axes, from the outer to the inner. Runs of one setting and seed see the same sequences:
they are drawn once, and two rates are compared on the same data. Where each cell has data of its
own, only its seeds are vectorised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.scipy.special import xlogy

from attnlab.dynamics.compiling import compiled
from attnlab.dynamics.gradient import Block, Parameters, row_sum
from attnlab.dynamics.layout import Layout
from attnlab.dynamics.models.base import Model
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.rows import RowSource
from attnlab.dynamics.start import Start

DATA_STREAM, START_STREAM = 0, 1


@dataclass(frozen=True)
class Learner:
    """What a program is compiled for: the model, and what moves it."""

    model: Model
    optimizer: Optimizer


class Data(NamedTuple):
    """What is learnt from: where tokens are, and what draws rows of them."""

    layout: Layout
    source: RowSource


class State(NamedTuple):
    """What a run carries from step to step."""

    trained: Parameters
    optimizer: tuple[Any, Any]


def seed_keys(seeds: jax.Array, cell: jax.Array | None, stream: int) -> jax.Array:
    """The keys of one stream of each seed, or of each seed in a cell; the generator is named so
    that it never varies."""

    def one_seed(seed: jax.Array) -> jax.Array:
        key = jax.random.key(seed, impl="threefry2x32")
        for word in () if cell is None else cell:
            key = jax.random.fold_in(key, word)
        return jax.random.fold_in(key, stream)

    return jax.vmap(one_seed)(seeds)


@compiled("learner", "random")
def begin(
    learner: Learner,
    random: bool,
    layout: Layout,
    start: Start,
    seeds: jax.Array,
    cell: jax.Array | None,
    rates: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, Any, State]:
    """The keys of the seeds' sequences, what stays fixed, (setting, seed, ...), and the states
    before the first step, (setting, seed, rate, ...), with nothing in the optimisers' memory."""
    points = rates[0].shape[0]

    def one_setting(layout: Layout, start: Start) -> tuple[Any, Parameters]:
        keys = seed_keys(seeds, cell, START_STREAM)
        return jax.vmap(lambda key: learner.model.begin(layout, start, random, key))(keys)

    fixed, trained = each(one_setting)(layout, start)
    trained = jax.tree.map(lambda x: jnp.repeat(x[:, :, None], points, axis=2), trained)

    def memory(trained: Parameters, *rates: jax.Array) -> tuple[Any, Any]:
        Y, Z = _transforms(learner, rates)
        return Y.init(trained.Y), Z.init(trained.Z)

    by_rate = jax.vmap(memory)
    states = State(trained, jax.vmap(jax.vmap(lambda of: by_rate(of, *rates)))(trained))
    return seed_keys(seeds, cell, DATA_STREAM), fixed, states


@compiled("learner")
def advance(
    learner: Learner,
    data: Data,
    fixed: Any,
    states: State,
    rates: tuple[jax.Array, jax.Array],
    keys: jax.Array,
    first: jax.Array,
    count: jax.Array,
) -> tuple[State, jax.Array]:
    """Take `count` steps from step `first` on.

    States are (setting, seed, rate, ...), data (setting, ...); rates are one array over the rate
    axis each. Returns also whether what is trained is finite: (2, setting, seed, rate), for Y and
    for Z.
    """

    def one_setting(data: Data, fixed: Any, states: State) -> State:
        layout, source = data

        def one_seed(key: jax.Array, fixed: Any, states: State) -> State:
            kept = source.collect(layout, key)

            def step(i: jax.Array, states: State) -> State:
                rows = source.draw(layout, jax.random.fold_in(key, i), kept)

                def one_run(state: State, *rates: jax.Array) -> State:
                    _, slope = learner.model.loss_and_gradient(layout, rows, state.trained, fixed)
                    return _move(learner, state, slope, rates)

                return each(one_run)(states, *rates)

            return jax.lax.fori_loop(first, first + count, step, states)

        return each(one_seed)(keys, fixed, states)

    states = each(one_setting)(data, fixed, states)
    return states, jnp.stack([_all_finite(group) for group in states.trained])


def _transforms(
    learner: Learner, rates: tuple[jax.Array, ...]
) -> list[optax.GradientTransformation]:
    """What moves Y and what moves Z, at the rates of a run."""
    factors = learner.model.rate_factors()
    return [
        learner.optimizer.transform(eta * factor)
        for eta, factor in zip(rates, factors, strict=True)
    ]


def _move(learner: Learner, state: State, slope: Parameters, rates: tuple[jax.Array, ...]) -> State:
    """One run after one step of its optimisers."""
    moved = []
    for transform, *group in zip(
        _transforms(learner, rates), state.trained, slope, state.optimizer, strict=True
    ):
        trained, slope_of, memory = group
        update, memory = transform.update(slope_of, memory, trained)
        moved.append((jax.tree.map(jnp.add, trained, update), memory))
    (Y, memory_y), (Z, memory_z) = moved
    return State(Parameters(Y, Z), (memory_y, memory_z))


@compiled("model", "what")
def record(
    model: Model,
    what: tuple[str, ...],
    data: Data,
    fixed: Any,
    states: State,
    keys: jax.Array,
    step: jax.Array,
) -> dict[str, Any]:
    """What was asked for, of every run, at `step`: loss is that of the batch about to be taken."""

    def one_setting(data: Data, fixed: Any, states: State) -> dict[str, Any]:
        layout, source = data

        def one_seed(key: jax.Array, fixed: Any, states: State) -> dict[str, Any]:
            rows = None
            if "loss" in what:
                kept = source.collect(layout, key)
                rows = source.draw(layout, jax.random.fold_in(key, step), kept)

            def one_run(state: State) -> dict[str, Any]:
                out = observe(model, layout, state.trained, fixed, what)
                if rows is not None:
                    out["loss"] = model.loss(layout, rows, state.trained, fixed)
                return out

            return each(one_run)(states)

        return each(one_seed)(keys, fixed, states)

    return each(one_setting)(data, fixed, states)


def each(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function vectorised over the first axis of all its arguments."""

    def mapped(*arguments: Any) -> Any:
        if jax.tree.leaves(arguments)[0].shape[0] > 1:
            return jax.vmap(function)(*arguments)
        # One alone is left as it is: a batch of one is another program to XLA, and where it is an
        # axis more a slower one.
        alone = function(*jax.tree.map(lambda leaf: leaf[0], arguments))
        return jax.tree.map(lambda leaf: leaf[None], alone)

    return mapped


def observe(
    model: Model, layout: Layout, trained: Parameters, fixed: Any, what: tuple[str, ...]
) -> dict[str, Any]:
    """Everything but the loss, of one run."""
    out: dict[str, Any] = {}
    if "logits" in what:
        out["logits"] = model.attention_logits(layout, trained, fixed)
        out.update(model.extras(layout, trained, fixed))
    if "attention" in what or "statistics" in what:
        c = model.class_attention(layout, trained, fixed)
        if "attention" in what:
            out["attention"] = c
        if "statistics" in what:
            of_layout = partial(statistics, layout)
            out["statistics"] = (jax.vmap(of_layout) if model.heads > 1 else of_layout)(c)
    return out


def statistics(layout: Layout, c: Block) -> dict[str, jax.Array]:
    """Per class: entropy of c_n, entropy over its distinct tokens (Fig. 6), common-token mass."""
    c_log_c = Block(xlogy(c.shared, c.shared), xlogy(c.exclusive, c.exclusive))
    entropy = -row_sum(layout, c_log_c)
    is_common = layout.shared_is_common
    # a query that attends to itself is no distinct token of its classes
    is_distinct = jnp.isfinite(layout.shared_log_prob) & ~is_common
    mass = row_sum(layout, Block(c.shared * is_distinct, c.exclusive))
    inner = row_sum(layout, Block(c_log_c.shared * is_distinct, c_log_c.exclusive))
    # entropy of c / mass; a class without distinct tokens has none to spread over
    distinct_entropy = jnp.where(mass > 0, jnp.log(mass) - inner / mass, jnp.nan)
    return {
        "entropy": entropy,
        "distinct_entropy": distinct_entropy,
        "common_mass": row_sum(layout, Block(c.shared * is_common, jnp.zeros_like(c.exclusive))),
        "effective_tokens": jnp.exp(entropy),
    }


def _all_finite(group: Any) -> jax.Array:
    """(setting, seed, rate): whether every number of the group is finite."""
    leaves = [
        jnp.all(jnp.isfinite(leaf), axis=tuple(range(3, leaf.ndim)))
        for leaf in jax.tree.leaves(group)
    ]
    return jnp.all(jnp.stack(leaves), axis=0)
