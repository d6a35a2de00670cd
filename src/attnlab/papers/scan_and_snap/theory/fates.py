"""Which tokens gain attention (Theorem 2, Corollary 2), and how they compete (Theorem 3).

There is no clock: fates are signs, and the functions of Theorem 3 take logits z (at any time) and
z0 (at the start), so that they serve Eq. 10's flow, where they are exact, and any simulation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas import Setting
from attnlab.formulas.checks import FloatArray, IntArray, unwrap
from attnlab.formulas.setting import SettingLike
from attnlab.formulas.tokens import by_query, log_scores, token_roles, unit_attention

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


class GrowthBounds(NamedTuple):
    """Eq. 12: bounds on chi of the dominant token.

    lower: exp(2 f^2 B_n).
    upper: exp(2 B_n).
    """

    lower: FloatArray
    upper: FloatArray


def relative_gain(
    setting: SettingLike, z: ArrayLike | None = None, *, reference: ArrayLike
) -> FloatArray:
    """r_{l/l'|n} = (c~_l / c~_l')^2 - 1 (Theorem 3) of every token l.

    For distinct tokens of class n Eq. 11 predicts r(z) = r(z0) growth_factor(z, z0), each token by
    itself. Returns r, (..., K, L); nan where class n has no l'.

    Parameters
    ----------
    reference : array_like
        l': one token for all classes, or one for each.

    Examples
    --------
    >>> relative_gain([[0.4, 0.2, 0.4]], reference=1)
    array([[3., 0., 3.]])
    """
    score = log_scores(setting, z)
    K = score.shape[-2]
    base = score[..., np.arange(K), np.broadcast_to(reference, (K,))]
    with np.errstate(over="ignore", invalid="ignore"):
        gain = np.expm1(2.0 * (score - base[..., None]))
    return np.asarray(np.where(np.isneginf(base)[..., None], np.nan, gain))


def growth_factor(z: ArrayLike, z0: ArrayLike = 0.0) -> FloatArray:
    """chi_l = exp(2 (z_l - z_l(0))) of Eq. 11, elementwise.

    >>> growth_factor([0.0, 0.5]).round(3)
    array([1.   , 2.718])
    """
    return unwrap(np.exp(2.0 * (np.asarray(z, float) - np.asarray(z0, float))))


def growth_bounds(growth_bound: ArrayLike, share: ArrayLike) -> GrowthBounds:
    """exp(2 f^2 B_n) <= chi_{l0} <= exp(2 B_n) (Eq. 12) for class n's dominant token l0.

    Needs r_{l0/l}(0) > 0 for the other distinct tokens l, and common tokens that lose.

    Parameters
    ----------
    growth_bound : array_like
        B_n at the time in question. It must carry the class weight (`attention_flow` returns it
        so), because dz = eta_Z weight f^2 xi dt does.
    share : array_like
        f_{n l0}(0)^2.

    Examples
    --------
    >>> [float(bound.round(3)) for bound in growth_bounds(0.5, 0.2)]
    [1.221, 2.718]
    """
    B = np.asarray(growth_bound, dtype=np.float64)
    return GrowthBounds(unwrap(np.exp(2.0 * np.asarray(share, float) * B)), unwrap(np.exp(2.0 * B)))


def distinct_growth(growth: ArrayLike, gain: ArrayLike) -> FloatArray:
    """chi of a distinct token l from that of another, l0, of the same class (Eq. 110).

    1/chi_l = 1 - (1 - 1/chi_{l0}) / (1 + gain). So as l0 grows without limit every other distinct
    token stops at chi_l = (1 + gain)/gain.

    Parameters
    ----------
    growth : array_like
        chi_{l0}.
    gain : array_like
        r_{l0/l|n}(0).

    Examples
    --------
    >>> distinct_growth([1.0, 10.0, 1e9], 1.0).round(3)
    array([1.   , 1.818, 2.   ])
    """
    lost = -np.expm1(-np.log(np.asarray(growth, dtype=np.float64)))
    return unwrap(1.0 / (1.0 - lost / (1.0 + np.asarray(gain, dtype=np.float64))))


def gain_invariant(setting: SettingLike, z: ArrayLike | None = None) -> FloatArray:
    """1 / c~_{l|n}^2, whose differences within G_DT(n) are constants of motion.

    That is Eq. 110 without its normalisation, and what makes Eq. 11 exact under Eq. 10. It does not
    depend on the class weight, gamma or beta. Returns (..., K, L); infinite where P is 0.

    >>> gain_invariant([[0.5, 0.25, 0.25]]).round(2)
    array([[ 4., 16., 16.]])
    """
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(-2.0 * log_scores(setting, z)))
