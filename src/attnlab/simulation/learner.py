"""Learner: the problem that the trainer runs, made of task and model, or of closed equations."""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError, refuse_if
from attnlab.files.memory import require_memory
from attnlab.files.recipe import Named
from attnlab.models.base import LossName, Model, Params, Precision
from attnlab.simulation.rates import require_groups
from attnlab.tasks.base import Batch, Task

if TYPE_CHECKING:
    import jax

    from attnlab.simulation.simulation import Simulation

LOSS, MEAN_LOSS, PARAMETERS = "loss", "train_loss", "parameters"
PER_HEAD = ("layer", "head")
MEASURES = (
    *("entropy", "previous_mass", "sink_mass", "mean_distance"),
    *("induction_mass", "duplicate_mass"),
)
COPIES = {"step": 5, "time": 12}  # of the parameters: gradient, moments, update; stages of a solver


class Uses(NamedTuple):
    """Numbers by which the random streams of a seed differ; None is the seed's own key."""

    batch: int | None = 0
    start: int = 1
    data: int = 2
    dropout: int = 3
    probe: int = 4
    evaluate: int = 5


class Learner(Named, ABC):
    """A problem that the trainer runs: a frozen value with pure methods.

    A paper's closed equations implement `init` and `loss`, or `loss_and_grad` where no loss is
    known: a bare ordinary differential equation returns minus its velocity as the gradient. The
    methods from `tables` on have defaults that suit these.
    """

    uses: ClassVar[Uses] = Uses()
    effort: ClassVar[Literal["quick", "thorough", "library"]] = "thorough"  # see `program.OPTIONS`

    @property
    def fixed(self) -> tuple[str, ...]:
        """Groups that are never trained."""
        return ()

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of what is captured, and of "parameters.group" or "parameters.group.name"."""
        return {}

    def draw(self, key: jax.Array) -> Any:
        """Draw what is learned from: arrays of the same shapes for every key."""
        return {}

    @abstractmethod
    def init(self, key: jax.Array, data: Any) -> Params:
        """Return the parameters at the start, by group."""

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Any:
        """Draw the examples of a training step."""
        raise InputError(f"gradient: {type(self).__name__} has no batches; use Population()")

    def population(self, data: Any) -> Any:
        """Return what the expected loss is computed from; by default it needs only the data."""
        return ()

    def loss(self, data: Any, params: Params, batch: Any, key: jax.Array | None) -> jax.Array:
        """Return the loss of a batch or of the population; `key` draws dropout."""
        loss, _ = self.loss_and_grad(data, params, batch, key, ())
        return loss

    def loss_and_grad(
        self, data: Any, params: Params, batch: Any, key: jax.Array | None, groups: Sequence[str]
    ) -> tuple[jax.Array, Params]:
        """Return the loss and its gradient by these groups."""
        import jax

        if type(self).loss is Learner.loss:
            raise InputError(f"task: {type(self).__name__} has neither loss nor loss_and_grad")

        def of(moved: Params) -> jax.Array:
            return self.loss(data, {**params, **moved}, batch, key)

        return jax.value_and_grad(of)({name: params[name] for name in groups})

    def capture(self, data: Any, params: Params, probe: Any) -> dict[str, jax.Array]:
        """Return what can be recorded of a probe, by name."""
        return {}

    # -- what the trainer asks for ----------------------------------------------------------------

    def tables(self, run: Simulation) -> list[Any]:
        """Return arrays that all seeds share, a tree for each of the settings that run together."""
        return [()]

    def draw_with(self, tables: Any, key: jax.Array) -> Any:
        """Draw what a seed keeps, perhaps from what all seeds share."""
        return self.draw(key)

    def data(self, tables: Any, drawn: Any) -> Any:
        """Return the data of a seed: what all share together with what it drew."""
        return {**tables, **drawn} if tables else drawn

    def prepare(self, data: Any, size: int | None) -> Any:
        """Return what all steps of a call share: the population, or nothing."""
        return self.population(data) if size is None else None

    def examples(
        self, data: Any, prepared: Any, key: jax.Array, step: jax.Array, size: int | None
    ) -> Any:
        """Return what the gradient of a step is computed from; `key` is that of all batches."""
        import jax

        if size is None:
            return prepared
        return self.batch(data, jax.random.fold_in(key, step), step, size)

    def observe(self, data: Any, params: Params, probe: Any, what: Sequence[str]) -> dict[str, Any]:
        """Return what is recorded of one run, but for losses; all that there is without `what`."""
        found = self.capture(data, params, probe) | leaves_of(params)
        return {name: of for name, of in found.items() if not what or name in what}

    def probe(self, data: Any, key: jax.Array, size: int | None, probe: int) -> Any:
        """Return the examples on which the model is captured."""
        import jax.numpy as jnp

        if size is None:
            return self.population(data)
        return self.batch(data, key, jnp.int32(0), probe)

    # -- the run around it ------------------------------------------------------------------------

    def groups(self, run: Simulation) -> tuple[str, ...]:
        """Return the names of the parameter groups."""
        return tuple(run_shapes(run).start)

    def checked_start(self, run: Simulation) -> Any:
        """Return the run's `init` as read-only arrays by group, checked against the shapes."""
        import jax

        if run.symbols and isinstance(run.init, str) and run.init == "zero":
            return run.init  # the model's own, as on the exact path
        given = _last_parameters(run.init) if isinstance(run.init, xr.Dataset) else run.init
        if not isinstance(given, Mapping) or not given:
            raise InputError(f"init: expected arrays by group, or a result, got {given!r}")
        shapes = run_shapes(run, given=False).start
        require_groups("init", given, shapes)
        for name, group in given.items():
            wanted, found = (jax.tree.map(np.shape, of) for of in (shapes[name], group))
            refuse_if(wanted != found, "init", f"shapes {wanted} in the group {name!r}", found)
            if not all(np.all(np.isfinite(of)) for of in jax.tree.leaves(group)):
                raise InputError(f"init: expected finite numbers in the group {name!r}")
        return {str(name): jax.tree.map(_frozen, of) for name, of in given.items()}

    def recorded(self, run: Simulation) -> tuple[str, ...]:
        """Return the names of what is recorded."""
        shapes, asked = run_shapes(run), run.record.what
        own = tuple(leaves_of(shapes.start))
        if asked is None:
            return tuple(
                name
                for name in shapes.record
                if name not in (*own, MEAN_LOSS) and "sequence" not in self.labels.get(name, ())
            )
        names = tuple(one for name in asked for one in (own if name == PARAMETERS else (name,)))
        for name in names:
            if name not in shapes.record:
                known = (PARAMETERS, *shapes.record)
                raise InputError(f"what: {name!r} cannot be recorded; {did_you_mean(name, known)}")
        return names

    def record_numbers(self, run: Simulation) -> int:
        """Return the numbers of one record of one run."""
        shapes = run_shapes(run).record
        return sum(math.prod(shapes[name].shape) for name in self.recorded(run))

    def require_memory(self, run: Simulation) -> None:
        """Refuse a run that this machine cannot hold, by the field that asks for most."""
        size = np.dtype(run.dtype).itemsize
        shapes = run_shapes(run)
        copies = COPIES[run.clock] * size * shapes.parameters
        require_memory("seeds", copies * run.grid.runs, "take fewer runs")
        require_memory("batch_size", size * shapes.activations, "take fewer examples at a time")
        records = run.bytes_per_record * run.record_steps.size
        require_memory("record", records, "record less, or less often")

    def bytes_of_run(self, run: Simulation, tables: Any) -> int:
        """Return the bytes that a run works on in a step, roughly."""
        shapes = run_shapes(run)
        numbers = COPIES[run.clock] * shapes.parameters + shapes.activations
        return numbers * np.dtype(run.dtype).itemsize

    def runs_at_once(self, run: Simulation) -> int:
        """Return how many runs should advance in one program on a processor: a share for each
        core, since XLA leaves cores idle in small operations."""
        if not run.motion.side_by_side:
            return run.grid.runs
        return -(-run.grid.runs // (os.cpu_count() or 1))

    def pass_steps(self, run: Simulation) -> int:
        """Return the steps of a pass over the data; 0 where there is none."""
        return 0

    def identity(self, run: Simulation, setting: int, point: int) -> str:
        """Return a text that identifies a run's settings and learning rates, to seed its data."""
        rates = [float(of[point]) for of in run.grid.rates().values()]
        settings = {name: run.spec[name] for name in ("task", "model", "motion", "gradient")}
        return json.dumps([setting, settings, rates], sort_keys=True)

    def start(self, run: Simulation) -> Params:
        """Return the arrays of the run's `init` by group."""
        return dict(run.init) if isinstance(run.init, Mapping) else {}

    def attrs(self, run: Simulation) -> dict[str, Any]:
        """Return attributes that are added to the result."""
        return {}

    def warning(self, run: Simulation) -> str:
        """Return what a user should know about the numbers of a run; empty if nothing."""
        return ""

    def unpack(
        self, run: Simulation, settings: NDArray[np.int64], values: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        """Return records (setting, ...) as they are labelled."""
        return dict(values)

    def dataset(
        self, run: Simulation, values: Mapping[str, NDArray[Any]], steps: NDArray[Any]
    ) -> xr.Dataset:
        """Return records (setting, seed, point, step, ...) with their dims and coords."""
        outer = ("setting", *run.grid.dims())
        variables: dict[str, Any] = {}
        for name, of in values.items():
            extra = of.ndim - 4
            inner = self.labels.get(name, tuple(f"{name}_{i}" for i in range(extra)))
            if len(inner) != extra:
                raise InputError(f"labels: {name} has {extra} dims, got the names {inner}")
            variables[name] = (*outer, run.clock, *inner), run.grid.label(of)
        found = xr.Dataset(variables, {**run.grid.coords(), run.clock: steps})
        alone = found.sizes.get("setting") == 1
        return found.squeeze("setting") if alone else found


@dataclass(frozen=True)
class TaskLearner(Learner):
    """A model that learns a task by a loss."""

    task: Task
    model: Model
    loss_name: LossName = "cross_entropy"
    precision: Precision = "default"

    @property
    def fixed(self) -> tuple[str, ...]:
        """Those of the model."""
        return self.model.fixed

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """Dims of what the model captures, and of the measures of its attention."""
        return {**self.model.dims, **dict.fromkeys(MEASURES, PER_HEAD)}

    def tables(self, run: Simulation) -> list[Any]:
        """Return the tables of the task."""
        return self.task.tables()

    def draw_with(self, tables: Any, key: jax.Array) -> Any:
        """Draw an instance of the task."""
        return self.task.draw(key, tables) if tables else self.task.draw(key)  # type: ignore[call-arg]

    def init(self, key: jax.Array, data: Any) -> Params:
        """Return the model's parameters at the start."""
        return self.model.init(key, self.task, data)

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Batch:
        """Draw a batch of the task."""
        return self.task.batch(data, key, step, size)

    def population(self, data: Any) -> Batch:
        """Return the task's population, or refuse where it has none."""
        found = self.task.population(data)
        if found is None:
            raise InputError(
                f"gradient: {type(self.task).__name__} has no population; use Batches(size)"
            )
        return found

    def loss(self, data: Any, params: Params, batch: Batch, key: jax.Array | None) -> jax.Array:
        """Return the mean loss of the model's outputs."""
        from attnlab.models.losses import mean_loss

        if self.loss_name == "task":
            outputs, _ = self.model.apply(params, batch.inputs, key=key)
            return mean_loss(self.task.loss(data, outputs, batch), batch)
        return self.model.loss(params, batch, self.loss_name, key=key, precision=self.precision)

    def capture(self, data: Any, params: Params, probe: Batch) -> dict[str, jax.Array]:
        """Return the probe's loss, what the model captures, and measures of it.

        Of attention: entropy, attention to the previous and to the first position, mean distance
        and, where inputs are tokens, induction and attention to duplicates, as means over the probe
        by layer and head. Of reference rules: their loss, and KL(rule || model).
        """
        import jax.numpy as jnp

        from attnlab.models.losses import cross_entropy, mean_loss

        outputs, found = self.model.apply(params, probe.inputs)
        found = {"probe_loss": self.loss(data, params, probe, None), **found}
        if self.model.dims.get("attention", ())[-2:] == ("query", "key"):
            found |= self._measures(found["attention"], probe)
        for rule, logs in self.task.references(data, probe).items():
            against = cross_entropy(outputs, jnp.exp(logs)) - cross_entropy(logs, jnp.exp(logs))
            found[f"{rule}_loss"] = mean_loss(cross_entropy(logs, probe.target), probe)
            found[f"{rule}_kl"] = mean_loss(against, probe)
        return found

    def _measures(self, attention: jax.Array, probe: Batch) -> dict[str, jax.Array]:
        import jax.numpy as jnp

        from attnlab.measures import maps, positions

        dims = self.model.dims["attention"]
        rows = {
            "entropy": maps.entropy(attention),
            "previous_mass": positions.previous_mass(attention),
            "sink_mass": positions.sink_mass(attention, (1,))[..., 0],
            "mean_distance": positions.mean_distance(attention),
        }
        tokens = probe.inputs
        if getattr(tokens, "ndim", 0) == 2 and jnp.issubdtype(tokens.dtype, jnp.integer):
            axis = dims.index("sequence")
            shape = [1] * (attention.ndim - 2) + [tokens.shape[1]]
            shape[axis] = tokens.shape[0]
            of_maps = jnp.broadcast_to(
                tokens.reshape(shape), (*attention.shape[:-2], tokens.shape[1])
            )
            rows["induction_mass"] = positions.induction_mass(attention, of_maps)
            rows["duplicate_mass"] = positions.duplicate_mass(attention, of_maps)
        over = tuple(i for i, dim in enumerate(dims[:-1]) if dim not in PER_HEAD)
        return {name: jnp.nanmean(value, axis=over) for name, value in rows.items()}


def leaves_of(params: Params) -> dict[str, Any]:
    """Return the arrays of all groups as parameters.group, or parameters.group.name."""
    import jax

    leaves, _ = jax.tree.flatten_with_path({PARAMETERS: params})
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def run_shapes(run: Simulation, *, given: bool = True) -> Any:
    """Return the shapes of a run's parameters and records; see `program.Shapes`."""
    from attnlab.simulation.program import shapes_of

    return shapes_of(run, given=given)


def _last_parameters(result: xr.Dataset) -> Params:
    """Return the parameters at the end of a result that has recorded them, of one run."""
    prefix = f"{PARAMETERS}."
    found: Params = {}
    for name in (str(of) for of in result.data_vars if str(of).startswith(prefix)):
        group, _, inner = name.removeprefix(prefix).partition(".")
        clock = "step" if "step" in result.dims else "time"
        dims = result[name].dims
        for dim in dims[: dims.index(clock)]:
            if result.sizes[dim] > 1:
                raise InputError(
                    f"init: the result has several runs along {dim}; select one with .isel({dim}=0)"
                )
        last = result[name].isel(dict.fromkeys(dims[: dims.index(clock)], 0) | {clock: -1})
        if inner:
            home = found.setdefault(group, {})
            for part in inner.split(".")[:-1]:
                home = home.setdefault(part, {})
            home[inner.split(".")[-1]] = last.values
        else:
            found[group] = last.values
    if not found:
        raise InputError(
            "init: the result has no parameters; record what='parameters' (on sequence classes "
            "with exact=False)"
        )
    return found


def _frozen(of: Any) -> NDArray[Any]:
    array = np.array(of)
    array.setflags(write=False)
    return array
