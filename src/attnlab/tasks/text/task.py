"""Text: next-token prediction on a text, read as parallel streams."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attnlab.files.errors import InputError, require_whole
from attnlab.files.recipe import plain, read_dataclass
from attnlab.tasks.base import Batch, Task
from attnlab.tasks.text.corpus import Corpus, Source

if TYPE_CHECKING:
    import jax

Part = Literal["training", "validation"]
REMEDY: dict[Part, str] = {
    "training": "longer text, a smaller batch or a shorter context",
    "validation": "longer text, a validation file or a shorter context",
}
EVALUATION_STREAMS = 10
FREQUENT_SHARE = 0.5  # of a text that its frequent words make up


def read_corpus(where: str, document: Any) -> Source:
    """Return the source that a document names, or describes field by field."""
    if isinstance(document, str):
        return Source(document)
    return read_dataclass(where, document, Source)


def corpus_document(corpus: Source | Corpus) -> dict[str, Any]:
    """Return a corpus as a file names it."""
    if isinstance(corpus, Corpus):
        raise InputError(f"corpus: {corpus.name} was made in memory, and no file can name it")
    return {"name": corpus.name, **plain(corpus)}


@dataclass(frozen=True)
class Text(Task):
    """Next-token prediction on a text, which is read when a run begins.

    The training part is cut into as many streams as a batch has sequences; a step reads the next
    `length` tokens of each, pass after pass. All runs read the same text in the same order. A
    record measures loss and attention on the validation part.

    Parameters
    ----------
    corpus : Corpus, str or Source, optional
        The text: a `Corpus`, or the name of one, as `open_corpus` takes it, or a `Source`.
    length : int, optional
        T, tokens in a training sequence.
    validation_tokens : int, optional
        Tokens of the validation part that a record measures; None for all of them.
    probes : int, optional
        Sequences of the validation part whose attention weights are recorded.
    """

    learner: ClassVar[str] = "attnlab.simulation.text:learner_of"
    default_model: ClassVar[str] = "attnlab.models.transformer:text_transformer"

    corpus: Any = field(
        default_factory=Source,
        metadata={"read": read_corpus, "write": corpus_document, "kind": Source},
    )
    length: int = 35
    validation_tokens: int | None = 3500
    probes: int = 2

    def __post_init__(self) -> None:
        corpus = Source(self.corpus) if isinstance(self.corpus, str) else self.corpus
        if isinstance(corpus, Corpus) and corpus.source is not None:
            object.__setattr__(self, "text", corpus)  # there is no need to read it again
            corpus = corpus.source
        if not isinstance(corpus, Corpus | Source):
            raise InputError(f"corpus: expected a name, a Source or a Corpus, got {corpus!r}")
        object.__setattr__(self, "corpus", corpus)
        require_whole("length", self.length, 2)
        require_whole("probes", self.probes, 1)
        if self.validation_tokens is not None:
            require_whole("validation_tokens", self.validation_tokens, 1)

    @cached_property
    def text(self) -> Corpus:
        """The corpus, read."""
        corpus: Corpus | Source = self.corpus
        return corpus if isinstance(corpus, Corpus) else corpus.open()

    @property
    def digest(self) -> str:
        """Content hash of the text."""
        return self.text.digest

    @property
    def vocab_size(self) -> int:  # type: ignore[override]
        """V, the number of tokens."""
        return self.text.vocab_size

    def to_document(self, *, defaults: bool = False) -> dict[str, Any]:
        """Return the settings; with `defaults` the text by name and digest, as in a result."""
        if not defaults:
            return super().to_document()
        text = self.text
        source = text.source or Source(text.name, text.tokens)
        others = {name: getattr(self, name) for name in ("length", "validation_tokens", "probes")}
        named = plain(replace(source, digest=text.digest), defaults=True)
        return {"name": self.called(), "corpus": named, **others}

    def streams(self, batch_size: int) -> NDArray[np.int32]:
        """Return the training part as `batch_size` parallel rows."""
        return cut_streams(self.text.train, batch_size, self.length, "training")

    def held_out(self) -> tuple[NDArray[np.int32], int]:
        """Return the validation part as parallel rows, and how many windows of it are measured."""
        held = cut_streams(self.text.validation, EVALUATION_STREAMS, self.length, "validation")
        available = window_count(held, self.length)
        if self.validation_tokens is None:
            return held, available
        asked = self.validation_tokens // (EVALUATION_STREAMS * self.length)
        return held, min(max(asked, 1), available)

    def probe_sequences(self) -> NDArray[np.int32]:
        """Return sequences (probe, position) at even distances in the validation part."""
        held = self.text.validation
        if len(held) < self.probes * self.length:
            raise InputError(
                f"probes: {self.probes} x {self.length} tokens are more than the {len(held):,} of "
                "the validation part; ask for fewer"
            )
        spacing = len(held) // self.probes
        return np.stack([held[i * spacing : i * spacing + self.length] for i in range(self.probes)])

    def frequent_words(self) -> NDArray[np.bool_]:
        """Return which words are frequent: the fewest that make up half of the training part."""
        train, V = self.text.train, self.vocab_size
        counts = np.bincount(train, minlength=V)
        order = np.argsort(-counts, kind="stable")
        before = np.cumsum(counts[order]) - counts[order]
        frequent = np.zeros(V, dtype=bool)
        frequent[order[before < FREQUENT_SHARE * train.size]] = True
        return frequent

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Batch:
        """Read the next window of all streams."""
        return Batch(*window(data["train"], step, self.length))


def cut_streams(ids: NDArray[np.int32], count: int, context: int, part: Part) -> NDArray[np.int32]:
    """Return `count` contiguous rows of equal length; what is left over at the end is dropped.

    `part` names the text in the message when it is shorter than one batch.
    """
    length = len(ids) // count
    if length < context + 1:
        raise InputError(
            f"corpus: the {part} part has {len(ids):,} tokens, fewer than one batch of {count} "
            f"streams x {context + 1} tokens ({count * (context + 1):,}); give a "
            f"{REMEDY[part]}"
        )
    return ids[: length * count].reshape(count, length)


def window_count(streams: NDArray[np.int32] | jax.Array, context: int) -> int:
    """Return the windows of a pass over the streams; each needs one token more, the last target."""
    return (streams.shape[1] - 1) // context


def window(streams: jax.Array, index: jax.Array, context: int) -> tuple[jax.Array, jax.Array]:
    """Return tokens and next tokens (streams, context) of a window; passes follow each other."""
    import jax

    first = index % window_count(streams, context) * context
    both = jax.lax.dynamic_slice_in_dim(streams, first, context + 1, axis=1)
    return both[:, :-1], both[:, 1:]
