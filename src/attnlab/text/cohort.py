"""Cohort: all runs of a training, in groups that suit the machine, at one common step."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from attnlab.files.checkpoint import Arrays, arrays_of, tree_of
from attnlab.files.errors import InputError
from attnlab.files.memory import require_memory
from attnlab.text import program
from attnlab.text.corpus import Corpus
from attnlab.text.measure import observe
from attnlab.text.streams import cut_streams, window_count
from attnlab.text.training import EVALUATION_STREAMS, Training

# On a processor a run by itself keeps its arrays in the cache, and two side by side fill the gaps
# between matrix products; an accelerator takes as many together as its memory holds.
ACCELERATOR_SHARE = 0.6
FREQUENT_SHARE = 0.5  # of a text are its frequent words


@dataclass
class _Group:
    """Some runs as one vectorised program."""

    rates: jax.Array
    seeds: jax.Array
    state: program.State


class Cohort:
    """The runs of a training between two steps."""

    def __init__(self, plan: Training, corpus: Corpus) -> None:
        self.plan, self.step = plan, 0
        self.loss_steps = 0  # in the running sum of the training loss
        context = plan.model.context
        self.train = jnp.asarray(cut_streams(corpus.train, plan.batch, context, "training"))
        self.held = jnp.asarray(
            cut_streams(corpus.validation, EVALUATION_STREAMS, context, "validation")
        )
        self.pass_steps = window_count(self.train, context)
        self.windows = plan.windows(window_count(self.held, context))
        self.frequent = jnp.asarray(frequent_words(corpus))
        measured = np.asarray(self.held)[:, : self.windows * context].reshape(-1, context)
        seen = np.cumsum(np.asarray(self.frequent)[measured], axis=1)
        self.frequent_share = float((seen / np.arange(1, context + 1)).mean())
        self.probes = probe_sequences(plan, corpus)
        size = _group_size(plan, corpus.vocab_size)
        self.groups = []
        for first in range(0, len(plan.runs), size):
            rates, seeds = zip(*plan.runs[first : first + size], strict=True)
            of_group = jnp.asarray(rates, jnp.float32), jnp.asarray(seeds, jnp.uint32)
            begun = program.begin(plan.model, plan.moving, corpus.vocab_size, *of_group)
            self.groups.append(_Group(*of_group, begun))
        self._advance(self.groups[0], 0)  # compiles once what the threads share

    def advance(self, count: int) -> None:
        """Take `count` steps."""
        workers = min(len(self.groups), os.cpu_count() or 1)
        with ThreadPoolExecutor(workers if jax.default_backend() == "cpu" else 1) as pool:
            list(pool.map(lambda group: self._advance(group, count), self.groups))
        self.step += count
        self.loss_steps += count

    def train_loss(self) -> NDArray[np.floating]:
        """The mean training loss of each run since the last observation; NaN right after one."""
        sums = np.concatenate([np.asarray(group.state.loss_sum) for group in self.groups])
        return sums / np.float32(self.loss_steps or np.nan)

    def observe(self) -> Arrays:
        """Measure every run; the leading axis is the run."""
        found = {"train_loss": self.train_loss()}
        measured = [self._observe(group) for group in self.groups]
        for name in measured[0]:
            found[name] = np.concatenate([of_group[name] for of_group in measured])
        for group in self.groups:
            group.state = group.state._replace(loss_sum=jnp.zeros_like(group.state.loss_sum))
        self.loss_steps = 0
        return found

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of what `observe` finds, without observing."""
        plan, probes = self.plan, jnp.asarray(self.probes)
        measured = jax.eval_shape(
            lambda params: observe.function(
                plan.model, self.windows, params, self.held, probes, self.frequent
            ),
            self.groups[0].state.params,
        )
        runs = len(plan.runs)
        inner = {name: value.shape[1:] for name, value in measured.items()}
        return {name: (runs, *shape) for name, shape in {"train_loss": (), **inner}.items()}

    def diverged(self) -> NDArray[np.int32]:
        """The first step of each run with a training loss that is not finite, or -1."""
        return np.concatenate([np.asarray(group.state.diverged) for group in self.groups])

    def arrays(self) -> Arrays:
        """All states by name; the leading axis is the run."""
        parts = [arrays_of(group.state) for group in self.groups]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def restore(self, step: int, arrays: Arrays) -> None:
        """Put the runs where they were when `arrays` were taken."""
        first = 0
        for group in self.groups:
            runs = slice(first, first + group.rates.size)
            own = {name: array[runs] for name, array in arrays.items()}
            group.state = tree_of(own, like=group.state)
            first = runs.stop
        measured = self.plan.record_steps
        self.step, self.loss_steps = step, step - int(measured[measured <= step].max())

    def _advance(self, group: _Group, count: int) -> None:
        plan = self.plan
        for first, steps in self._stretches(count):
            if plan.reset_moments and first and first % self.pass_steps == 0:
                group.state = program.forget(plan.moving, group.state, group.rates)
            with self._precision():
                group.state = program.advance(
                    plan.model, plan.moving, plan.clip, self._logits(), group.state,
                    group.rates, group.seeds, self.train, np.int32(first), np.int32(steps),
                )  # fmt: skip
        group.state.loss_sum.block_until_ready()

    def _stretches(self, count: int) -> list[tuple[int, int]]:
        """The next steps as (first, how many): in one, or up to the ends of passes over the text
        where the optimiser forgets there."""
        last = self.step + count
        if not self.plan.reset_moments:
            return [(self.step, count)]
        whole = self.pass_steps
        firsts = [self.step, *range(self.step - self.step % whole + whole, last, whole)]
        return [(a, b - a) for a, b in zip(firsts, [*firsts[1:], last], strict=True)]

    def _observe(self, group: _Group) -> Arrays:
        probes = jnp.asarray(self.probes)
        with self._precision():
            found = observe(
                self.plan.model, self.windows, group.state.params, self.held, probes, self.frequent
            )
        return {name: np.asarray(value) for name, value in found.items()}

    def _precision(self) -> AbstractContextManager[None]:
        """The plan's precision of products, which is a setting of each thread."""
        of_products = "highest" if self.plan.precision == "highest" else "default"
        return jax.default_matmul_precision(of_products)

    def _logits(self) -> str | None:
        """The type of aligned logits; a processor is slower with them."""
        if self.plan.precision == "bfloat16":
            return "bfloat16"
        return None if jax.default_backend() == "cpu" else "float32"


