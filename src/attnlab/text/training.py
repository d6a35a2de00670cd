"""Training: what is trained and how, as a frozen value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, TypedDict, Unpack, get_args

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.dynamics.engines import MOST_STEPS
from attnlab.dynamics.grid import RUN_BYTES
from attnlab.dynamics.optimizers import Optimizer, as_optimizer
from attnlab.files.documents import check_keys
from attnlab.files.errors import InputError, require_whole
from attnlab.files.memory import require_memory
from attnlab.files.recipe import as_value, plain
from attnlab.text.corpus import Corpus, Source
from attnlab.text.model import TransformerSpec

Precision = Literal["highest", "default", "bfloat16"]
MeasureEvery = int | tuple[int, ...] | Literal["doubling"]
EVALUATION_STREAMS = 10


@dataclass(frozen=True)
class Training:
    """The training of transformers on a text, and what to measure of it; as in Fig. 7 by default.

    A value that is checked when it is made, equal to others by content, and changed by
    `dataclasses.replace`.

    Parameters
    ----------
    corpus : Corpus or str or Source, optional
        What is learnt from: a `Corpus`, or the name of one, as `open_corpus` takes it, or a
        `Source`; the text is read when it is used.
    model : TransformerSpec, optional
        The transformer.
    rates, seeds : tuple, optional
        One run for each pair. A seed fixes the start and the dropout; all runs read the same text
        in the same order.
    steps : int, optional
        Of the optimiser.
    optimizer : str or Optimizer, optional
        SGD has no momentum unless it is given.
    batch : int, optional
        Streams read side by side.
    clip : float, optional
        The largest norm of a gradient.
    reset_moments : bool, optional
        Whether the optimiser forgets what it has gathered (Adam's moments, momentum) at the end of
        each pass over the text, as it does where every epoch has an optimiser of its own.
    measure_every : int, "doubling" or sequence of int, optional
        Steps between measurements, "doubling" for steps 1, 2, 4, 8, ..., or the steps themselves;
        the start and the end are measured too.
    validation_tokens : int, optional
        How much of the validation part is measured each time; None for all of it.
    probes : int, optional
        How many fixed sequences of the validation part have their maps kept.
    precision : {"float32", "float64"}, optional
        Of matrix products: "highest" is float32, "default" what the device prefers (TF32 on many
        GPUs), "bfloat16" that with logits and decoder in bfloat16; parameters, softmax and what is
        measured stay as they are.
    """

    clock: ClassVar[Literal["step"]] = "step"

    corpus: Corpus | str | Source = field(default_factory=Source)
    model: TransformerSpec = field(default_factory=TransformerSpec)
    rates: tuple[float, ...] = (5.0,)
    seeds: tuple[int, ...] = (0,)
    steps: int = 1500
    optimizer: str | Optimizer = field(default_factory=Optimizer)
    batch: int = 20
    clip: float = 0.5
    reset_moments: bool = False
    measure_every: MeasureEvery = 50
    validation_tokens: int | None = 3500
    probes: int = 2
    precision: Precision = "highest"

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        corpus = Source(self.corpus) if isinstance(self.corpus, str) else self.corpus
        if isinstance(corpus, Corpus) and corpus.source is not None:
            put("text", corpus)  # there is no need to read it again
            corpus = corpus.source
        put("corpus", corpus)
        put("optimizer", self.moving)
        put("rates", tuple(float(rate) for rate in np.atleast_1d(self.rates)))
        put("seeds", _numbered(self.seeds))
        put("clip", float(self.clip))
        for name in ("steps", "batch", "probes"):
            require_whole(name, getattr(self, name), 1)
        if self.steps > MOST_STEPS:
            raise InputError(f"steps: expected at most {MOST_STEPS:,}, got {self.steps}")
        if not isinstance(self.measure_every, str | int):
            put("measure_every", tuple(self.measure_every))
        self._check_measure_every()
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
        needed = self.record_bytes(len(self.runs))
        require_memory("measure_every", needed, "measure less often, or fewer runs")
        if self.precision not in get_args(Precision):
            raise InputError(
                f"precision: expected one of {get_args(Precision)}, got {self.precision!r}"
            )

    @property
    def runs(self) -> list[tuple[float, int]]:
        """(rate, seed) of each run, seeds of one rate together."""
        return [(rate, seed) for rate in self.rates for seed in self.seeds]

    @property
    def moving(self) -> Optimizer:
        """The optimiser, of which a name is enough."""
        return as_optimizer(self.optimizer).with_momentum(0.0)

    @cached_property
    def text(self) -> Corpus:
        """The corpus, read."""
        return self.corpus if isinstance(self.corpus, Corpus) else self.corpus.open()  # type: ignore[union-attr]

    def _check_measure_every(self) -> None:
        if isinstance(self.measure_every, str):
            if self.measure_every != "doubling":
                raise InputError(
                    f"measure_every: expected a number of steps, 'doubling' or a list of steps, "
                    f"got {self.measure_every!r}"
                )
        elif isinstance(self.measure_every, int):
            require_whole("measure_every", self.measure_every, 1)
        else:
            for step in self.measure_every:
                require_whole("measure_every", step, 0)
            if max(self.measure_every, default=0) > self.steps:
                raise InputError(
                    f"measure_every: step {max(self.measure_every)} is past the last, "
                    f"{self.steps}; take more steps"
                )

    @property
    def record_steps(self) -> NDArray[np.int64]:
        """The steps at which it is measured."""
        if self.measure_every == "doubling":
            steps = 2 ** np.arange(self.steps.bit_length())
        elif isinstance(self.measure_every, int):
            steps = np.arange(0, self.steps, self.measure_every)
        else:
            steps = np.asarray(self.measure_every, dtype=np.int64)
        return np.unique(np.concatenate([[0], steps, [self.steps]]).astype(np.int64))

    def record_bytes(self, runs: int) -> float:
        """Of the maps of so many runs."""
        model = self.model
        if isinstance(self.measure_every, int):
            records = 2 + self.steps // self.measure_every  # may be too many to list
        else:
            records = self.record_steps.size
        maps = model.layers * model.heads * self.probes * model.context**2
        return 4.0 * runs * records * (8 + maps)

    def windows(self, available: int) -> int:
        """How many windows of the validation streams are measured each time."""
        if self.validation_tokens is None:
            return available
        asked = self.validation_tokens // (EVALUATION_STREAMS * self.model.context)
        return min(max(asked, 1), available)

    # -- identity and documents -----------------------------------------------------------------

    @property
    def digest(self) -> str:
        """A content hash, of the text too: equal for equal trainings."""
        content = {**self._settings(defaults=True), "corpus": self.text.digest}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def spec(self) -> dict[str, Any]:
        """What a result says that it was made from, with every default written out; `of` reads it.

        The text is named here, and known again by its digest.
        """
        text = self.text
        source = text.source or Source(text.name, text.tokens)
        named = plain(replace(source, digest=text.digest), defaults=True)
        return {"corpus": named, **self._settings(defaults=True)}

    def to_document(self) -> dict[str, Any]:
        """All of it as plain values, as a recipe file has them."""
        if isinstance(self.corpus, Corpus):
            raise InputError(
                f"corpus: {self.corpus.name} was made in memory, and no file can name it"
            )
        named = {"name": self.corpus.name, **plain(self.corpus)}  # type: ignore[union-attr]
        return {"corpus": named, **self._settings(defaults=False)}

    def _settings(self, *, defaults: bool) -> dict[str, Any]:
        others = (item.name for item in fields(self) if item.name not in ("corpus", "optimizer"))
        given = {name: plain(getattr(self, name), defaults=defaults) for name in others}
        return {**given, "optimizer": self.moving.to_document(defaults=defaults)}

    @classmethod
    def from_document(cls, document: Any) -> Training:
        """The training that a document describes; errors name the field and the remedy."""
        check_keys("", document, FIELD_KINDS, ())
        return cls(**{name: as_value(name, of, FIELD_KINDS[name]) for name, of in document.items()})

    @classmethod
    def of(cls, result: xr.Dataset) -> Training:
        """The training that a labelled result was made from; its text is read when it is used."""
        try:
            spec = json.loads(result.attrs["spec"])
            given = {name: spec[name] for name in FIELD_KINDS.keys() - LATER.keys()}
        except (KeyError, TypeError, json.JSONDecodeError):
            raise InputError("result: not one that train() made") from None
        later = {name: spec[name] for name in LATER.keys() & spec.keys() & FIELD_KINDS.keys()}
        return cls.from_document({**given, **later})


FIELD_KINDS: dict[str, Any] = {
    "corpus": str | Source,
    "model": TransformerSpec,
    "rates": float | tuple[float, ...],
    "seeds": int | tuple[int, ...],
    "steps": int,
    "optimizer": Optimizer,
    "batch": int,
    "clip": float,
    "reset_moments": bool,
    "measure_every": MeasureEvery,
    "validation_tokens": int | None,
    "probes": int,
    "precision": Precision,
}
# Fields that came after results had been kept, and what was meant without them.
LATER: dict[str, Any] = {"reset_moments": False, "model.activation": "relu"}


class TrainingFields(TypedDict, total=False):
    """The fields of a `Training` past its corpus and model."""

    rates: float | Sequence[float]
    seeds: int | Sequence[int]
    steps: int
    optimizer: str | Optimizer
    batch: int
    clip: float
    reset_moments: bool
    measure_every: int | Sequence[int] | Literal["doubling"]
    validation_tokens: int | None
    probes: int
    precision: Precision


def as_training(
    given: Training | Corpus | Source | str,
    model: TransformerSpec | None = None,
    **fields: Unpack[TrainingFields],
) -> Training:
    """A training, or what makes one: its corpus, model and any of its fields.

    With a training, the fields given replace its own.
    """
    chosen: dict[str, Any] = {**fields} if model is None else {"model": model, **fields}
    return replace(given, **chosen) if isinstance(given, Training) else Training(given, **chosen)


def _numbered(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Seeds by how many or by which."""
    if isinstance(seeds, int) and seeds < 1:
        raise InputError(f"seeds: expected at least 1, got {seeds}")
    if isinstance(seeds, int):
        require_memory("seeds", RUN_BYTES * seeds)
    return tuple(range(seeds)) if isinstance(seeds, int) else tuple(int(seed) for seed in seeds)
