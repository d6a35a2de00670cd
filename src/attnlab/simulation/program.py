"""The compiled programs of a run: begin, advance, record.

Runs differ in their setting (a set of classes, say), their seed and their learning rates: the
vectorised axes, from the outer to the inner. Runs of one setting and seed see the same data and
batches: they are drawn once, and two learning rates are compared on the same data. Where each cell
has data of its own, only its seeds are vectorised. Random numbers are functions of seed and step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.files.errors import InputError
from attnlab.models.base import Model, Params
from attnlab.simulation.learner import LOSS, MEAN_LOSS, Learner, TaskLearner
from attnlab.simulation.motion import Optimizer
from attnlab.simulation.rates import Schedule

if TYPE_CHECKING:
    from attnlab.simulation.simulation import Simulation

# -- compiling: jax.jit with the options of XLA that suit a learner, on the backend in use --------
#
# Most runs on sequence classes take less time than their compilation, so that what is compiled
# matters less than how long it takes; trainings of transformers run far longer than they compile.

Effort = Literal["quick", "thorough", "library"]
Options = dict[str, dict[str, Any]]

# One LLVM module, and small kernels: the quickest to compile where nothing is optimised.
SMALL: dict[str, Any] = {"xla_cpu_parallel_codegen_split_count": 1}
if jax.__version_info__ < (0, 11):  # an XLA that does not know an option refuses to compile
    SMALL["xla_cpu_use_fusion_emitters"] = False
# Half the time to compile, and the same time to run.
QUICK_CPU = {**SMALL, "xla_backend_optimization_level": 1}
OPTIONS: dict[Effort, Options] = {
    # Trying out kernels for products this small takes far longer than it saves.
    "quick": {
        "cpu": QUICK_CPU,
        "gpu": {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False},
    },
    # Many small products gain from kernels that XLA makes for them.
    "thorough": {"cpu": QUICK_CPU, "gpu": {}},
    # Large products are as fast by the library, whose kernels are tried out in a third of the time.
    "library": {"cpu": {}, "gpu": {"xla_gpu_enable_triton_gemm": False}},
}


class Compiled:
    """A function of a plan, compiled for each plan and for the backend on which it is called.

    effort: that of the plan's learner by default.
    """

    def __init__(self, function: Callable[..., Any], effort: Effort | None = None) -> None:
        self.function, self.effort = function, effort
        self._made = cache(self._make)

    def _make(self, backend: str, effort: Effort, plain: bool) -> Any:
        options = OPTIONS[effort].get(backend, {})
        if plain and backend == "cpu":  # a user who asks JAX for no optimisations gets none
            options = SMALL
        return jax.jit(self.function, static_argnames="plan", compiler_options=options)

    def _jitted(self, plan: Any) -> Any:
        plain = jax.config.read("jax_disable_most_optimizations")
        effort = self.effort or plan.learner.effort
        return self._made(jax.default_backend(), effort, plain)

    def __call__(self, plan: Any, *arguments: Any) -> Any:
        return self._jitted(plan)(plan, *arguments)

    def trace(self, plan: Any, *arguments: Any) -> jax.stages.Traced:
        """Trace a call from the shapes of its arguments, and compute nothing.

        What is lowered and compiled from it is what a call with arrays of these shapes runs.
        """
        return self._jitted(plan).trace(plan, *arguments)


# -- the programs ---------------------------------------------------------------------------------

Rates = dict[str, jax.Array]  # of each group that moves, along the points
EVALUATED = 256  # examples of another task


@dataclass(frozen=True)
class Plan:
    """Static argument of the compiled programs: the learner, and how it is moved and recorded."""

    learner: Learner
    size: int | None  # examples in a batch; None for the population
    moving: tuple[str, ...]
    factors: tuple[float, ...]  # of the learning rates of the groups that move
    optimizers: tuple[tuple[str, Optimizer], ...]  # of the groups that move; none in a flow
    schedules: tuple[tuple[str, Schedule], ...]
    clip: float | None
    weight_decay: float  # of a flow
    implicit: bool  # the solver of a flow
    what: tuple[str, ...]  # all that there is, where it is empty
    probe: int
    evaluate: tuple[tuple[str, TaskLearner], ...]
    gathers: Model | None  # the model, where entries without a gradient stay where they are

    def rate(self, group: str, value: jax.Array, now: jax.Array) -> jax.Array:
        """Return the learning rate of a group at a step or time."""
        factor = dict(zip(self.moving, self.factors, strict=True))[group]
        schedule = dict(self.schedules).get(group)
        value = value if schedule is None else value * schedule(now)
        return value if factor == 1.0 else value * factor


class Kept(NamedTuple):
    """Constants of runs: (seed,) keys; what each seed drew and fixed, (setting, seed, ...)."""

    keys: jax.Array
    drawn: Any
    fixed: Params


class State(NamedTuple):
    """Runs between two steps, (setting, seed, point, ...)."""

    params: Params  # the groups that move
    memory: Any  # of the optimizers, by group
    loss_sum: Any  # of the training loss since the last record, where it is asked for


def plan_of(run: Simulation, what: tuple[str, ...], groups: tuple[str, ...] = ()) -> Plan:
    """Return what the programs of a run are compiled for.

    groups: those that move, for shapes alone: the grid is made with the names of the groups.
    """
    record, motion = run.record, run.motion
    if motion.reset_moments and not run.learner.pass_steps(run):
        kind = type(run.task).__name__
        raise InputError(f"reset_moments: {kind} has no passes over its data; leave it out")
    moving = groups or run.grid.moving
    optimizers = () if groups else tuple(run.optimizers.items())
    learner = run.learner
    of_task = learner.model if isinstance(learner, TaskLearner) else None
    model = of_task or run.model
    still = all(optimizer.keeps_still for _, optimizer in optimizers)
    return Plan(
        learner=learner,
        size=run.gradient.size,
        moving=moving,
        factors=tuple(1.0 if model is None else model.rate_factor(of) for of in moving),
        optimizers=optimizers,
        schedules=() if groups else tuple(run.grid.schedules.items()),
        clip=motion.clip,
        weight_decay=motion.weight_decay if motion.clock == "time" else 0.0,
        implicit=getattr(motion, "solver", "") == "implicit",
        what=what,
        probe=record.probe,
        evaluate=tuple(
            (name, TaskLearner(task, run.model, run.loss, run.precision))
            for name, task in record.evaluate.items()
        ),
        gathers=of_task if still else None,
    )


def numbers(run: Simulation) -> ExitStack:
    """Return a context with the run's precision, which is a setting of each thread."""
    stack = ExitStack()
    stack.enter_context(jax.enable_x64(run.dtype == "float64"))
    of_products = "highest" if run.precision == "highest" else "default"
    stack.enter_context(jax.default_matmul_precision(of_products))
    return stack


