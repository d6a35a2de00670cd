"""ExactLearner: sequence classes on their layout, with counts in place of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.scipy.special import xlogy
from numpy.typing import NDArray

from attnlab.files.memory import require_memory
from attnlab.models.base import Params
from attnlab.models.sequence import EXACT_NAMES, is_random
from attnlab.simulation.exact.gradient import Block, Parameters, Rows, row_sum
from attnlab.simulation.exact.layout import Layout, Sizes, TokenMap
from attnlab.simulation.exact.model import ExactModel, Start
from attnlab.simulation.exact.rows import RowSource, row_source
from attnlab.simulation.labels import label, of_one_set
from attnlab.simulation.learner import Learner, TaskLearner, Uses
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.classes.sampling import TABLE_BYTES
from attnlab.tasks.sequences import Sequences

if TYPE_CHECKING:
    from jaxtyping import Float

    from attnlab.simulation.simulation import Simulation

CONSTANTS = "constants"
RECORD_COPIES = 2  # as they come, and labelled
# Numbers as large as what is trained: itself, its gradient; the stages of the flow's solver.
STATE_COPIES = {"step": 2, "time": 10}
ADVICE = {
    "classes": "take fewer tokens or classes",
    "batch_size": "take fewer sequences",
    "training_set": "take fewer sequences",
    "length": "take shorter sequences",
    "model": "take a smaller one",
    "record": "record less, or take fewer seeds or learning rates at a time",
}


def learner_of(run: Simulation) -> Learner:
    """Return the exact learner of a run, or the general one where the run has no exact path."""
    if run.is_exact:
        model = resolve_name(run.model.exact)(run.model)
        return ExactLearner(model, is_random(run.init))
    return TaskLearner(run.task, run.model, run.loss, run.precision)


class Tables(NamedTuple):
    """Arrays of one set of classes: where tokens are, what draws rows, and the start."""

    layout: Layout
    source: RowSource
    start: Start


class Data(NamedTuple):
    """Data of a seed: the tables of its classes, and the training set where there is one."""

    layout: Layout
    source: RowSource
    start: Start
    kept: Any


@dataclass(frozen=True)
class LaidOutClasses:
    """A set of sequence classes, and where each of its tokens is."""

    classes: SequenceClasses
    layout: Layout
    where: TokenMap
    # with an axis of heads where there are several
    start_logits: Float[NDArray[np.float64], "*heads Q M"]

    def over_tokens(self, name: str, shared: Any, exclusive: Any) -> NDArray[Any]:
        """Return a block as an array over all tokens.

        A token that is never drawn keeps the logit it starts with; of attention it has 0.
        """
        if name == "logits":
            return self.where.logits(shared, exclusive, self.start_logits, self.classes.query_index)
        return self.where.attention(shared, exclusive, self.classes.vocab_size)

    def start(self, bias: NDArray[np.float64]) -> Start:
        """Return what the runs on these classes start from."""
        classes, where = self.classes, self.where
        shape = self.layout.exclusive_log_prob.shape
        blocks = where.blocks(self.start_logits, classes.query_index, shape)
        return Start(
            logits=Block(*blocks),
            tokens=where.tokens[np.argsort(where.position)],
            queries=classes.queries,
            query_place=where.places(classes.queries),
            bias=bias,
            drawn=where.drawn,
        )


@dataclass(frozen=True)
class ExactLearner(Learner):
    """A sequence-class model on the layout of its classes; `random` for init="uniform"."""

    uses: ClassVar[Uses] = Uses(data=0)  # a training set is drawn as batches are
    effort: ClassVar[Literal["quick", "thorough", "library"]] = "quick"

    model: ExactModel
    random: bool

    @property
    def fixed(self) -> tuple[str, ...]:
        """The model's constants."""
        return (CONSTANTS,)

    # -- compiled -----------------------------------------------------------------------------

    def draw_with(self, tables: Tables, key: jax.Array) -> Any:
        """Draw the training set, where there is one."""
        return tables.source.collect(tables.layout, key)

    def data(self, tables: Tables, drawn: Any) -> Data:
        """Return the tables and the training set."""
        return Data(*tables, drawn)

    def init(self, key: jax.Array, data: Data) -> Params:
        """Return the model's constants, decoder and attention at the start."""
        fixed, trained = self.model.begin(data.layout, data.start, self.random, key)
        return {CONSTANTS: fixed, "decoder": trained.Y, "attention": trained.Z}

    def examples(
        self, data: Data, prepared: Any, key: jax.Array, step: jax.Array, size: int | None
    ) -> Rows:
        """Draw the rows of a step."""
        return data.source.draw(data.layout, jax.random.fold_in(key, step), data.kept)

    def probe(self, data: Any, key: jax.Array, size: int | None, probe: int) -> None:
        """Return nothing: attention is that of the classes."""

    def loss(self, data: Data, params: Params, batch: Rows, key: jax.Array | None) -> jax.Array:
        """Return the mean loss over rows."""
        return self.model.loss(data.layout, batch, _trained(params), params[CONSTANTS])

    def loss_and_grad(
        self, data: Data, params: Params, batch: Rows, key: jax.Array | None, groups: Sequence[str]
    ) -> tuple[jax.Array, Params]:
        """Return the loss and its gradient by these groups."""
        loss, slope = self.model.loss_and_gradient(
            data.layout, batch, _trained(params), params[CONSTANTS]
        )
        by_group = {"decoder": slope.Y, "attention": slope.Z}
        return loss, {name: by_group[name] for name in groups}

    def observe(
        self, data: Data, params: Params, probe: None, what: Sequence[str]
    ) -> dict[str, Any]:
        """Return logits, attention and statistics, as far as they are asked for."""
        layout, trained, fixed = data.layout, _trained(params), params[CONSTANTS]
        out: dict[str, Any] = {}
        if "logits" in what:
            out["logits"] = self.model.attention_logits(layout, trained, fixed)
            out.update(self.model.extras(layout, trained, fixed))
        if "attention" in what or "statistics" in what:
            c = self.model.class_attention(layout, trained, fixed)
            if "attention" in what:
                out["attention"] = c
            if "statistics" in what:
                of_layout = partial(statistics, layout)
                out["statistics"] = (jax.vmap(of_layout) if self.model.heads > 1 else of_layout)(c)
        return out

    # -- the run around it ----------------------------------------------------------------------

    def recorded(self, run: Simulation) -> tuple[str, ...]:
        """Return the names of what is recorded."""
        return EXACT_NAMES if run.record.what is None else tuple(run.record.what)

    def laid_out(self, run: Simulation) -> tuple[LaidOutClasses, ...]:
        """Return the run's sets of classes, laid out once."""
        if "_laid_out" not in run.__dict__:
            made = tuple(
                LaidOutClasses(of, *self.model.lay_out(of, run), run.start_logits(of))
                for of in run.sets
            )
            object.__setattr__(run, "_laid_out", made)
        return run.__dict__["_laid_out"]

    def tables(self, run: Simulation) -> list[Any]:
        """Return layout, row source and start of each set of classes."""
        task, position = run.task, run.model.distance_bias
        bias = self.model.start_bias(task.distances)
        return [
            Tables(
                of.layout,
                row_source(task, of.classes, of.where, position, run.gradient.size),
                of.start(bias),
            )
            for of in self.laid_out(run)
        ]

    def require_memory(self, run: Simulation) -> None:
        """Refuse a run that this machine cannot hold.

        First what does not depend on the layout: z(0) and the roles of tokens, log P where none
        are lumped, and all records, with their probabilities.
        """
        sets, first = len(run.sets), run.sets[0]
        M, K, Q = first.vocab_size, len(first), first.queries.size
        entries = K * first.in_play.size if self.model.dense(run) else 0
        labelled = {"attention", "logits"} & set(self.recorded(run))
        numbers = Q * M + 2 * M + entries + (K * M if labelled else 0)
        itemsize = np.dtype(run.dtype).itemsize
        _require(
            {
                "classes": 8 * sets * numbers,
                "heads": 8 * sets * (self.model.heads - 1) * Q * M,
                "record": RECORD_COPIES * run.bytes_per_record * run.record_steps.size,
            }
        )
        sizes = self.laid_out(run)[0].layout.sizes
        copies = STATE_COPIES[run.clock]
        needed = {name: copies * of for name, of in self.model.numbers(sizes).items()}
        needed |= row_numbers(run, sizes)
        _require({name: itemsize * of for name, of in needed.items()})

    def bytes_of_run(self, run: Simulation, tables: Tables) -> int:
        """Return the bytes that a run works on in a step, roughly."""
        model, sizes = self.model, tables.layout.sizes
        per_row = sizes.outputs + model.heads * sizes.shared
        position = run.model.distance_bias
        if position is not None and position.learned:
            per_row += model.heads * (run.task.distances + 1)
        numbers = 4 * model.decoder_numbers(sizes) + 3 * rows_per_step(run, sizes.classes) * per_row
        return numbers * np.dtype(run.dtype).itemsize

    def runs_at_once(self, run: Simulation) -> int:
        """Return no limit of its own: groups of 16 keep the cores busy."""
        return len(run.sets) * run.grid.runs

    def identity(self, run: Simulation, setting: int, point: int) -> str:
        """Return a text that identifies a run's settings and learning rates, to seed its data.

        It is spelled as in version 0.1, so that independent cells keep their numbers.
        """
        task, size = run.task, run.gradient.size
        if run.clock == "time":
            motion = run.motion
            most = None if motion.most_steps == 100_000 else motion.most_steps
            engine = f"Flow(rtol={motion.rtol}, atol={motion.atol}, most_steps={most})"
        elif task.infinite:
            engine = f"Limit(batch_size={size})"
        else:
            sizes = f"length={task.length}, batch_size={size}, sequences={task.training_set}"
            engine = f"Sampled({sizes})"
        optimizers = list(run.optimizers.values())
        init = run.init if isinstance(run.init, str) else "given"
        rates = [float(of[point]) for of in run.grid.rates().values()]
        optimizer = optimizers[0] if optimizers else "flow"
        digest = run.sets[setting].digest
        return f"({digest!r}, {engine}, {run.model!r}, {optimizer!r}, {init!r}, {rates!r})"

    def unpack(
        self, run: Simulation, settings: NDArray[np.int64], values: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        """Return records (setting, ...) with their blocks as arrays over all tokens."""
        out = {name: leaf for name, leaf in values.items() if "." not in name}
        chosen = [self.laid_out(run)[number] for number in settings]
        for name in (name.removesuffix(".shared") for name in values if name.endswith(".shared")):
            blocks = zip(values[f"{name}.shared"], values[f"{name}.exclusive"], strict=True)
            whole = [of.over_tokens(name, *block) for of, block in zip(chosen, blocks, strict=True)]
            out["attention_logits" if name == "logits" else name] = np.stack(whole)
        return out

    def dataset(
        self, run: Simulation, values: Mapping[str, NDArray[Any]], steps: NDArray[Any]
    ) -> xr.Dataset:
        """Return records with their dims and coords; see `labels.label`."""
        found = label(run.sets, run.grid, values, clock=run.clock, steps=steps, model=run.model)
        return found if isinstance(run.classes, tuple) else of_one_set(found)

    def attrs(self, run: Simulation) -> dict[str, Any]:
        """Return the size of the vocabulary."""
        return {"vocab_size": run.sets[0].vocab_size}

    def warning(self, run: Simulation) -> str:
        """Say whether attention may be decided by rounding errors; empty if not.

        The gradient of a logit z is a difference of two terms of the size of Y: for a class with
        its attention on one token they are equal, and what is left of them is the rounding error.
        After the first step Y is up to eta_y, and weight decay with eta_y * weight_decay > 1
        multiplies it. The second step multiplies the error with eta_z: a bound that needs none of
        the numbers.
        """
        optimizer = run.optimizers.get("decoder")
        rates = run.grid.rates()
        if optimizer is None or optimizer.name != "sgd" or "attention" not in rates:
            return ""
        if run.last < 2 or not run.model.cancels:
            return ""
        eps = float(np.finfo(run.dtype).eps)
        eta_y, eta_z = rates["decoder"], rates["attention"]
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.maximum(1.0, eta_y * (optimizer.weight_decay or 0.0))
            error = eps * eta_z * eta_y * growth ** (run.last - 2)
        if not (error > 1).any():
            return ""
        worst = int(np.nanargmax(error))
        return (
            f"eta_y = {eta_y[worst]:.4g}, eta_z = {eta_z[worst]:.4g}: from step 2 on the rounding "
            f"errors of attention logits may exceed 1 ({run.dtype}), so that attention may be "
            "decided by rounding; try smaller learning rates"
        )


def rows_per_step(run: Simulation, num_classes: int) -> int:
    """Return how many rows a step has."""
    task: Sequences = run.task
    if task.infinite:
        return num_classes
    size = task.training_set if run.gradient.size is None else run.gradient.size
    assert size is not None
    return size


def row_numbers(run: Simulation, sizes: Sizes) -> dict[str, int]:
    """Return the numbers that the rows of a step take in memory, by the field that asks."""
    task, size, model = run.task, run.gradient.size, run.model
    if task.infinite:
        return {} if size is None else {"batch_size": size * sizes.classes}
    rows = task.training_set or rows_per_step(run, sizes.classes)
    name = "batch_size" if task.training_set is None else "training_set"
    needed = {name: rows * (sizes.outputs + 2 * model.heads * sizes.shared)}
    if model.distance_bias is not None:
        needed["length"] = 2 * rows * task.length
        if model.distance_bias.learned:
            needed["length"] += rows * model.heads * task.length
    return needed


def table_bytes(task: Sequences, classes: SequenceClasses) -> float:
    """Return the bytes of the tables that sequences are drawn from, at most.

    For each probability a distribution of up to T counts, for each of up to T tokens.
    """
    return 0.0 if task.infinite else min(TABLE_BYTES, 4 * classes.num_nonzeros * task.length**2)


def statistics(layout: Layout, c: Block) -> dict[str, jax.Array]:
    """Return per class: entropy of c_n, entropy over its distinct tokens, common-token mass."""
    c_log_c = Block(xlogy(c.shared, c.shared), xlogy(c.exclusive, c.exclusive))
    entropy = -row_sum(layout, c_log_c)
    is_common = layout.shared_is_common
    # a query that attends to itself is not a distinct token of its classes
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


def _trained(params: Params) -> Parameters:
    return Parameters(params["decoder"], params["attention"])


def _require(needed: Mapping[str, int]) -> None:
    """Refuse more bytes than there are, by the field that asks for most."""
    field = max(needed, key=lambda name: needed[name])
    require_memory(field, sum(needed.values()), ADVICE.get(field, "take fewer"))
