"""A prepared call of simulate(), and what comes out of its engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.data.classes import SequenceClasses
from attnlab.dynamics import program
from attnlab.dynamics.engines import Engine, Sampled
from attnlab.dynamics.extended import Extended
from attnlab.dynamics.gradient import Block, Parameters
from attnlab.dynamics.grid import Grid
from attnlab.dynamics.layout import Layout, TokenMap
from attnlab.dynamics.models import Model
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.positions import Position
from attnlab.dynamics.start import Init, Start, is_symmetric


@dataclass(frozen=True)
class Run:
    """Everything that a call of simulate() fixes, checked and laid out."""

    classes: SequenceClasses
    engine: Engine
    model: Model
    optimizer: Optimizer
    init: Init
    grid: Grid
    what: tuple[str, ...]
    moments: NDArray[Any]  # steps or times to record at
    dtype: np.dtype[Any]
    layout: Layout
    where: TokenMap
    start_logits: NDArray[np.float64]  # (query, token), or (head, query, token)

    @property
    def position(self) -> Position | None:
        """How the model sees positions, if it does."""
        position = self.model.position if isinstance(self.model, Extended) else None
        assert not isinstance(position, str)  # a text has become a Position when it was made
        return position

    def begin(self, seeds: NDArray[np.uint32], points: int) -> tuple[Any, Parameters]:
        """What stays fixed, (seed, ...), and what is trained, (seed, rate, ...), at step 0."""
        logits = self.where.blocks(
            self.start_logits, self.classes.query_index, self.layout.own_log_prob.shape
        )
        # programs are compiled for shapes: a length that a model does not see stays out of them
        distances = 0
        if isinstance(self.model, Extended) and isinstance(self.engine, Sampled):
            distances = self.engine.length - 1
        start = Start(
            logits=Block(*logits),
            tokens=self.where.tokens[np.argsort(self.where.position)],
            queries=self.classes.queries,
            query_place=self.where.places(self.classes.queries),
            bias=np.zeros(distances) if self.position is None else self.position.biases(distances),
        )
        keys = program.seed_keys(seeds, program.START_STREAM)
        return program.begin(
            self.model, not is_symmetric(self.init), points, self.layout, start, keys
        )


@dataclass
class Recorded:
    """What was recorded: arrays are (seed, rate, moment, ...), by name."""

    moments: NDArray[Any]
    values: dict[str, NDArray[Any]] = field(default_factory=dict)
    # (seed, rate) -> (first non-finite step or time, the array that failed)
    failures: dict[tuple[int, int], tuple[float, str]] = field(default_factory=dict)

    def keep_before(self, moment: float) -> None:
        """Drop the records from `moment` on."""
        count = int(np.searchsorted(self.moments, moment))
        self.moments = self.moments[:count]
        self.values = {name: leaf[:, :, :count] for name, leaf in self.values.items()}


def flatten(record: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """One record as host arrays with flat names: a block gives `name.shared` and `name.own`."""
    flat: dict[str, NDArray[Any]] = {}
    for name, value in record.items():
        if isinstance(value, Block):
            flat[f"{name}.shared"], flat[f"{name}.own"] = map(np.asarray, value)
        elif isinstance(value, dict):
            flat.update({inner: np.asarray(leaf) for inner, leaf in value.items()})
        else:
            flat[name] = np.asarray(value)
    return flat