def base_keys(seeds: jax.Array, salt: jax.Array | None) -> jax.Array:
    """Return the key of each seed; `salt` has two words for each combination of settings.

    The generator is named so that it never varies.
    """

    def one_seed(seed: jax.Array) -> jax.Array:
        key = jax.random.key(seed, impl="threefry2x32")
        for word in () if salt is None else salt:
            key = jax.random.fold_in(key, word)
        return key

    return jax.vmap(one_seed)(seeds)


def use_of(key: jax.Array, use: int | None) -> jax.Array:
    """Return the key of one use of a seed."""
    return key if use is None else jax.random.fold_in(key, use)


@partial(Compiled, effort="quick")
def begin(
    plan: Plan, tables: Any, seeds: jax.Array, salt: jax.Array | None, rates: Rates, start: Params
) -> tuple[Kept, State]:
    """Return what is kept of each seed and the states before the first step.

    start: arrays by group, in place of the learner's own.
    """
    learner, uses = plan.learner, plan.learner.uses
    keys = base_keys(seeds, salt)
    points = next(iter(rates.values())).shape[0]

    def one_setting(tables: Any) -> tuple[Any, Params]:
        def one_seed(key: jax.Array) -> tuple[Any, Params]:
            of_data, of_start = use_of(key, uses.data), use_of(key, uses.start)
            drawn = learner.draw_with(tables, of_data)
            data = learner.data(tables, drawn)
            return drawn, {**learner.init(of_start, data), **start}

        return jax.vmap(one_seed)(keys)

    if jax.tree.leaves(tables):
        drawn, params = each(one_setting)(tables)
    else:
        drawn, params = jax.tree.map(lambda leaf: leaf[None], one_setting(tables))
    fixed = {name: value for name, value in params.items() if name not in plan.moving}
    moved = {
        name: jax.tree.map(lambda x: jnp.repeat(x[:, :, None], points, axis=2), params[name])
        for name in plan.moving
    }

    shape = jax.tree.leaves(moved)[0].shape[:3]
    loss_sum = jnp.zeros(shape) if MEAN_LOSS in plan.what else ()
    return Kept(keys, drawn, fixed), forget.function(plan, State(moved, (), loss_sum), rates)


