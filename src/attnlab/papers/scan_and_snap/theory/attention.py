"""Attention: Eq. 10 and its solution, which tokens gain, and how they compete.

1. The dynamics of the attention logits Z (Eq. 10, Lemma 4). Two clocks appear. t counts batch-1
   optimiser steps, of which each class gets 1/K. tau is the reduced time Gamma(t) = eta_Z *
   integral of gamma (`reduced_time`, Eq. 128, closed form): in tau, Eq. 10 is autonomous, since E
   and beta depend on z alone when theta = sigma = 0. So the path of attention does not depend on
   the learning rates; they only set how fast it is travelled.
2. Which tokens gain attention (Theorem 2, Corollary 2), and how they compete (Theorem 3). There is
   no clock: fates are signs, and the functions of Theorem 3 take logits z (at any time) and z0 (at
   the start), so that they serve Eq. 10's flow, where they are exact, and any simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas import Setting, solve
from attnlab.formulas.checks import FloatArray, IntArray, at_least, unwrap
from attnlab.formulas.setting import SettingLike
from attnlab.formulas.tokens import by_query, log_scores, token_roles, unit_attention, unit_rows

from .decoder import beta, gram
from .growth import gamma, reduced_time


@dataclass(frozen=True)
class AttentionFlow:
    """A solution of Eq. 10 at the times asked for, whose shape leads every array.

    reduced_time: tau.
    logits: z, (..., Q, L).
    growth_bound: B_n = eta_Z * integral of the class weight times xi_n (Theorem 3), (..., K).
    """

    reduced_time: FloatArray
    logits: FloatArray
    growth_bound: FloatArray


def class_velocity(f: FloatArray, b: FloatArray) -> FloatArray:
    """Class n's term of Eq. 97 over eta_Z gamma, for given beta: (..., K, L)."""
    xi = (b * gram(f)).sum(-1)
    return np.asarray(f * (xi[..., None] * f - b @ f))


def attention_velocity(
    setting: SettingLike, z: ArrayLike, *, weight: ArrayLike | None = None, form: str = "corrected"
) -> FloatArray:
    """dz/dtau of Eq. 10, that is dz/dt over eta_Z gamma(t), in the shape of z.

    >>> attention_velocity(Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], M=100), [0, 0, 0]).round(4)
    array([[-0.1718,  0.0859,  0.0859]])
    """
    s = Setting.of(setting)
    z = np.atleast_2d(np.asarray(z, dtype=np.float64))
    f = unit_attention(s, z)
    terms = class_velocity(f, beta(gram(f), M=s.vocab_size, form=form))
    return by_query(s.weights(weight)[:, None] * terms, s.rows, z.shape[-2])


def attention_path(
    setting: SettingLike,
    tau: ArrayLike,
    *,
    z0: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    form: str = "corrected",
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> AttentionFlow:
    """Solve Eq. 10 in the reduced time tau from z(0) = z0.

    E and beta are recomputed from f(z) at each evaluation, and B_n is integrated along. Only logits
    that some class of the query can see are integrated; the others keep z0.

    Parameters
    ----------
    tau : array_like
        A number or an array in any order, finite and >= 0.

    Examples
    --------
    >>> path = attention_path(Setting([[0.5, 0.5, 0], [0.5, 0, 0.5]], M=100), [0.0, 1.0, 10.0])
    >>> path.logits[:, 0].round(3)
    array([[ 0.   ,  0.   ,  0.   ],
           [-0.141,  0.071,  0.071],
           [-0.569,  0.285,  0.285]])
    """
    tau = at_least("tau", tau, 0.0)
    if not np.all(np.isfinite(tau)):
        raise InputError("tau must be finite: attention keeps moving for ever, ever more slowly")
    s = Setting.of(setting)
    share = s.weights(weight)
    path = _follow(s, tau, lambda _: share, z0=z0, form=form, rtol=rtol, atol=atol)
    return AttentionFlow(unwrap(tau), *path)


def _follow(
    s: Setting,
    times: FloatArray,
    share: Callable[[float], FloatArray],
    *,
    z0: ArrayLike | None,
    form: str,
    rtol: float,
    atol: float,
) -> tuple[FloatArray, FloatArray]:
    """z and B_n along Eq. 10 with class weights `share` of the time, at each of the times."""
    K, M, rows, start = s.K, s.vocab_size, s.rows, s.start(z0)
    Q = len(start)
    seen = by_query((s.P > 0).astype(np.float64), rows, Q) > 0

    def velocity(time: float, state: FloatArray) -> FloatArray:
        z = start.copy()
        z[seen] = state[:-K]
        f = unit_rows(s.log_p + z[rows])
        E = gram(f)
        b, weight = beta(E, M=M, form=form), share(time)
        zdot = by_query(weight[:, None] * class_velocity(f, b), rows, Q)
        return np.concatenate([zdot[seen], weight * (b * E).sum(-1)])

    initial = np.concatenate([start[seen], np.zeros(K)])
    states = solve(velocity, initial, times, rtol=rtol, atol=atol)
    logits = np.broadcast_to(start, (*times.shape, *start.shape)).copy()
    logits[..., seen] = states[..., :-K]
    return logits, states[..., -K:]


def attention_flow(
    setting: SettingLike,
    t: ArrayLike,
    *,
    z0: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    form: str = "corrected",
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> AttentionFlow:
    """Solve Eq. 10, dz/dt = eta_Z gamma(t) * attention_velocity(z), at steps t.

    It is `attention_path` at tau = `reduced_time`(t). The decoder is the one of Theorem 1 at every
    t; SGD trains another one (`plain_coefficients`), which moves attention less far.

    Classes that are not drawn alike (ours; the paper has them uniform) have a clock each, gamma
    with K = 1/P(n), and their weight P(n); there is no common tau, and `reduced_time` is that of
    uniform classes. With a `weight` they share the clock of uniform classes.

    >>> from attnlab.papers.scan_and_snap.classes import syn_small
    >>> flow = attention_flow(Setting(syn_small(), eta_y=1.0, eta_z=1.0), [10.0, 1000.0])
    >>> flow.logits.shape
    (2, 2, 30)
    """
    s = Setting.of(setting)
    K, M, (eta_y, eta_z) = s.K, s.vocab_size, s.rates
    tau = reduced_time(t, K=K, M=M, eta_y=eta_y, eta_z=eta_z)
    how: Any = {"z0": z0, "form": form, "rtol": rtol, "atol": atol}
    if weight is not None or np.allclose(s.share, 1.0 / K, rtol=1e-9, atol=0.0):
        return attention_path(s, tau, weight=1.0 / K if weight is None else weight, **how)
    p = at_least("prior", s.share, 0.0, strict=True)

    def share(time: float) -> FloatArray:
        return np.asarray(eta_z * p * gamma(time, K=1.0 / p, M=M, eta_y=eta_y))

    return AttentionFlow(tau, *_follow(s, at_least("t", t, 0.0), share, **how))


EQUALS = 1e-9  # what counts as equal probabilities


class Corollary2(NamedTuple):
    """Measures of the hypotheses of Corollary 2, besides Assumption 2, in its own order.

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
    def holds(self) -> bool:
        """True if all four hold, so that every common token loses attention."""
        matched = max(self.asymmetry, self.spread) <= EQUALS
        return self.queries == 1 and matched and self.start == 0


def token_fates(setting: SettingLike) -> IntArray:
    """Return what Theorem 2 says of each query and token.

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
    """Return the hypotheses (1) to (4) of Corollary 2, as these classes have them.

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
    """Return the first move of each token under sign descent.

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
