"""How distinct tokens of one class compete: relative gain and growth factor (Theorem 3).

There is no clock: the functions take logits z (at any time) and z0 (at the start), so that they
serve Eq. 10's flow, where they are exact, and any simulation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlab.formulas.checks import FloatArray, unwrap
from attnlab.formulas.setting import SettingLike
from attnlab.formulas.tokens import log_scores


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