@Compiled
def advance(
    plan: Plan,
    tables: Any,
    kept: Kept,
    states: State,
    rates: Rates,
    first: jax.Array,
    count: jax.Array,
) -> tuple[State, jax.Array]:
    """Take `count` steps from step `first` on.

    Returns also whether each moving group is finite: (group, setting, seed, point).
    """
    learner, uses = plan.learner, plan.learner.uses

    def one_seed(tables: Any, key: jax.Array, drawn: Any, fixed: Params, states: State) -> State:
        data = learner.data(tables, drawn)
        of_batch = use_of(key, uses.batch)
        of_dropout = jax.random.fold_in(key, uses.dropout)
        prepared = learner.prepare(data, plan.size)

        def step(i: jax.Array, states: State) -> State:
            examples = learner.examples(data, prepared, of_batch, i, plan.size)
            dropout = jax.random.fold_in(of_dropout, i)

            def one_run(state: State, rates: Rates) -> State:
                return _step(plan, data, fixed, examples, dropout, state, rates, i)

            return each(one_run)(states, rates)

        return jax.lax.fori_loop(first, first + count, step, states)

    states = each_seed(one_seed, tables, kept, states)
    finite = [_all_finite(states.params[name]) for name in plan.moving]
    return states, jnp.stack(finite)


@Compiled
def forget(plan: Plan, states: State, rates: Rates) -> State:
    """Return every run with nothing in its optimizers' memory."""

    def one_run(params: Params, rates: Rates) -> Any:
        return {
            name: optimizer.transform(rates[name]).init(params[name])
            for name, optimizer in plan.optimizers
        }

    by_rate = jax.vmap(one_run)
    memory = jax.vmap(jax.vmap(lambda of: by_rate(of, rates)))(states.params)
    return states._replace(memory=memory)


@Compiled
def record(plan: Plan, tables: Any, kept: Kept, states: State, step: jax.Array) -> dict[str, Any]:
    """Return what was asked for, of every run; the loss is that of the batch about to be taken."""
    learner, uses, what = plan.learner, plan.learner.uses, plan.what

    def one_seed(tables: Any, key: jax.Array, drawn: Any, fixed: Params, states: State) -> Any:
        data = learner.data(tables, drawn)
        probe = learner.probe(data, jax.random.fold_in(key, uses.probe), plan.size, plan.probe)
        of_others = jax.random.fold_in(key, uses.evaluate)
        others = [
            (name, other, *_held(other, jax.random.fold_in(of_others, i)))
            for i, (name, other) in enumerate(plan.evaluate)
        ]
        examples = None
        if LOSS in what or not what:
            prepared = learner.prepare(data, plan.size)
            of_batch = use_of(key, uses.batch)
            examples = learner.examples(data, prepared, of_batch, step, plan.size)

        def one_run(state: State) -> dict[str, Any]:
            params = {**fixed, **state.params}
            found = learner.observe(data, params, probe, what)
            if examples is not None:
                found[LOSS] = learner.loss(data, params, examples, None)
            if MEAN_LOSS in what:
                found[MEAN_LOSS] = state.loss_sum
            for name, other, theirs, held in others:
                if not what or f"{LOSS}_{name}" in what:
                    found[f"{LOSS}_{name}"] = other.loss(theirs, params, held, None)
            return found

        return each(one_run)(states)

    return each_seed(one_seed, tables, kept, states)


