"""Setting: everything that a run of the playground depends on, within bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

from attnlab import defaults
from attnlab.data import SequenceClasses, family
from attnlab.data.class_files import parse_classes
from attnlab.dynamics import (
    Engine,
    Extended,
    Flow,
    Limit,
    Model,
    Pairwise,
    Sampled,
    Save,
    Simulation,
    as_simulation,
)
from attnlab.files.documents import shown
from attnlab.files.errors import InputError

# What one session may ask for: a run of a few seconds and a page that stays quick.
MOST = {
    "classes": 20,
    "common": 40,
    "distinct": 40,
    "vocab_size": 2000,
    "eta_y": 1000.0,
    "eta_z": 1000.0,
    "length": 8192,
    "batch_size": 2048,
    "heads": 8,
    "seed": 2**31,
}
MOST_STEPS, MOST_TIME = 20_000, 1e9
# And of classes of one's own: 20 classes of a text of 240,000 words have 1,500 tokens and 11,500
# probabilities in 370,000 characters, and this is room for two or three times that.
MOST_WRITTEN = 1_000_000  # characters
MOST_OWN = {"classes": 100, "vocabulary": 5000, "probabilities": 50_000}
MOST_RECORDED = 320_000  # classes x vocabulary x heads: 77 MB in the moments that a run records
MOST_WORK = 4e9  # steps x sequences x tokens x outputs
REMEDY = (
    "Take fewer (attnlab text classes has --queries, --next and --min-count), or use attnlab "
    "simulate"
)
RECORDS = 60

DATA = ("classes", "queries", "common", "distinct", "overlap", "ramp", "vocab_size")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The data, the rates, the engine, the optimiser, the model and the seed of a run.

    classes, queries, common, distinct, overlap, ramp, vocab_size: as `classes`, `queries`,
        `common`, `distinct`, `common_mass`, `lowest` and `vocab_size` of `attnlab.data.family`.
    written: sequence classes as JSON text; they take the place of the seven above.
    length: T, query included; None is T to infinity. batch_size: None is the expected gradient.
    flow: continuous time; `steps` is then a time.
    """

    classes: int = 2
    queries: int = 2
    common: int = 10
    distinct: int = 10
    overlap: float = 20 / 31
    ramp: float = 0.1
    vocab_size: int | None = None
    written: str | None = None
    eta_y: float = defaults.ETA_Y
    eta_z: float = defaults.ETA_Z
    steps: float = defaults.STEPS
    length: int | None = defaults.LENGTH
    batch_size: int | None = defaults.BATCH_SIZE
    flow: bool = False
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = defaults.MOMENTUM
    init: Literal["zero", "uniform"] = "zero"
    residual: bool = False
    heads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise InputError(f"{name}: expected from 0 to {most:g}, got {shown(value)}")
        most_steps = MOST_TIME if self.flow else MOST_STEPS
        if not 1 <= self.steps <= most_steps:
            raise InputError(f"steps: expected from 1 to {most_steps:g}, got {shown(self.steps)}")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum: expected from 0 to below 1, got {self.momentum:g}")
        if self.heads < 1:
            raise InputError(f"heads: expected at least 1, got {self.heads}")
        if self.length is not None and self.batch_size is None:
            raise InputError("batch_size: finite sequences come in batches; give their size")
        if self.optimizer != "sgd" and self.momentum:
            raise InputError("momentum: belongs to sgd; with adam set it to 0")
        if self.flow and (self.length, self.batch_size, self.optimizer, self.momentum) != (
            None, None, "sgd", 0.0,
        ):  # fmt: skip
            raise InputError(
                "flow: continuous time goes with T to infinity, the expected gradient and sgd "
                "without momentum"
            )
        self._check_size()

    def _check_size(self) -> None:
        if self.written is not None and len(self.written) > MOST_WRITTEN:
            raise InputError(
                f"classes: {len(self.written):,} characters; the playground takes up to "
                f"{MOST_WRITTEN:,}. {REMEDY}"
            )
        data = self.sequence_classes
        sizes = (len(data), data.vocab_size, data.num_nonzeros)
        for (name, most), size in zip(MOST_OWN.items(), sizes, strict=True):
            if size > most:
                raise InputError(f"{name}: {size:,}; the playground takes up to {most:,}. {REMEDY}")
        recorded = len(data) * data.vocab_size * self.heads
        if recorded > MOST_RECORDED:
            raise InputError(
                f"classes: {recorded:,} when multiplied by vocabulary and heads; the playground "
                f"takes up to {MOST_RECORDED:,}. {REMEDY}"
            )
        if not self.flow:
            outputs = data.vocab_size if self.init == "uniform" else len(data) + 1
            rows = self.engine.rows_per_step(len(data))
            work = self.steps * rows * data.in_play.size * outputs * self.heads
            if work > MOST_WORK:
                raise InputError(
                    f"steps: this run is {work / MOST_WORK:.1f} times what a session may ask for; "
                    "take fewer steps, smaller batches or fewer tokens"
                )

    @cached_property
    def sequence_classes(self) -> SequenceClasses:
        """What is learnt from."""
        if self.written is not None:
            return _parsed(self.written)
        return family(
            self.classes,
            self.queries,
            common=self.common,
            distinct=self.distinct,
            common_mass=self.overlap,
            lowest=self.ramp,
            vocab_size=self.vocab_size,
        )

    @property
    def engine(self) -> Engine:
        """Finite sequences, T to infinity, or continuous time."""
        if self.flow:
            return Flow()
        if self.length is None or self.batch_size is None:
            return Limit(self.batch_size)
        return Sampled(self.length, self.batch_size)

    @property
    def model(self) -> Model:
        """The paper's model, or one with a residual connection or several heads."""
        if self.residual or self.heads > 1:
            return Extended(residual=self.residual, heads=self.heads)
        return Pairwise()

    def turned(self, name: str, value: Any) -> Setting:
        """The setting with one control turned, and with it what else must give way."""
        also: dict[str, Any] = {}
        if name in DATA:
            also["written"] = None
        if name == "classes":
            also["queries"] = min(self.queries, value)
        if name == "optimizer":
            also["momentum"] = 0.0 if value == "adam" or self.flow else defaults.MOMENTUM
        if name == "flow" and value:
            also |= {"length": None, "batch_size": None, "optimizer": "sgd", "momentum": 0.0}
        elif name in ("flow", "length", "batch_size", "momentum", "optimizer") and self.flow:
            also |= {"flow": False, "steps": min(self.steps, MOST_STEPS)}
        if name == "length" and value is not None and self.batch_size is None:
            also["batch_size"] = defaults.BATCH_SIZE
        if name == "batch_size" and value is None:
            also["length"] = None
        return replace(self, **{**also, name: value})

    @property
    def simulation(self) -> Simulation:
        """What is run."""
        return as_simulation(self.sequence_classes, self.engine, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `simulate`, past the classes and the engine."""
        return {
            "eta_y": self.eta_y,
            "eta_z": self.eta_z,
            "steps": self.steps if self.flow else int(self.steps),
            "optimizer": self.optimizer,
            "momentum": self.momentum,
            "init": self.init,
            "seeds": [self.seed],
            "save": Save(geometric=RECORDS),
            "model": self.model,
        }


@lru_cache(maxsize=8)
def _parsed(written: str) -> SequenceClasses:
    """Classes from their text; every turn of a control asks again for the same ones."""
    return parse_classes(written, origin="classes.json")