def probe_sequences(plan: Training, corpus: Corpus) -> NDArray[np.int32]:
    """Sequences (probe, context) at even distances in the validation part."""
    context, held = plan.model.context, corpus.validation
    if len(held) < plan.probes * context:
        raise InputError(
            f"probes: {plan.probes} x {context} tokens are more than the {len(held):,} of the "
            "validation part; ask for fewer"
        )
    spacing = len(held) // plan.probes
    return np.stack([held[i * spacing : i * spacing + context] for i in range(plan.probes)])


def frequent_words(corpus: Corpus) -> NDArray[np.bool_]:
    """Whether each word is frequent: the fewest that make up half of the training part."""
    counts = np.bincount(corpus.train, minlength=corpus.vocab_size)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    frequent = np.zeros(corpus.vocab_size, dtype=bool)
    frequent[order[before < FREQUENT_SHARE * corpus.train.size]] = True
    return frequent


def numbers_of(plan: Training, vocab_size: int) -> tuple[int, int]:
    """The parameters of a run, and the numbers that a step makes of them and of a batch."""
    model, rows = plan.model, plan.batch * plan.model.context
    parameters = 2 * vocab_size * model.dim + model.layers * (
        4 * model.dim**2 + 2 * model.dim * model.feed_forward
    )
    maps = plan.batch * model.heads * model.context**2
    return parameters, rows * vocab_size + model.layers * (rows * model.dim + maps)


def _group_size(plan: Training, vocab_size: int) -> int:
    """How many runs advance together; refuses what would not fit even alone."""
    model, rows = plan.model, plan.batch * plan.model.context
    parameters, activations = numbers_of(plan, vocab_size)
    needed = {
        "dim": 4 * (len(plan.runs) + 1) * parameters,  # of all runs, and a gradient
        "batch": 4 * activations,
    }
    field = max(needed, key=lambda name: needed[name])
    require_memory(field, sum(needed.values()), "take a smaller model, batch or context")
    if jax.default_backend() == "cpu":
        return 1
    numbers = 6 * parameters + 3 * rows * vocab_size + 40 * model.layers * rows * model.dim
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 8 * 2**30)
    most = max(1, int(ACCELERATOR_SHARE * limit) // (4 * numbers))
    groups = -(-len(plan.runs) // most)
    return -(-len(plan.runs) // groups)