def each_seed(function: Callable[..., Any], tables: Any, kept: Kept, states: Any) -> Any:
    """Vectorise a function of (tables, key, drawn, fixed, states) over settings and seeds."""

    def one_setting(tables: Any, drawn: Any, fixed: Params, states: Any) -> Any:
        return each(lambda *of: function(tables, *of))(kept.keys, drawn, fixed, states)

    return each(one_setting)(tables, kept.drawn, kept.fixed, states)


def each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function vectorised over the first axis of all its arguments."""

    def mapped(*arguments: Any) -> Any:
        if jax.tree.leaves(arguments)[0].shape[0] > 1:
            return jax.vmap(function)(*arguments)
        # One alone is left as it is: a batch of one is another program to XLA, and where it is an
        # axis more a slower one.
        alone = function(*jax.tree.map(lambda leaf: leaf[0], arguments))
        return jax.tree.map(lambda leaf: leaf[None], alone)

    return mapped


def _step(
    plan: Plan,
    data: Any,
    fixed: Params,
    examples: Any,
    key: jax.Array,
    state: State,
    rates: Rates,
    step: jax.Array,
) -> State:
    """Return one run after one step of its optimizers."""
    learner, before = plan.learner, {**fixed, **state.params}
    gathered, batch = before, examples
    if plan.gathers is not None:
        gathered, batch = plan.gathers.gather_rows(before, examples)
    loss, slope = learner.loss_and_grad(data, gathered, batch, key, plan.moving)
    if plan.clip is not None:
        # A factor is part of the update that follows; optax's clipping is one pass more.
        squares = (jnp.vdot(leaf, leaf, precision="highest") for leaf in jax.tree.leaves(slope))
        factor = jnp.minimum(1.0, plan.clip / jnp.sqrt(sum(squares)))
        slope = jax.tree.map(lambda leaf: factor * leaf, slope)
    moved, memory = dict(gathered), {}
    for name, optimizer in plan.optimizers:
        transform = optimizer.transform(plan.rate(name, rates[name], step))
        update, memory[name] = transform.update(slope[name], state.memory[name], gathered[name])
        moved[name] = jax.tree.map(jnp.add, gathered[name], update)
    if plan.gathers is not None:
        moved = plan.gathers.scatter_rows(before, moved, examples)
    loss_sum = state.loss_sum + loss if MEAN_LOSS in plan.what else ()
    return State({name: moved[name] for name in plan.moving}, memory, loss_sum)


def _held(other: TaskLearner, key: jax.Array) -> tuple[Any, Any]:
    """Return an instance of another task, and the examples on which a model is evaluated there."""
    of_data, of_batch = jax.random.split(key)
    (tables,) = on_device(other.task.tables(), jnp.result_type(float).name)
    data = other.data(tables, other.draw_with(tables, of_data))
    whole = other.task.population(data)
    if whole is not None:
        return data, whole
    return data, other.batch(data, of_batch, jnp.int32(0), EVALUATED)


def _all_finite(group: Any) -> jax.Array:
    """Return whether every number of a group is finite, (setting, seed, point)."""
    leaves = [
        jnp.all(jnp.isfinite(leaf), axis=tuple(range(3, leaf.ndim)))
        for leaf in jax.tree.leaves(group)
    ]
    return jnp.all(jnp.stack(leaves), axis=0)


# -- shapes ---------------------------------------------------------------------------------------


class Shapes(NamedTuple):
    """Shapes of one run: of its parameters by group, of what it can record by name, and the
    numbers that a gradient makes on its way."""

    start: Params
    record: dict[str, Any]
    activations: int

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(math.prod(of.shape) for of in jax.tree.leaves(self.start))


def shapes_of(run: Simulation, *, given: bool = True) -> Shapes:
    """Return the shapes of one of a run's runs, without computing any number.

    given: take the run's own start into account.
    """
    made = run.__dict__.get("_shapes")
    if made is None or not given:
        try:
            made = _shapes(run, given)
        except OverflowError:
            raise InputError(
                "batch_size: an array would have too many entries to count; take a "
                "smaller batch, task or model"
            ) from None
        if given:
            object.__setattr__(run, "_shapes", made)
    return made


def _shapes(run: Simulation, given: bool) -> Shapes:
    learner = run.learner
    with numbers(run):
        tables = on_device(run.tables[0], run.dtype)

        def start(tables: Any) -> tuple[Any, Params]:
            key = jax.random.key(0)
            drawn = learner.draw_with(tables, key)
            data = learner.data(tables, drawn)
            return drawn, {**learner.init(key, data), **(start_of(run) if given else {})}

        drawn, params = jax.eval_shape(start, tables)
        if not given:
            return Shapes(params, {}, 0)
        plan = plan_of(run, (), tuple(name for name in params if name not in learner.fixed))

        def all_of(tables: Any, drawn: Any, params: Params) -> Any:
            lead = jax.tree.map(lambda leaf: leaf[None, None], (drawn, params))
            kept = Kept(base_keys(jnp.zeros(1, jnp.uint32), None), lead[0], {})
            moved = jax.tree.map(lambda leaf: leaf[None, None, None], params)
            tables = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tables)
            return record.function(plan, tables, kept, State(moved, (), ()), jnp.int32(0))

        def gradient(tables: Any, drawn: Any, params: Params) -> Any:
            data = learner.data(tables, drawn)
            key = jax.random.key(0)
            prepared = learner.prepare(data, plan.size)
            examples = learner.examples(data, prepared, key, jnp.int32(0), plan.size)
            return learner.loss_and_grad(data, params, examples, None, plan.moving)

        recorded = jax.eval_shape(all_of, tables, drawn, params)
        recorded = {
            name: jax.ShapeDtypeStruct(of.shape[3:], of.dtype) for name, of in recorded.items()
        }
        if run.clock == "step":
            recorded[MEAN_LOSS] = recorded[LOSS]
        jaxpr = jax.make_jaxpr(gradient)(tables, drawn, params)
    return Shapes(params, recorded, _sizes(jaxpr.jaxpr))


def _sizes(jaxpr: Any) -> int:
    """Return the numbers that a program makes, each loop counted as often as it runs."""
    total = 0
    for equation in jaxpr.eqns:
        inner = [
            of.jaxpr if hasattr(of, "jaxpr") else of
            for of in jax.tree.leaves(
                list(equation.params.values()), is_leaf=lambda of: hasattr(of, "eqns")
            )
            if hasattr(of, "eqns") or hasattr(of, "jaxpr")
        ]
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        if inner:
            total += times * sum(_sizes(of) for of in inner)
        else:
            total += sum(int(np.prod(of.aval.shape)) for of in equation.outvars)
    return total


def start_of(run: Simulation) -> Params:
    """Return the arrays of the run's `init` by group, in its dtype."""
    given = run.learner.start(run)
    return jax.tree.map(lambda of: jnp.asarray(of, run.dtype), given)


def on_device(tables: Any, dtype: str) -> Any:
    """Return tables with their real numbers in the run's dtype."""

    def one(of: Any) -> Any:
        of = np.asarray(of)
        return of.astype(dtype) if of.dtype.kind == "f" else of

    return jax.device_put(jax.tree.map(one, tables))  # all at once
