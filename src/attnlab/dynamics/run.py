"""A prepared call of simulate(), and what comes out of its engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.data.classes import SequenceClasses
from attnlab.dynamics.engines import Engine, Flow, Sampled
from attnlab.dynamics.gradient import Block
from attnlab.dynamics.grid import Grid
from attnlab.dynamics.layout import Layout, TokenMap
from attnlab.dynamics.models import Model
from attnlab.dynamics.models.extended import Extended
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.positions import Position
from attnlab.dynamics.start import Init, Start

Indices = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Setting:
    """A set of sequence classes, laid out."""

    classes: SequenceClasses
    layout: Layout
    where: TokenMap
    start_logits: NDArray[np.float64]  # (query, token), or (head, query, token)

    def attention(self, shared: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
        """A block of attention as an array over all tokens."""
        return self.where.attention(shared, own, self.classes.vocab_size)

    def logits(self, shared: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
        """A block of logits as an array over all tokens."""
        return self.where.logits(shared, own, self.start_logits, self.classes.query_index)


@dataclass(frozen=True)
class Run:
    """Everything that a call of simulate() fixes, checked and laid out."""

    settings: tuple[Setting, ...]
    engine: Engine
    model: Model
    optimizer: Optimizer
    init: Init
    grid: Grid
    what: tuple[str, ...]
    moments: NDArray[Any]  # steps or times to record at
    dtype: np.dtype[Any]
    own_data: bool = False

    def cell(self, setting: int, point: int) -> NDArray[np.uint32]:
        """Two words that tell a run's cell from others, whatever it is computed together with."""
        rates = [float(rate[point]) for rate in self.grid.rates()]
        init = self.init if isinstance(self.init, str) else "given"
        what = (self.settings[setting].classes.digest, self.engine, self.model, self.optimizer)
        digest = hashlib.sha256(repr((*what, init, rates)).encode()).digest()
        return np.frombuffer(digest[:8], "<u4").astype(np.uint32)

    @property
    def position(self) -> Position | None:
        """How the model sees positions, if it does."""
        position = self.model.position if isinstance(self.model, Extended) else None
        assert not isinstance(position, str)  # a text has become a Position when it was made
        return position

    @property
    def clock(self) -> str:
        """What moments are: "step", or "time" for the flow."""
        return "time" if isinstance(self.engine, Flow) else "step"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Settings, seeds and rate points: their product is the number of runs."""
        return len(self.settings), self.grid.seeds.size, self.grid.points

    def start(self, setting: Setting) -> Start:
        """What the runs of a setting start from."""
        classes, where = setting.classes, setting.where
        logits = where.blocks(
            setting.start_logits, classes.query_index, setting.layout.own_log_prob.shape
        )
        # programs are compiled for shapes: a length that a model does not see stays out of them
        distances = 0
        if isinstance(self.model, Extended) and isinstance(self.engine, Sampled):
            distances = self.engine.length - 1
        return Start(
            logits=Block(*logits),
            tokens=where.tokens[np.argsort(where.position)],
            queries=classes.queries,
            query_place=where.places(classes.queries),
            bias=np.zeros(distances) if self.position is None else self.position.biases(distances),
            drawn=where.drawn,
        )


@dataclass
class Recorded:
    """What was recorded: arrays are (setting, seed, rate, moment, ...), by name."""

    moments: NDArray[Any]
    values: dict[str, NDArray[Any]] = field(default_factory=dict)
    count: int = 0  # of the records that are whole
    # (setting, seed, rate) -> (the step or time of the failure, what failed)
    failures: dict[tuple[int, int, int], tuple[float, str]] = field(default_factory=dict)

    def put(self, run: Run, runs: Indices, some: Recorded) -> None:
        """Add what was recorded of the runs with these settings, seeds and rates; blocks become
        arrays over all tokens."""
        # taken as they are: a run that is left behind may still be at work on the next record
        count, failures = some.count, dict(some.failures)
        places: Any = (*np.ix_(*runs), slice(count))
        records = {name: leaf[:, :, :, :count] for name, leaf in dict(some.values).items()}
        for name, leaf in _by_token(run, runs[0], records if count else {}).items():
            if name not in self.values:
                shape = (*run.shape, self.moments.size, *leaf.shape[4:])
                self.values[name] = np.full(shape, np.nan, leaf.dtype)
            self.values[name][places] = leaf
        self.count = max(self.count, count)
        for place, failure in failures.items():
            setting, seed, point = (int(of[i]) for of, i in zip(runs, place, strict=True))
            self.failures[setting, seed, point] = failure

    def keep_before(self, moment: float) -> None:
        """Drop the records from `moment` on."""
        self.count = min(self.count, int(np.searchsorted(self.moments, moment)))
        self.drop_the_rest()

    def drop_the_rest(self) -> None:
        """Drop the records that no run has come to."""
        self.moments = self.moments[: self.count]
        self.values = {name: leaf[:, :, :, : self.count] for name, leaf in self.values.items()}


def flatten(record: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """One record with flat names: a block gives `name.shared` and `name.own`."""
    flat: dict[str, NDArray[Any]] = {}
    for name, value in record.items():
        if isinstance(value, Block):
            flat[f"{name}.shared"], flat[f"{name}.own"] = value
        elif isinstance(value, dict):
            flat.update(value)
        else:
            flat[name] = value
    return flat


def _by_token(
    run: Run, settings: NDArray[np.int64], values: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Flat records (setting, ...) with their blocks as arrays over all tokens."""
    out = {name: leaf for name, leaf in values.items() if "." not in name}
    chosen = [run.settings[number] for number in settings]

    def join(name: str, how: Callable[..., NDArray[Any]]) -> NDArray[Any]:
        shared, own = values[f"{name}.shared"], values[f"{name}.own"]
        return np.stack([how(*each) for each in zip(chosen, shared, own, strict=True)])

    if "attention.shared" in values:
        out["attention"] = join("attention", Setting.attention)
    if "logits.shared" in values:
        out["attention_logits"] = join("logits", Setting.logits)
    return out
