"""The speed control coefficient gamma and its two stages (Lemmas 8 and 9, Theorem 1b, Eq. 128).

Time t counts batch-1 optimiser steps with K classes drawn uniformly: each class is seen in 1/K of
them, so that one unit of the flow time of `h` is K steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.formulas.checks import FloatArray, at_least, is_printed, unwrap
from attnlab.papers.scan_and_snap.theory.growth import h_inverse, scaled_growth


class Peak(NamedTuple):
    """Where gamma is largest.

    t: the step.
    value: gamma there.
    """

    t: FloatArray
    value: FloatArray


class TransitionTimes(NamedTuple):
    """The steps at which one stage ends and the other begins (Lemma 9).

    t0_prime: t_0': the first stage ends.
    t0: t_0: the second begins.
    """

    t0_prime: FloatArray
    t0: FloatArray


class GammaStages(NamedTuple):
    """The rates that Lemma 9 states for gamma.

    early: up to t_0'.
    late: from t_0 on.
    """

    early: FloatArray
    late: FloatArray


def _visits(t: ArrayLike, K: ArrayLike) -> FloatArray:
    return at_least("t", t, 0.0) / at_least("K", K, 1.0)


def gamma(t: ArrayLike, *, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike) -> FloatArray:
    """gamma(t) = (M - 1)^2 h(t/K) / (M - 1 + exp(M h(t/K))), above Lemma 9: the speed of attention.

    Eq. 85 has h at ceil(t/K) instead; Lemma 9 and Appendix F drop the ceiling, and so do we,
    because Theorem 4 integrates gamma over continuous t.

    >>> gamma([1, 10, 100, 1000], K=2, M=100, eta_y=1.0).round(3)
    array([0.485, 2.436, 0.191, 0.022])
    """
    M = np.asarray(M, dtype=np.float64)
    x = scaled_growth(_visits(t, K), M=M, eta_y=eta_y)
    finite = np.isfinite(x)
    x = np.where(finite, x, 0.0)
    return unwrap(np.where(finite, (M - 1.0) ** 2 / M * x / (M - 1.0 + np.exp(x)), 0.0))


def gamma_peak(*, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike) -> Peak:
    """The maximum of gamma over t, in closed form; the paper does not give it.

    d gamma / dx = 0 at (x - 1) e^x = M - 1, that is x = 1 + W((M - 1)/e) for x = M h, and there
    gamma = ((M - 1)/M) W((M - 1)/e). It comes before t_0' for every M >= 19.

    >>> peak = gamma_peak(K=2, M=100, eta_y=1.0)
    >>> print(f"gamma is largest at t = {peak.t:.2f}: {peak.value:.3f}")
    gamma is largest at t = 7.92: 2.602
    """
    M = at_least("M", M, 2.0)
    w = scipy.special.lambertw((M - 1.0) / np.e).real
    t = at_least("K", K, 1.0) * h_inverse((1.0 + w) / M, M=M, eta_y=eta_y)
    return Peak(unwrap(t), unwrap((M - 1.0) / M * w))


def gamma_stages(
    t: ArrayLike, *, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike, form: str = "corrected"
) -> GammaStages:
    """The two rates of gamma with constant 1: eta_Y t / K, then K ln(M eta_Y t / K) / (eta_Y t).

    gamma is never above `early`, and lies between 1 - 2/M and 2 times `late` for t >= t_0. Printed
    (Theorems 1b and 4): ln(eta_Y t / K) without the M that Lemma 9 has, so that the constant in the
    O is not uniform in M: at t_0, gamma is 5.6, 9.0 and 11.9 times it for M = 1e3, 1e6 and 1e9.

    >>> stages = gamma_stages([1, 1000], K=2, M=100, eta_y=1.0)
    >>> gamma([1, 1000], K=2, M=100, eta_y=1.0).round(4)
    array([0.4855, 0.0216])
    >>> float(stages.early[0]), float(stages.late[1].round(4))
    (0.5, 0.0216)
    """
    M = at_least("M", M, 2.0)
    y = at_least("eta_y", eta_y, 0.0, strict=True) * _visits(t, K)
    with np.errstate(divide="ignore", invalid="ignore"):
        late = np.log(y if is_printed(form) else M * y) / y
    return GammaStages(unwrap(y), unwrap(np.where(np.isinf(y), 0.0, late)))


def _crossing(M: ArrayLike, branch: int) -> tuple[FloatArray, FloatArray]:
    # The zeros of exp(x) - (M - 1) x, with x = M h; there are two only if M - 1 >= e.
    M = at_least("M", M, 1.0 + np.e)
    return M, np.asarray(-scipy.special.lambertw(-1.0 / (M - 1.0), branch).real)


def omega_0(M: ArrayLike) -> FloatArray:
    """omega_0 of Lemma 8: exp(M h) = (M - 1) M h at its smaller zero h = M^-(2 - omega_0).

    Written as Eq. 50, (ln(M/(M-1)) + M h) / ln M, which does not cancel at large M. M >= 1 + e.

    >>> omega_0([10, 1000]).round(5)
    array([0.10049, 0.00029])
    """
    M, x = _crossing(M, 0)
    return unwrap((x - np.log1p(-1.0 / M)) / np.log(M))


def omega_1(M: ArrayLike) -> FloatArray:
    """omega_1 of Lemma 8: exp(M h) = (M - 1) M h at its larger zero h = (1 + omega_1) ln M / M.

    It is Theta(ln ln M / ln M), hence small only in name: 0.32 at M = 1000, 0.15 at M = 1e9.

    >>> omega_1([1e3, 1e9]).round(2)
    array([0.32, 0.15])
    """
    M, x = _crossing(M, -1)
    return unwrap((np.log(x) + np.log1p(-1.0 / M)) / np.log(M))


def transition_times(*, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike) -> TransitionTimes:
    """t_0' = K ln M / eta_Y and t_0 = 2 (1 + omega_1) K ln M / eta_Y (Lemma 9).

    Between the two neither rate of Lemma 9 is claimed.

    >>> times = transition_times(K=10, M=1000, eta_y=1.0)
    >>> print(f"scanning until {times.t0_prime:.1f}, snapping from {times.t0:.1f} on")
    scanning until 69.1, snapping from 182.3 on
    """
    t0_prime = at_least("K", K, 1.0) * np.log(M) / at_least("eta_y", eta_y, 0.0, strict=True)
    return TransitionTimes(unwrap(t0_prime), unwrap(2.0 * (1.0 + omega_1(M)) * t0_prime))


def reduced_time(
    t: ArrayLike, *, K: ArrayLike, M: ArrayLike, eta_y: ArrayLike, eta_z: ArrayLike
) -> FloatArray:
    """Gamma(t) = eta_Z * integral of gamma = (eta_Z/eta_Y) K (M-1)^2 h(t/K)^2 / 2 (Eq. 128, exact).

    This is the clock of attention: in tau = Gamma(t) Eq. 10 has no gamma, no learning rate and no
    explicit time left in it (see `attention_flow`).

    >>> reduced_time([1, 10, 100], K=2, M=100, eta_y=1.0, eta_z=0.1).round(4)
    array([0.0244, 1.82  , 6.8123])
    """
    M = np.asarray(M, dtype=np.float64)
    growth = (M - 1.0) / M * scaled_growth(_visits(t, K), M=M, eta_y=eta_y)
    ratio = at_least("eta_z", eta_z, 0.0) / np.asarray(eta_y, dtype=np.float64)
    return unwrap(ratio * np.asarray(K, dtype=np.float64) * growth**2 / 2.0)
