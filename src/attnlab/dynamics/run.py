"""A simulation laid out, and what comes out of its engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnlab.data.classes import SequenceClasses
from attnlab.dynamics.gradient import Block
from attnlab.dynamics.layout import Layout, TokenMap
from attnlab.dynamics.optimizers import Optimizer
from attnlab.dynamics.start import Start

if TYPE_CHECKING:
    from jaxtyping import Float

    from attnlab.dynamics.simulation import Simulation

Indices = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class LaidOutClasses:
    """A set of sequence classes, and where each of its tokens is."""

    classes: SequenceClasses
    layout: Layout
    where: TokenMap
    # with an axis of heads where there are several
    start_logits: Float[NDArray[np.float64], "*heads Q M"]

    def per_token(self, shared: NDArray[Any], exclusive: NDArray[Any]) -> NDArray[Any]:
        """A block, such as attention, as an array over all tokens; 0 for those without a place."""
        return self.where.attention(shared, exclusive, self.classes.vocab_size)

    def logits(self, shared: NDArray[Any], exclusive: NDArray[Any]) -> NDArray[Any]:
        """A block of logits as an array over all tokens."""
        return self.where.logits(shared, exclusive, self.start_logits, self.classes.query_index)

    def start_blocks(self) -> Block:
        """The logits at the start, as a block."""
        shape = self.layout.exclusive_log_prob.shape
        return Block(*self.where.blocks(self.start_logits, self.classes.query_index, shape))


@dataclass(frozen=True)
class Run:
    """A simulation whose sets of classes are laid out: what batches are made from."""

    simulation: Simulation
    sets: tuple[LaidOutClasses, ...]

    @classmethod
    def of(cls, simulation: Simulation) -> Run:
        """Lay out every set."""
        made = [
            LaidOutClasses(
                classes,
                *simulation.model.lay_out(classes, simulation),
                simulation.start_logits(classes),
            )
            for classes in simulation.sets
        ]
        return cls(simulation, tuple(made))

    @property
    def optimizer(self) -> Optimizer:
        """The optimiser as it is with the engine."""
        return self.simulation.moving

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of what is trained."""
        return np.dtype(self.simulation.dtype)

    @property
    def what(self) -> tuple[str, ...]:
        """What is recorded."""
        return tuple(self.simulation.save.what)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Settings, seeds and rate points: their product is the number of runs."""
        grid = self.simulation.grid
        return len(self.sets), grid.seeds.size, grid.points

    def cell(self, setting: int, point: int) -> NDArray[np.uint32]:
        """Two words that tell a run's cell from others, whatever it is computed together with."""
        s = self.simulation
        rates = [float(rate[point]) for rate in s.grid.rates()]
        init = s.init if isinstance(s.init, str) else "given"
        what = (self.sets[setting].classes.digest, s.engine, s.model, self.optimizer)
        digest = hashlib.sha256(repr((*what, init, rates)).encode()).digest()
        return np.frombuffer(digest[:8], "<u4").astype(np.uint32)

    def start(self, laid_out: LaidOutClasses) -> Start:
        """What the runs of a set of classes start from."""
        classes, where = laid_out.classes, laid_out.where
        return Start(
            logits=laid_out.start_blocks(),
            tokens=where.tokens[np.argsort(where.position)],
            queries=classes.queries,
            query_place=where.places(classes.queries),
            bias=self.simulation.model.start_bias(self.simulation.engine.distances),
            drawn=where.drawn,
        )


@dataclass
class Recorded:
    """What was recorded: arrays are (setting, seed, rate, step, ...), by name."""

    steps: NDArray[Any]
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
                shape = (*run.shape, self.steps.size, *leaf.shape[4:])
                self.values[name] = np.full(shape, np.nan, leaf.dtype)
            self.values[name][places] = leaf
        self.count = max(self.count, count)
        for place, failure in failures.items():
            setting, seed, point = (int(of[i]) for of, i in zip(runs, place, strict=True))
            self.failures[setting, seed, point] = failure

    def keep_before(self, step: float) -> None:
        """Drop the records from `step` on."""
        self.count = min(self.count, int(np.searchsorted(self.steps, step)))
        self.drop_the_rest()

    def drop_the_rest(self) -> None:
        """Drop the records that no run has come to."""
        self.steps = self.steps[: self.count]
        self.values = {name: leaf[:, :, :, : self.count] for name, leaf in self.values.items()}


def flatten(record: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """One record with flat names: a block gives `name.shared` and `name.exclusive`."""
    flat: dict[str, NDArray[Any]] = {}
    for name, value in record.items():
        if isinstance(value, Block):
            flat[f"{name}.shared"], flat[f"{name}.exclusive"] = value
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
    chosen = [run.sets[number] for number in settings]

    def join(name: str, how: Callable[..., NDArray[Any]]) -> NDArray[Any]:
        shared, exclusive = values[f"{name}.shared"], values[f"{name}.exclusive"]
        return np.stack([how(*each) for each in zip(chosen, shared, exclusive, strict=True)])

    for name in (name.removesuffix(".shared") for name in values if name.endswith(".shared")):
        if name == "logits":  # a token that is never drawn keeps the one it starts with
            out["attention_logits"] = join(name, LaidOutClasses.logits)
        else:
            out[name] = join(name, LaidOutClasses.per_token)
    return out
