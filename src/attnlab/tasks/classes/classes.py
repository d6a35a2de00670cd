"""SequenceClasses: the data of sequence-class models (Section 3.2 of "Scan and Snap")."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError, check_name, refuse_if
from attnlab.files.memory import require_memory

# Rounding of a normalised row of a million float64 entries stays far below this.
SUM_TOLERANCE = 1e-6


class Entries(NamedTuple):
    """Non-zeros of P: values[i] = P(tokens[i] | class classes[i])."""

    classes: NDArray[Any]
    tokens: NDArray[Any]
    values: NDArray[np.float64]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class SequenceClasses:
    """A set of sequence classes s_{m,n} = (P(l|m,n), m, n) over a vocabulary of M tokens.

    A sequence of class k ends with the query token ``query[k]`` (m), is followed by
    ``next_token[k]`` (n), and its contextual tokens are drawn i.i.d. from row k of P.
    Rows are kept sparse: ``tokens[offsets[k]:offsets[k+1]]`` is the support of class k, in
    increasing order, and ``values`` holds the probabilities.

    Several classes may share a query, and several queries a next token. The paper's case, in
    which the next token determines the query (m = psi(n)), is a property that can be asked:
    see :attr:`has_psi`.

    Parameters
    ----------
    probs : array_like or sequence of mappings
        P(l|m,n), either an array (sequence_class, token) or, for large vocabularies, one mapping
        {token: probability} per class (then give `vocab_size`).
    query, next_token : array_like
        Token ids m and n, one per class.
    prior : array_like, optional
        Probability of each class; uniform when absent.
    vocab_size : int, optional
        M, where probs are mappings.
    names : sequence of str, optional
        Token names, one per token of the vocabulary.
    origin : str, optional
        Where the classes come from, kept as provenance.

    Examples
    --------
    >>> from attnlab import SequenceClasses
    >>> rows = [{0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}]
    >>> classes = SequenceClasses(rows, query=[3, 3], next_token=[4, 5], vocab_size=6)
    >>> classes.common_tokens(), classes.distinct_tokens(1)
    (array([0]), array([2]))
    """

    vocab_size: int
    query: NDArray[np.int64]
    next_token: NDArray[np.int64]
    prior: NDArray[np.float64]
    tokens: NDArray[np.int64]
    values: NDArray[np.float64]
    offsets: NDArray[np.int64]
    names: tuple[str, ...] | None
    origin: str = field(compare=False)

    def __init__(
        self,
        probs: ArrayLike | Sequence[Mapping[int, float]] | Entries,
        query: ArrayLike,
        next_token: ArrayLike,
        prior: ArrayLike | None = None,
        *,
        vocab_size: int | None = None,
        names: Sequence[str] | None = None,
        origin: str = "custom",
    ) -> None:
        """Validate and store sequence classes."""
        entries, num_classes, M = _entries_of(probs, vocab_size, np.asarray(query).size)
        if num_classes < 1:
            raise InputError("probs: at least one sequence class is needed")
        refuse_if(int(M) != M or M < 1, "vocab_size", "a positive whole number", M)
        M = int(M)
        require_memory("vocab_size", 8 * M)  # a number for each token
        classes, tokens, values = entries
        if not classes.shape == tokens.shape == values.shape or values.ndim != 1:
            raise InputError("probs: classes, tokens and values must be lists of one length")
        _require_in_range("probs: class", classes, num_classes)
        _require_in_range("probs: token", tokens, M)
        query = _ids("query", query, num_classes, M)
        next_token = _ids("next_token", next_token, num_classes, M)
        _refuse_repeated_pairs(query, next_token)
        classes, tokens, values = _sorted_entries(entries)
        fields = dict(
            vocab_size=M,
            query=query,
            next_token=next_token,
            tokens=tokens.astype(np.int64),
            values=values,
            offsets=_checked_offsets(classes, values, num_classes),
            prior=_checked_prior(prior, num_classes),
            names=None if names is None else _checked_names(names, M),
            origin=origin,
        )
        for name, value in fields.items():
            frozen = _frozen(value) if isinstance(value, np.ndarray) else value
            object.__setattr__(self, name, frozen)

    @classmethod
    def from_entries(
        cls, classes: ArrayLike, tokens: ArrayLike, values: ArrayLike, **others: Any
    ) -> SequenceClasses:
        """Make classes from the non-zeros of P: values[i] = P(tokens[i] | class classes[i]).

        `others` are the other arguments of `SequenceClasses`; `vocab_size` is one of them.
        """
        values = np.asarray(values, dtype=np.float64)
        return cls(Entries(np.asarray(classes), np.asarray(tokens), values), **others)

    # -- size and identity ------------------------------------------------------------------

    def __len__(self) -> int:
        return self.query.size

    @property
    def num_classes(self) -> int:
        """K, the number of sequence classes."""
        return self.query.size

    @property
    def num_nonzeros(self) -> int:
        """The number of non-zero entries of P."""
        return self.values.size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SequenceClasses):
            return NotImplemented
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        roles = self.roles()
        return (
            f"SequenceClasses({self.origin}: {self.num_classes} classes, "
            f"{self.queries.size} queries, vocabulary {self.vocab_size}, "
            f"{np.count_nonzero(roles == COMMON)} common and "
            f"{np.count_nonzero(roles == DISTINCT)} distinct tokens)"
        )

    @cached_property
    def digest(self) -> str:
        """A content hash of everything that changes a result (names and origin do not)."""
        sha = hashlib.sha256(str(self.vocab_size).encode())
        for name in ("query", "next_token", "prior", "tokens", "values", "offsets"):
            sha.update(np.ascontiguousarray(getattr(self, name)).tobytes())
        return sha.hexdigest()

    def with_prior(self, prior: ArrayLike) -> SequenceClasses:
        """Return the same classes with another probability for each."""
        given = ", ".join(f"{p:g}" for p in np.ravel(prior))
        return self._with(prior=prior, origin=f"{self.origin} with prior {given}")

    def with_unused(self, count: int) -> SequenceClasses:
        """Return the same classes with `count` more tokens that never occur and are never next.

        P(l|m,n) stays as it is; what changes is how many outputs the decoder chooses from.
        """
        origin = f"{self.origin} and {count} unused outputs"
        return self._with(vocab_size=self.vocab_size + count, names=None, origin=origin)

    def with_origin(self, origin: str) -> SequenceClasses:
        """Return the same classes with another origin."""
        made = copy(self)
        object.__setattr__(made, "origin", origin)
        return made

    def _with(self, **changes: Any) -> SequenceClasses:
        kept = ("query", "next_token", "prior", "vocab_size", "names")
        entries = Entries(self.class_of_entry, self.tokens, self.values)
        return SequenceClasses(entries, **{name: getattr(self, name) for name in kept} | changes)

    # -- P(l|m,n) -----------------------------------------------------------------------------

    @property
    def probs(self) -> NDArray[np.float64]:
        """P(l|m,n) as a dense array (sequence_class, token), made on each call."""
        dense = np.zeros((self.num_classes, self.vocab_size))
        dense[self.class_of_entry, self.tokens] = self.values
        return dense

    @property
    def class_of_entry(self) -> NDArray[np.int64]:
        """The class of each non-zero in `tokens` and `values`."""
        return np.repeat(np.arange(self.num_classes), np.diff(self.offsets))

    @property
    def slot_of_entry(self) -> NDArray[np.int64]:
        """The position of each non-zero in the support of its class."""
        return np.arange(self.num_nonzeros) - np.repeat(self.offsets[:-1], np.diff(self.offsets))

    def support(self, sequence_class: int) -> NDArray[np.int64]:
        """supp(m, n): the tokens that class `sequence_class` can draw."""
        return self.tokens[self.offsets[sequence_class] : self.offsets[sequence_class + 1]]

    def probabilities(self, sequence_class: int) -> NDArray[np.float64]:
        """P(l|m,n) on the support of one class, in the order of :meth:`support`."""
        return self.values[self.offsets[sequence_class] : self.offsets[sequence_class + 1]]

    def overlap(self, first: int, second: int) -> NDArray[np.int64]:
        """The tokens that two classes share; the classes overlap when there is one."""
        return np.intersect1d(self.support(first), self.support(second), assume_unique=True)

    # -- queries ------------------------------------------------------------------------------

    @cached_property
    def queries(self) -> NDArray[np.int64]:
        """The query tokens in use, in increasing order: the rows of Z that exist."""
        return _frozen(np.unique(self.query))

    @cached_property
    def query_index(self) -> NDArray[np.int64]:
        """The position of each class's query in :attr:`queries`."""
        return _frozen(np.searchsorted(self.queries, self.query))

    @property
    def has_psi(self) -> bool:
        """True if the next token determines the query (the paper's m = psi(n))."""
        return np.unique(self.next_token).size == self.num_classes

    def require_psi(self, result: str) -> None:
        """Raise when `result` needs the paper's case m = psi(n) and these classes lack it."""
        if not self.has_psi:
            raise InputError(
                f"next_token: {result} needs each next token to belong to one class "
                "(m = psi(n)); here one is shared by several queries"
            )

    # -- roles --------------------------------------------------------------------------------

    @cached_property
    def in_play(self) -> NDArray[np.int64]:
        """The contextual tokens: those that some class can draw, in increasing order."""
        return _frozen(np.unique(self.tokens))

    def roles(self) -> NDArray[np.int8]:
        """COMMON, DISTINCT or ABSENT for each token.

        A token is distinct when exactly one class draws it, common when several do (Section 3.2).
        """
        omega = np.bincount(self.tokens, minlength=self.vocab_size)
        return np.minimum(omega, 2).astype(np.int8)

    def common_tokens(self) -> NDArray[np.int64]:
        """G_CT: tokens of several classes."""
        return np.flatnonzero(self.roles() == COMMON)

    def distinct_tokens(self, sequence_class: int) -> NDArray[np.int64]:
        """G_DT(n): the tokens that only this class draws."""
        support = self.support(sequence_class)
        return support[self.roles()[support] == DISTINCT]

    # -- attention ----------------------------------------------------------------------------

    def attention_entries(self, attention_logits: ArrayLike | None = None) -> NDArray[np.float64]:
        """c_{l|m,n} (Eq. 5) on the non-zeros of P, at logits z of shape (query, token)."""
        log_mass = np.log(self.values)
        if attention_logits is not None:
            z = np.asarray(attention_logits, dtype=np.float64)
            expected = (self.queries.size, self.vocab_size)
            if z.shape != expected:
                raise InputError(
                    f"attention_logits: expected shape {expected} (query, token), got {z.shape}"
                )
            log_mass = log_mass + z[self.query_index[self.class_of_entry], self.tokens]
        starts, lengths = self.offsets[:-1], np.diff(self.offsets)
        mass = np.exp(log_mass - np.repeat(np.maximum.reduceat(log_mass, starts), lengths))
        return mass / np.repeat(np.add.reduceat(mass, starts), lengths)

    def token_name(self, token: int) -> str:
        """The name of a token, or its id as text."""
        return str(token) if self.names is None else self.names[token]


