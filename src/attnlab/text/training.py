"""Training: what is trained and how, as a frozen value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from attnlab.dynamics.engines import MOST_STEPS
from attnlab.dynamics.grid import RUN_BYTES
from attnlab.dynamics.optimizers import Optimizer
from attnlab.files.errors import InputError, require_whole
from attnlab.files.memory import require_memory
from attnlab.text.corpus import Corpus
from attnlab.text.model import TransformerSpec

Precision = Literal["highest", "default", "bfloat16"]
EVALUATION_STREAMS = 10


@dataclass(frozen=True)
class Training:
    """The protocol of a training; the defaults are those of Fig. 7.

    rates, seeds: one run for each pair. A seed fixes the start and the dropout; all runs read the
        same text in the same order.
    optimizer: SGD has no momentum unless it is given.
    batch: streams read side by side. clip: the largest norm of a gradient.
    measure_every: steps between measurements; the start and the end are measured too.
    validation_tokens: how much of the validation part is measured each time; None for all of it.
    probes: how many fixed sequences of the validation part have their maps kept.
    precision: of matrix products: "highest" is float32, "default" what the device prefers (TF32 on
        many GPUs), "bfloat16" that with logits and decoder in bfloat16; parameters, softmax and
        what is measured stay as they are.
    """

    model: TransformerSpec = field(default_factory=TransformerSpec)
    rates: tuple[float, ...] = (5.0,)
    seeds: tuple[int, ...] = (0,)
    steps: int = 1500
    optimizer: Optimizer = field(default_factory=Optimizer)
    batch: int = 20
    clip: float = 0.5
    measure_every: int = 50
    validation_tokens: int | None = 3500
    probes: int = 2
    precision: Precision = "highest"

    def __post_init__(self) -> None:
        momentum = self.optimizer.momentum or 0.0
        object.__setattr__(self, "optimizer", replace(self.optimizer, momentum=momentum))
        for name in ("steps", "batch", "measure_every", "probes"):
            require_whole(name, getattr(self, name), 1)
        if self.steps > MOST_STEPS:
            raise InputError(f"steps: expected at most {MOST_STEPS:,}, got {self.steps}")
        if self.validation_tokens is not None and self.validation_tokens < 1:
            raise InputError(
                f"validation_tokens: expected a positive number or None, got "
                f"{self.validation_tokens}"
            )
        if not self.clip > 0:
            raise InputError(f"clip: expected a positive number, got {self.clip}")
        if not self.rates or not all(np.isfinite(rate) and rate > 0 for rate in self.rates):
            raise InputError(f"rates: expected positive numbers, got {self.rates}")
        if not self.seeds or not all(0 <= seed < 2**31 for seed in self.seeds):
            raise InputError(f"seeds: expected whole numbers from 0 on, got {self.seeds}")
        for name in ("rates", "seeds"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise InputError(f"{name}: {getattr(self, name)} has one twice; name each once")
        require_memory("measure_every", self._record_bytes, "measure less often, or fewer runs")
        if self.precision not in get_args(Precision):
            raise InputError(
                f"precision: expected one of {get_args(Precision)}, got {self.precision!r}"
            )

    @property
    def runs(self) -> list[tuple[float, int]]:
        """(rate, seed) of each run, seeds of one rate together."""
        return [(rate, seed) for rate in self.rates for seed in self.seeds]

    @property
    def moments(self) -> NDArray[np.int64]:
        """The steps at which it is measured."""
        return np.unique(np.append(np.arange(0, self.steps, self.measure_every), self.steps))

    @property
    def _record_bytes(self) -> float:
        """Of the maps of all runs."""
        model, records = self.model, 2 + self.steps // self.measure_every
        maps = model.layers * model.heads * self.probes * model.context**2
        return 4.0 * len(self.runs) * records * (8 + maps)

    def windows(self, available: int) -> int:
        """How many windows of the validation streams are measured each time."""
        if self.validation_tokens is None:
            return available
        asked = self.validation_tokens // (EVALUATION_STREAMS * self.model.context)
        return min(max(asked, 1), available)

    def document(self, corpus: Corpus) -> dict[str, Any]:
        """Everything that decides the numbers, as JSON has it."""
        text = {"name": corpus.name, "tokens": corpus.tokens, "digest": corpus.digest}
        plain = {**asdict(self), "rates": list(self.rates), "seeds": list(self.seeds)}
        return {"corpus": text, **plain}


def numbered(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Seeds by how many or by which."""
    if isinstance(seeds, int) and seeds < 1:
        raise InputError(f"seeds: expected at least 1, got {seeds}")
    if isinstance(seeds, int):
        require_memory("seeds", RUN_BYTES * seeds)
    return tuple(range(seeds)) if isinstance(seeds, int) else tuple(int(seed) for seed in seeds)
