"""Which tokens gain attention and which lose it (Theorem 2, Corollary 2). No clock: signs only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.formulas.setting import Setting, SettingLike
from attnlab.formulas.tokens import by_query, token_roles, unit_attention

EQUALS = 1e-9  # what counts as equal probabilities


class Corollary2(NamedTuple):
    """What the hypotheses of Corollary 2 are about, besides Assumption 2, in its own order.

    queries: how many there are.
    asymmetry: by how much the classes' distinct tokens, each class's sorted, differ in probability
        at most.
    spread: by how much a common token differs between classes at most.
    start: the largest |z(0)|.
    """

    queries: int
    asymmetry: float
    spread: float
    start: float

    @property
    def single_query(self) -> bool:
        """(1): all classes share the query."""
        return self.queries == 1

    @property
    def symmetric(self) -> bool:
        """(2): the distinct tokens of the classes match."""
        return self.asymmetry <= EQUALS

    @property
    def shared_probability(self) -> bool:
        """(3): a common token has one probability, rho_l."""
        return self.spread <= EQUALS

    @property
    def zero_start(self) -> bool:
        """(4): z(0) = 0."""
        return self.start == 0

    @property
    def holds(self) -> bool:
        """Whether all four hold, so that every common token loses attention."""
        return self.single_query and self.symmetric and self.shared_probability and self.zero_start


def token_fates(setting: SettingLike) -> IntArray:
    """What Theorem 2 says of each query and token.

    (a) a distinct token of a class that overlaps another gains. Assumption 2 forbids a class
    without overlap; there xi_n = 0 and its distinct tokens do not move, so we claim nothing. (b)
    the single common token, if there is just one, loses wherever some class that has it also has a
    distinct token. Returns +1 gains, -1 loses, 0 no claim, (Q, L).

    >>> token_fates([[0.5, 0.5, 0], [0.5, 0, 0.5]])
    array([[-1,  1,  1]])
    """
    s = Setting.of(setting)
    common, distinct = token_roles(s)
    has_common = np.asarray((s.P[:, common] > 0).any(1))
    fates = np.zeros((s.Q, s.L), dtype=np.int64)
    fates[by_query((distinct & has_common[:, None]).astype(float), s.rows, s.Q) > 0] = 1
    if common.sum() == 1:
        loses = s.rows[has_common & distinct.any(1)]
        fates[loses, np.flatnonzero(common)[0]] = -1
    return fates


def corollary_2(setting: SettingLike, *, z0: ArrayLike = 0.0) -> Corollary2:
    """The hypotheses (1) to (4) of Corollary 2, as these classes have them.

    >>> corollary_2([[0.5, 0.5, 0], [0.5, 0, 0.5]]).holds
    True
    """
    s = Setting.of(setting)
    common, distinct = token_roles(s)
    profiles = np.sort(np.where(distinct, s.P, 0.0), axis=1)
    return Corollary2(
        queries=np.unique(s.rows).size,
        asymmetry=float(np.ptp(profiles, axis=0).max()),
        spread=float(np.ptp(s.P[:, common], axis=0).max(initial=0.0)),
        start=float(np.abs(z0).max()),
    )


def sign_fates(setting: SettingLike) -> IntArray:
    """The first move of each token under sign descent.

    Not in the paper. Adam with an epsilon far below the gradient moves all entries of Y alike, so
    that g_l is one number for all tokens of a class, and diag(f) (I - f f^T) g of Eq. 4 has the
    sign of |p|^2 - P(l|n): a token gains if it is rarer than |p|^2, distinct or not. Each class has
    a query of its own, and (M - 1) f_nl exceeds the sum of f_n'l over the other classes: else the
    entry of Y at the class's own next token goes down first, and the token's move turns round.
    Returns +1 gains, -1 loses, 0 not drawn, (K, L).

    >>> sign_fates([[0.6, 0.3, 0.1, 0.0]])
    array([[-1,  1,  1,  0]])
    """
    P = Setting.of(setting).P
    gain = (P**2).sum(-1, keepdims=True) - P
    return np.asarray(np.where(P > 0, np.sign(gain), 0.0), dtype=np.int64)


def common_token_margin(setting: SettingLike, z: ArrayLike | None = None) -> FloatArray:
    """For K = 2 equally frequent classes of one query: the sign of each common token's velocity.

    f_1.f_2 - 2 f_1l f_2l / (f_1l^2 + f_2l^2). Under Eq. 10 dz_l/dt at this z is positive if and
    only if this is positive (the velocity is beta times f_1l^2 + f_2l^2 times it, up to the class
    weight). It changes as attention moves, so that its value at z = 0 decides the first move of a
    token and not where it ends. Not in the paper, where Theorem 2b covers one common token and
    Corollary 2 the symmetric case, and in both of these it is negative. Returns the margin, (L,);
    nan for tokens that are not common.

    >>> common_token_margin([[0.5, 0.5, 0], [0.5, 0, 0.5]]).round(3)
    array([-0.5,  nan,  nan])
    """
    s = Setting.of(setting)
    if s.K != 2:
        raise InputError(f"P must have exactly 2 classes for this criterion; got {s.K}")
    f1, f2 = np.moveaxis(unit_attention(s, z), -2, 0)
    rho = (f1 * f2).sum(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        margin = rho - 2.0 * f1 * f2 / (f1**2 + f2**2)
    return np.asarray(np.where(token_roles(s).common, margin, np.nan))
