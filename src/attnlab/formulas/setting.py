"""Setting: sequence classes and learning rates, which nearly every formula takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, IntArray, at_least


@runtime_checkable
class Classes(Protocol):
    """The attributes that formulas read of `attnlab.SequenceClasses`."""

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


@runtime_checkable
class HasSetting(Protocol):
    """An object that has a setting, as an `attnlab.theory.Case` does."""

    @property
    def setting(self) -> Setting: ...


@dataclass(frozen=True, init=False, eq=False)
class Setting:
    """Sequence classes and learning rates, in the symbols of the theory.

    Formulas take it first. Where they need nothing but P, an array will do in its place; where they
    need no learning rates, `SequenceClasses` will.

    Parameters
    ----------
    P : array_like or SequenceClasses
        P(l|n): a row for each class n, a column for each contextual token l, (K, L). Rows need not
        sum to one, because every formula normalises. `SequenceClasses` bring psi, M, prior and
        target with them.
    psi : array_like, optional
        The query of each class: its row of z, 0 to Q - 1, as `classes.query_index` has it. By
        default one query for all.
    M : float, optional
        Size of the vocabulary.
    prior : array_like, optional
        P(n), how often each class is drawn. By default 1/K, as the papers have it.
    target : array_like, optional
        The next token (or label) of each class, numbered from 0 without gaps. By default each class
        has its own.
    eta_y : float, optional
        eta_Y, the learning rate of the decoder; in JoMA, eta_w of the MLP.
    eta_z : float, optional
        eta_Z, the learning rate of attention.

    Examples
    --------
    >>> from attnlab.papers.scan_and_snap.classes import syn_small
    >>> setting = Setting(syn_small(), eta_y=1.0, eta_z=0.1)
    >>> setting.M, setting.psi
    (34, array([0, 1]))
    >>> Setting.of(setting, eta_z=0.2).eta_z
    0.2
    """

    P: FloatArray
    psi: IntArray | None
    M: float | None
    prior: FloatArray | None
    target: IntArray
    eta_y: float | None
    eta_z: float | None

    def __init__(
        self,
        P: ArrayLike | Classes,
        *,
        psi: ArrayLike | None = None,
        M: float | None = None,
        prior: ArrayLike | None = None,
        target: ArrayLike | None = None,
        eta_y: float | None = None,
        eta_z: float | None = None,
    ) -> None:
        if isinstance(P, Classes):
            if psi is not None:
                raise InputError("psi: leave it out with SequenceClasses, which know their queries")
            if M is not None and P.vocab_size != M:
                raise InputError(f"M: the classes have a vocabulary of {P.vocab_size}, not of {M}")
            psi, M = P.query_index, P.vocab_size
            prior = P.prior if prior is None else prior
            target = np.unique(P.next_token, return_inverse=True)[1] if target is None else target
            probs = np.asarray(P.probs[:, P.in_play], dtype=np.float64)
        else:
            probs = _probabilities(P)
        K = len(probs)
        values: dict[str, Any] = {
            "P": probs,
            "psi": None if psi is None else _rows(psi, K),
            "M": M,
            "prior": None if prior is None else _one_per_class("prior", prior, K),
            "target": np.arange(K) if target is None else np.asarray(target),
            "eta_y": eta_y,
            "eta_z": eta_z,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, given: SettingLike, **other: Any) -> Setting:
        """Return what is given as a setting, with `other` fields where some are to differ."""
        if isinstance(given, HasSetting):
            given = given.setting
        if not isinstance(given, Setting):
            return cls(given, **other)
        return replace(given, **other) if other else given

    @property
    def K(self) -> int:
        """The number of classes."""
        return len(self.P)

    @property
    def L(self) -> int:
        """The number of contextual tokens."""
        return self.P.shape[1]

    @cached_property
    def Q(self) -> int:
        """The number of queries, which psi must number without gaps."""
        if np.unique(self.rows).size <= self.rows.max():
            raise InputError(
                "psi must number the queries from 0 without gaps, as classes.query_index does; got "
                f"{self.rows.tolist()}, which may be token ids"
            )
        return int(self.rows.max()) + 1

    @cached_property
    def rows(self) -> IntArray:
        """psi, (K,): zeros where it is not given."""
        return np.zeros(self.K, dtype=np.int64) if self.psi is None else self.psi

    @cached_property
    def log_p(self) -> FloatArray:
        """ln P(l|n), (K, L): -inf where P is 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.P))

    @cached_property
    def share(self) -> FloatArray:
        """P(n), (K,): 1/K where it is not given."""
        return np.full(self.K, 1.0 / self.K) if self.prior is None else self.prior

    @cached_property
    def owner(self) -> FloatArray:
        """P(n) at the query of class n, (K, Q)."""
        return np.asarray(np.eye(self.Q)[self.rows] * self.share[:, None])

    @cached_property
    def wanted(self) -> FloatArray:
        """Targets, one-hot, (K, J)."""
        return np.asarray(np.eye(int(self.target.max()) + 1)[self.target])

    @property
    def vocab_size(self) -> float:
        """M, without which some formulas cannot do."""
        if self.M is None:
            raise InputError("M: give the size of the vocabulary, or SequenceClasses for P")
        return self.M

    @property
    def rates(self) -> tuple[float, float]:
        """eta_Y and eta_Z, without which a flow has no clock."""
        if self.eta_y is None or self.eta_z is None:
            raise InputError("eta_y, eta_z: give both learning rates, as in Setting(P, eta_y=1.0)")
        return self.eta_y, self.eta_z

    def start(self, z0: ArrayLike | None) -> FloatArray:
        """z(0) as (Q, L): zero, or what is given."""
        if z0 is None:
            return np.zeros((self.Q, self.L))
        z = np.atleast_2d(np.asarray(z0, dtype=np.float64))
        if z.ndim != 2 or len(z) <= self.rows.max() or z.shape[1] != self.L:
            raise InputError(
                f"z0 must have a row for each query, {self.rows.max() + 1} at least, and {self.L} "
                f"columns; got {z.shape}"
            )
        return z

    def weights(self, weight: ArrayLike | None) -> FloatArray:
        """The class weights of Eq. 10, (K,): P(n), or what is given."""
        if weight is None:
            return self.share
        return _one_per_class("weight", weight, self.K)


# A setting, or what makes one.
SettingLike = Setting | HasSetting | Classes | ArrayLike


def _probabilities(P: ArrayLike) -> FloatArray:
    P = np.asarray(P, dtype=np.float64)
    if P.ndim != 2:
        raise InputError(f"P must have one row per class and one column per token; got {P.shape}")
    if not np.all(np.isfinite(P)) or np.any(P < 0) or np.any(P.sum(1) <= 0):
        raise InputError("P must be finite, >= 0, and positive somewhere in each row")
    return P


def _rows(psi: ArrayLike, K: int) -> IntArray:
    rows = np.asarray(psi)
    if rows.shape != (K,) or not np.issubdtype(rows.dtype, np.integer) or np.any(rows < 0):
        raise InputError(f"psi must give one query row (an integer >= 0) per class, {K} in all")
    return rows.astype(np.int64)


def _one_per_class(field: str, value: ArrayLike, K: int) -> FloatArray:
    array = at_least(field, value, 0.0)
    if array.shape not in ((), (K,)):
        raise InputError(f"{field} must be one number or one per class ({K}); got {array.shape}")
    return np.broadcast_to(array, (K,))
