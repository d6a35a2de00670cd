"""Stacks: settings whose runs go together, as one more axis of the compiled programs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics import program
from attnlab.dynamics.engines import Flow, Limit, Sampled
from attnlab.dynamics.layout import Layout
from attnlab.dynamics.models.extended import Extended
from attnlab.dynamics.positions import LearnedPosition
from attnlab.dynamics.rows import RowSource, row_source
from attnlab.dynamics.run import Indices, Run, Setting
from attnlab.dynamics.start import Start, is_symmetric

# Runs advance together while their arrays stay in a processor's cache, or well within an
# accelerator's memory. XLA's matrix products on a CPU fall to a tenth of their speed when more
# than 16 of them are batched.
WORKING_BYTES = {"cpu": 16 * 2**20}
ACCELERATOR_BYTES = 8 * 2**30
RUNS_AT_ONCE = {"cpu": 16}


@dataclass(frozen=True)
class Stack:
    """Settings whose arrays have the same sizes, with a leading axis that counts them.

    at_once: how many seeds and rate points of them advance together.
    """

    run: Run
    settings: NDArray[np.int64]
    layout: Layout
    source: RowSource
    start: Start
    at_once: tuple[int, int]

    @property
    def programs(self) -> Hashable:
        """What its programs are compiled for."""
        run = self.run
        leaves, structure = jax.tree.flatten((self.layout, self.source, self.start))
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        return (
            type(run.engine), run.model, run.optimizer, run.what, run.dtype, is_symmetric(run.init),
            run.own_data, self.at_once, structure, shapes,
        )  # fmt: skip

    def begin(self, runs: Indices) -> tuple[jax.Array, Any, program.State]:
        """Where these runs start; see `program.begin`."""
        settings, seeds, points = runs
        run = self.run
        return program.begin(
            run.model, run.optimizer, not is_symmetric(run.init), points.size, self.layout,
            self.start, run.grid.seeds[seeds].astype(np.uint32),
            run.cell(settings[0], points[0]) if run.own_data else None,
        )  # fmt: skip

    def batches(self) -> Iterator[Indices]:
        """The settings, seeds and rate points that advance together."""
        _, seeds, points = self.run.shape
        for some_seeds in _cut(seeds, self.at_once[0]):
            for some_points in _cut(points, self.at_once[1]):
                yield self.settings, some_seeds, some_points


def stacks(run: Run) -> Iterator[list[Stack]]:
    """All settings of a run, in lists that share their compiled programs."""
    alike: dict[Any, list[tuple[int, Any]]] = {}
    for number, setting in enumerate(run.settings):
        arrays = setting.layout, _source(run, setting), run.start(setting)
        leaves, structure = jax.tree.flatten(arrays)
        key = structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        alike.setdefault(key, []).append((number, arrays))
    for members in alike.values():
        at_once = _at_once(run, len(members), members[0][1])
        made = []
        for chosen in _cut(len(members), at_once[0]):
            numbers, arrays = zip(*(members[i] for i in chosen), strict=True)
            layout, source, start = jax.tree.map(lambda *leaves: np.stack(leaves), *arrays)
            source, start = jax.device_put((source, start))
            layout = layout.on_device(run.dtype)
            made.append(Stack(run, np.array(numbers), layout, source, start, at_once[1:]))
        yield made


def _source(run: Run, setting: Setting) -> RowSource:
    # the flow draws nothing: its rows are the classes, as those of the expected gradient are
    engine: Any = Limit() if isinstance(run.engine, Flow) else run.engine
    return row_source(engine, setting.classes, setting.where, run.position)


def _at_once(run: Run, settings: int, arrays: Any) -> tuple[int, int, int]:
    """How many settings, seeds and rate points advance together."""
    layout = arrays[0]
    outputs = layout.output_multiplicity.size
    shared = layout.shared_multiplicity.size
    tokens = shared + layout.own_multiplicity.size
    rows = run.engine.rows if isinstance(run.engine, Sampled) else layout.prior.size
    blocks, heads = 1, 1
    if isinstance(run.model, Extended):
        blocks, heads = run.model.blocks, run.model.heads
    numbers = 4 * blocks * outputs * tokens + 3 * rows * (outputs + heads * shared)
    if isinstance(run.position, LearnedPosition) and isinstance(run.engine, Sampled):
        numbers += 3 * rows * heads * run.engine.length
    _, seeds, points = run.shape
    bytes_of_run = numbers * run.dtype.itemsize
    budget = WORKING_BYTES.get(jax.default_backend(), ACCELERATOR_BYTES)
    most = RUNS_AT_ONCE.get(jax.default_backend(), seeds * points * settings)
    fitting = max(1, min(most, budget // bytes_of_run))
    if run.own_data:
        return 1, _even_share(seeds, fitting), 1
    points_at_once = _even_share(points, fitting)
    seeds_at_once = _even_share(seeds, max(1, fitting // points_at_once))
    together = seeds_at_once * points_at_once
    # beside its runs a setting has the tables that its sequences are drawn from
    bytes_of_setting = together * bytes_of_run + sum(x.nbytes for x in jax.tree.leaves(arrays))
    fitting = max(1, min(most // together, budget // bytes_of_setting))
    return _even_share(settings, fitting), seeds_at_once, points_at_once


def _even_share(total: int, most: int) -> int:
    """The smallest batch size with which as few batches as possible hold `total`."""
    batches = -(-total // most)
    return -(-total // batches)


def _cut(total: int, size: int) -> list[NDArray[np.int64]]:
    """0 to `total` - 1 in pieces of one size, so that one compiled program serves all: the last
    is filled up with repeats."""
    return [np.arange(first, first + size) % total for first in range(0, total, size)]