ABSENT, DISTINCT, COMMON = np.int8(0), np.int8(1), np.int8(2)


def _entries_of(
    probs: Any, vocab_size: int | None, queries: int
) -> tuple[Entries, int, int | float]:
    """Return the non-zeros of P, the number of classes, and the size of the vocabulary."""
    mappings = isinstance(probs, Sequence) and all(isinstance(row, Mapping) for row in probs)
    if (isinstance(probs, Entries) or (mappings and len(probs))) and vocab_size is None:
        raise InputError("vocab_size: needed when probs is a list of mappings")
    if isinstance(probs, Entries):
        return probs, queries, vocab_size  # type: ignore[return-value]
    if mappings and len(probs):
        rows = [sorted(row.items()) for row in probs]
        classes = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        tokens = np.array([t for row in rows for t, _ in row])
        values = np.array([p for row in rows for _, p in row], dtype=np.float64)
        return Entries(classes, tokens, values), len(rows), vocab_size  # type: ignore[return-value]
    dense = np.asarray(probs, dtype=np.float64)
    if dense.ndim != 2:
        raise InputError(f"probs: expected an array (sequence_class, token), got {dense.ndim} dims")
    num_classes, M = dense.shape
    if vocab_size not in (None, M):
        raise InputError(f"vocab_size: {vocab_size} does not match the {M} columns of probs")
    classes, tokens = np.nonzero(dense)  # keeps NaN and negative entries for the checks
    return Entries(classes, tokens, dense[classes, tokens]), num_classes, M


