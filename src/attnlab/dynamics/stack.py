"""Stacks: settings whose runs go together, as one more axis of the compiled programs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics import program
from attnlab.dynamics.run import Indices, LaidOutClasses, Run
from attnlab.dynamics.start import Start, is_random

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
    data: program.Data
    start: Start
    at_once: tuple[int, int]

    @property
    def programs(self) -> Hashable:
        """What its programs are compiled for."""
        run, simulation = self.run, self.run.simulation
        leaves, structure = jax.tree.flatten((self.data, self.start))
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        return (
            type(simulation.engine), self.learner, run.what, run.dtype, is_random(simulation.init),
            simulation.independent, self.at_once, structure, shapes,
        )  # fmt: skip

    @property
    def learner(self) -> program.Learner:
        """The model, and what moves it."""
        return program.Learner(self.run.simulation.model, self.run.optimizer)

    def rates(self, points: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """eta_y and eta_z at these rate points."""
        eta_y, eta_z = self.run.simulation.grid.rates()
        return eta_y[points].astype(self.run.dtype), eta_z[points].astype(self.run.dtype)

    def begin(self, runs: Indices) -> tuple[jax.Array, Any, program.State]:
        """Where these runs start; see `program.begin`."""
        settings, seeds, points = runs
        simulation = self.run.simulation
        cell = self.run.cell(settings[0], points[0]) if simulation.independent else None
        return program.begin(
            self.learner, is_random(simulation.init), self.data.layout, self.start,
            simulation.grid.seeds[seeds].astype(np.uint32), cell, self.rates(points),
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
    for number, laid_out in enumerate(run.sets):
        arrays = _data(run, laid_out), run.start(laid_out)
        leaves, structure = jax.tree.flatten(arrays)
        key = structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        alike.setdefault(key, []).append((number, arrays))
    for members in alike.values():
        at_once = _at_once(run, len(members), members[0][1])
        made = []
        for chosen in _cut(len(members), at_once[0]):
            numbers, arrays = zip(*(members[i] for i in chosen), strict=True)
            (layout, source), start = jax.tree.map(lambda *leaves: np.stack(leaves), *arrays)
            source, start = jax.device_put((source, start))
            data = program.Data(layout.on_device(run.dtype), source)
            made.append(Stack(run, np.array(numbers), data, start, at_once[1:]))
        yield made


def _data(run: Run, laid_out: LaidOutClasses) -> program.Data:
    engine, position = run.simulation.engine, run.simulation.model.distance_bias
    source = engine.source(laid_out.classes, laid_out.where, position)
    return program.Data(laid_out.layout, source)


def _at_once(run: Run, settings: int, arrays: tuple[program.Data, Start]) -> tuple[int, int, int]:
    """How many settings, seeds and rate points advance together."""
    model, engine = run.simulation.model, run.simulation.engine
    sizes = arrays[0].layout.sizes
    rows = engine.rows_per_step(sizes.classes)
    per_row = sizes.outputs + model.heads * sizes.shared
    if model.distance_bias is not None and model.distance_bias.learned:
        per_row += model.heads * (engine.distances + 1)
    numbers = 4 * model.decoder_numbers(sizes) + 3 * rows * per_row
    _, seeds, points = run.shape
    bytes_of_run = numbers * run.dtype.itemsize
    budget = WORKING_BYTES.get(jax.default_backend(), ACCELERATOR_BYTES)
    most = RUNS_AT_ONCE.get(jax.default_backend(), seeds * points * settings)
    fitting = max(1, min(most, budget // bytes_of_run))
    if run.simulation.independent:
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
