"""Sequences: next-token prediction on sequences that are drawn from sequence classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from attnlab.defaults import LENGTH, MOMENTUM
from attnlab.files.documents import shown
from attnlab.files.errors import InputError, refuse_if, require_whole
from attnlab.tasks.base import Batch, Task
from attnlab.tasks.classes.class_files import classes_document, classes_from_document
from attnlab.tasks.classes.classes import SequenceClasses
from attnlab.tasks.classes.presets import classes_from, is_preset

if TYPE_CHECKING:
    import jax

Classes = SequenceClasses | str | Sequence[SequenceClasses | str]
LONGEST = 2**31 - 1  # tokens are counted in 32 bits


def read_sets(where: str, document: Any) -> Any:
    """Return the classes that a document names or lists, one set or several."""
    if isinstance(document, SequenceClasses):  # a sweep has made them
        return document
    if isinstance(document, list):
        return tuple(read_sets(f"{where}[{i}]", of) for i, of in enumerate(document))
    if isinstance(document, str):
        return classes_from(document)
    if not isinstance(document, dict):
        raise InputError(
            f"{where}: expected the name of classes, or a mapping with vocabulary and classes, got "
            f"{shown(document)}"
        )
    try:
        return classes_from_document(document)
    except InputError as error:
        raise InputError(f"{where}.{error}") from error


def sets_document(classes: Any) -> Any:
    """Return classes as a file names them: by their preset, or entry by entry."""
    if isinstance(classes, tuple):
        return [sets_document(of) for of in classes]
    try:
        if is_preset(classes.origin) and classes_from(classes.origin) == classes:
            return classes.origin
    except InputError:
        pass  # made from a preset and changed: "syn-small with prior ..."
    return classes_document(classes)


class Mixture(NamedTuple):
    """Inputs for T to infinity: P(l|m,n) of each class in place of its tokens, and the query m."""

    probs: Any  # B M
    query: Any  # B


@dataclass(frozen=True)
class Sequences(Task):
    """Sequences of T tokens: T - 1 contextual tokens, i.i.d. from P(l|m,n), then the query m.

    The target is the next token n. Inputs are tokens (B, T), the query last; for T to infinity a
    sequence is its class, and inputs are a `Mixture`.

    Parameters
    ----------
    classes : SequenceClasses, str or sequence of them
        The classes, or the name of a preset ("syn-medium:num_last=3") or file. Several sets of the
        same sizes and queries, as a list, run together and have a dim `setting`.
    length : int or inf, optional
        T, query included.
    training_set : int, optional
        Sequences that each seed draws once and then trains on; by default all are new. Batches come
        from it uniformly with replacement, and `Population()` takes all of it.
    lump : bool, optional
        Let exchangeable tokens share one entry; exact, and off only to check that it is.
    """

    momentum: ClassVar[float] = MOMENTUM
    learner: ClassVar[str] = "attnlab.simulation.exact.learner:learner_of"
    default_model: ClassVar[str] = "attnlab.models.sequence:Pairwise"

    classes: Any = field(metadata={"read": read_sets, "write": sets_document})
    length: Any = field(default=LENGTH, metadata={"kind": int | Literal["inf"]})
    training_set: int | None = None
    lump: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", _resolved(self.classes))
        if self.length in ("inf", math.inf):
            object.__setattr__(self, "length", math.inf)
            if self.training_set is not None:
                raise InputError("training_set: its sequences have a length; give `length` too")
            return
        require_whole("length", self.length, 2)
        refuse_if(self.length > LONGEST, "length", f"at most {LONGEST:,} tokens", self.length)
        if self.training_set is not None:
            require_whole("training_set", self.training_set, 1)

    @property
    def sets(self) -> tuple[SequenceClasses, ...]:
        """The sets of classes, one or several."""
        return self.classes if isinstance(self.classes, tuple) else (self.classes,)

    @property
    def vocab_size(self) -> int:  # type: ignore[override]
        """M, the number of tokens."""
        return self.sets[0].vocab_size

    @property
    def infinite(self) -> bool:
        """True for T to infinity."""
        return math.isinf(self.length)

    @property
    def distances(self) -> int:
        """T - 1, the contextual tokens of a sequence; 0 for T to infinity."""
        return 0 if self.infinite else int(self.length) - 1

    def to_document(self, *, defaults: bool = False) -> dict[str, Any]:
        """Return the settings; with `defaults` classes by origin and digest, as in a result."""
        found = super().to_document(defaults=defaults)
        if self.infinite:
            found["length"] = "inf"
        if defaults:
            named = [{"origin": of.origin, "digest": of.digest} for of in self.sets]
            found["classes"] = named if isinstance(self.classes, tuple) else named[0]
        return found

    def tables(self) -> list[dict[str, Any]]:
        """Return P (K, M), query, next token and prior of each set."""
        return [
            {
                "probs": of.probs,
                "query": of.query.astype(np.int32),
                "next_token": of.next_token.astype(np.int32),
                "prior": of.prior,
            }
            for of in self.sets
        ]

    def draw(self, key: jax.Array, tables: Any = None) -> Any:
        """Draw the training set, where there is one."""
        if self.training_set is None:
            return {}
        tokens, target = self._sequences(tables, key, self.training_set)
        return {"tokens": tokens, "target": target}

    def batch(self, data: Any, key: jax.Array, step: jax.Array, size: int) -> Batch:
        """Draw sequences, or classes for T to infinity, by the prior or from the training set."""
        import jax

        if self.infinite:
            chosen = jax.random.categorical(key, jax.numpy.log(data["prior"]), shape=(size,))
            mixture = Mixture(data["probs"][chosen], data["query"][chosen])
            return Batch(mixture, data["next_token"][chosen])
        if self.training_set is None:
            return Batch(*self._sequences(data, key, size))
        chosen = jax.random.randint(key, (size,), 0, self.training_set)
        return Batch(data["tokens"][chosen], data["target"][chosen])

    def population(self, data: Any) -> Batch | None:
        """Return all classes with their prior (T to infinity), or the training set."""
        if self.infinite:
            mixture = Mixture(data["probs"], data["query"])
            return Batch(mixture, data["next_token"], weight=data["prior"])
        if self.training_set is not None:
            return Batch(data["tokens"], data["target"])
        return None

    def _sequences(self, data: Any, key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
        import jax
        import jax.numpy as jnp

        of_class, of_tokens = jax.random.split(key)
        chosen = jax.random.categorical(of_class, jnp.log(data["prior"]), shape=(size,))
        logs = jnp.log(data["probs"])[chosen]  # B M
        tokens = jax.random.categorical(of_tokens, logs[:, None], shape=(size, self.distances))
        tokens = jnp.concatenate([tokens, data["query"][chosen][:, None]], axis=1)
        return tokens, data["next_token"][chosen]


def _resolved(classes: Any) -> SequenceClasses | tuple[SequenceClasses, ...]:
    """Return the sets of classes, one or several, which must fit into one dataset."""
    if isinstance(classes, SequenceClasses):
        return classes
    if isinstance(classes, str):
        return classes_from(classes)
    if not isinstance(classes, Sequence):
        raise InputError(
            f"classes: expected SequenceClasses, the name of a preset or file, or a list of them, "
            f"got {classes!r}"
        )
    sets = tuple(classes_from(of) if isinstance(of, str) else of for of in classes)
    kinds = {(of.vocab_size, len(of), tuple(of.queries.tolist()), of.names is None) for of in sets}
    if len(kinds) != 1:
        raise InputError(
            "classes: sets that run together have the same numbers of tokens and of classes, the "
            "same queries, and names for all or for none"
        )
    return sets