def _sorted_entries(entries: Entries) -> Entries:
    """Return the positive entries by class and token."""
    classes, tokens, values = entries
    if not np.all(np.isfinite(values)):
        raise InputError("probs: every probability must be finite")
    if np.any(values < 0):
        raise InputError(f"probs: class {classes[values < 0][0]} has a negative probability")
    keep = np.flatnonzero(values > 0)
    order = keep[np.lexsort((tokens[keep], classes[keep]))]
    classes, tokens, values = classes[order], tokens[order], values[order]
    if np.any((np.diff(classes) == 0) & (np.diff(tokens) == 0)):
        raise InputError("probs: a token is listed twice for one class")
    return Entries(classes, tokens, values)


def _checked_offsets(
    classes: NDArray[Any], values: NDArray[np.float64], num_classes: int
) -> NDArray[np.int64]:
    """Return where the entries of each class begin, and the end; each class must sum to 1."""
    offsets = np.searchsorted(classes, np.arange(num_classes + 1))
    if np.any(np.diff(offsets) == 0):
        k = int(np.argmin(np.diff(offsets)))
        raise InputError(f"probs: class {k} has empty support; give it at least one token")
    sums = np.add.reduceat(values, offsets[:-1])
    if np.any(np.abs(sums - 1) > SUM_TOLERANCE):
        k = int(np.argmax(np.abs(sums - 1)))
        raise InputError(
            f"probs: class {k} sums to {sums[k]:.9g}; each class must sum to 1 "
            "(divide its row by that sum)"
        )
    return offsets.astype(np.int64)


