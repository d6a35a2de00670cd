"""Checks of arguments, shared by the theory: each error names the field and what would be right."""

from __future__ import annotations

from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FORMS = ("corrected", "printed")


@runtime_checkable
class Classes(Protocol):
    """What the theory reads of `attnlab.SequenceClasses`."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def probs(self) -> FloatArray: ...
    @property
    def in_play(self) -> IntArray: ...
    @property
    def query_index(self) -> IntArray: ...
    @property
    def next_token(self) -> IntArray: ...
    @property
    def prior(self) -> FloatArray: ...


# P(l|n) as an array (K, L), or the classes that have it, of which contextual tokens count.
Contexts = ArrayLike | Classes


def is_printed(form: str) -> bool:
    """Whether `form` asks for the paper as printed; anything but the two forms is an error."""
    if form not in FORMS:
        raise InputError(f"form must be one of {', '.join(map(repr, FORMS))}; got {form!r}")
    return form == "printed"


def at_least(field: str, value: ArrayLike, low: float, *, strict: bool = False) -> FloatArray:
    """`value` as float64, refused when any entry is below `low` (or equal to it when strict)."""
    array = np.asarray(value, dtype=np.float64)
    good = array > low if strict else array >= low
    if not np.all(good):
        raise InputError(f"{field} must be {'>' if strict else '>='} {low:g}; got {value!r}")
    return array


def between(field: str, value: ArrayLike, low: float, high: float) -> FloatArray:
    """`value` as float64, refused when any entry is outside the open interval (low, high)."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all((array > low) & (array < high)):
        raise InputError(f"{field} must lie in ({low:g}, {high:g}); got {value!r}")
    return array


def unwrap(array: Any) -> FloatArray:
    """A 0-d array as a float64 scalar, any other array as it is, so that scalars give scalars."""
    return cast(FloatArray, np.asarray(array)[()])


def probabilities(P: Contexts) -> FloatArray:
    """P as a (K, L) matrix of non-negative weights in which no class is empty."""
    if isinstance(P, Classes):
        return np.asarray(P.probs[:, P.in_play], dtype=np.float64)
    P = np.asarray(P, dtype=np.float64)
    if P.ndim != 2:
        raise InputError(f"P must have one row per class and one column per token; got {P.shape}")
    if not np.all(np.isfinite(P)) or np.any(P < 0) or np.any(P.sum(1) <= 0):
        raise InputError("P must be finite, >= 0, and positive somewhere in each row")
    return P


def contexts(P: Contexts, psi: ArrayLike | None) -> tuple[FloatArray, IntArray]:
    """P as a matrix, and the query of each class as a number from 0 on; see `query_rows`."""
    if isinstance(P, Classes):
        if psi is not None:
            raise InputError("psi: leave it out with SequenceClasses, which know their queries")
        psi = P.query_index
    P = probabilities(P)
    return P, query_rows(psi, len(P))


def query_rows(psi: ArrayLike | None, K: int) -> IntArray:
    """psi as K row numbers; None means that every class shares one query."""
    if psi is None:
        return np.zeros(K, dtype=np.int64)
    rows = np.asarray(psi)
    if rows.shape != (K,) or not np.issubdtype(rows.dtype, np.integer) or np.any(rows < 0):
        raise InputError(f"psi must give one query row (an integer >= 0) per class, {K} in all")
    return rows.astype(np.int64)


def count_queries(rows: IntArray) -> int:
    """Q, where nothing but psi tells it; then its numbers must have no gaps."""
    if np.unique(rows).size <= rows.max():
        raise InputError(
            f"psi must number the queries from 0 without gaps, as classes.query_index does; got "
            f"{rows.tolist()}, which may be token ids"
        )
    return int(rows.max()) + 1


def vocabulary(P: Contexts, M: float | None) -> float:
    """The size of the vocabulary, which `SequenceClasses` know."""
    if isinstance(P, Classes):
        if M is not None and P.vocab_size != M:
            raise InputError(f"M: the classes have a vocabulary of {P.vocab_size}, not of {M}")
        return P.vocab_size
    if M is None:
        raise InputError("M: give the size of the vocabulary, or SequenceClasses for P")
    return M


def shares(P: Contexts, given: ArrayLike | None) -> ArrayLike | None:
    """How often each class is drawn: what is given, else what `SequenceClasses` have."""
    return P.prior if given is None and isinstance(P, Classes) else given


def start_logits(z0: ArrayLike | None, rows: IntArray, L: int) -> FloatArray:
    """z(0) as (Q, L): zero, or what is given."""
    if z0 is None:
        return np.zeros((count_queries(rows), L))
    z = np.atleast_2d(np.asarray(z0, dtype=np.float64))
    if z.ndim != 2 or len(z) <= rows.max() or z.shape[1] != L:
        raise InputError(
            f"z0 must have a row for each query, {rows.max() + 1} at least, and {L} columns; got "
            f"{z.shape}"
        )
    return z


def class_weights(weight: ArrayLike | None, K: int) -> FloatArray:
    """The class weight in the mean over classes, one per class: 1/K by default."""
    weight = at_least("weight", 1.0 / K if weight is None else weight, 0.0)
    if weight.shape not in ((), (K,)):
        raise InputError(f"weight must be one number or one per class ({K}); got {weight.shape}")
    return np.broadcast_to(weight, (K,))