def _checked_prior(given: ArrayLike | None, num_classes: int) -> NDArray[np.float64]:
    # np.array copies: the caller's array stays its own
    prior = np.array(np.full(num_classes, 1.0 / num_classes) if given is None else given, float)
    if prior.shape != (num_classes,):
        raise InputError(f"prior: expected {num_classes} entries, got shape {prior.shape}")
    if not np.all(np.isfinite(prior)) or np.any(prior < 0):
        raise InputError("prior: entries must be finite and non-negative")
    if abs(prior.sum() - 1) > SUM_TOLERANCE:
        raise InputError(f"prior: sums to {prior.sum():.9g}; it must sum to 1")
    return prior


def _checked_names(given: Sequence[str], vocab_size: int) -> tuple[str, ...]:
    names = tuple(str(name) for name in given)
    refuse_if(len(names) != vocab_size, "names", f"{vocab_size} token names", len(names))
    for i, name in enumerate(names):
        check_name(f"names[{i}]", name)
    if len(set(names)) != vocab_size:
        raise InputError("names: two tokens have the same name")
    return names


def _ids(
    field_name: str, values: ArrayLike, num_classes: int, vocab_size: int
) -> NDArray[np.int64]:
    ids = np.asarray(values)
    if ids.shape != (num_classes,):
        raise InputError(
            f"{field_name}: expected one token id per class ({num_classes}), got shape {ids.shape}"
        )
    _require_in_range(f"{field_name}: token", ids, vocab_size)
    return ids.astype(np.int64)


def _require_in_range(what: str, ids: NDArray[Any], size: int) -> None:
    if ids.size and not np.issubdtype(ids.dtype, np.integer):
        raise InputError(f"{what} ids must be integers, got {ids.dtype}")
    outside = (ids < 0) | (ids >= size)
    if np.any(outside):
        raise InputError(f"{what} id {int(ids[outside][0])} is outside 0..{size - 1}")


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _refuse_repeated_pairs(query: NDArray[np.int64], next_token: NDArray[np.int64]) -> None:
    order = np.lexsort((next_token, query))
    m, n = query[order], next_token[order]
    repeated = np.flatnonzero((np.diff(m) == 0) & (np.diff(n) == 0))
    if repeated.size:
        m, n = m[repeated[0]], n[repeated[0]]
        raise InputError(
            f"query, next_token: the pair ({m}, {n}) is repeated; merge those classes into one"
        )
