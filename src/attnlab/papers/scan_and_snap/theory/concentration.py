"""Concentration of samples: Lemmas 10, 11 and 18, and what a finite length changes.

N counts batch-1 optimiser steps; `length` is T, so that a sequence has T - 1 contextual tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, at_least, between, is_printed, unwrap

from .decoder import plain_coefficients
from .growth import gamma, omega_1, scaled_growth

INTEGRATION_POINTS = 1001  # of a trapezoidal rule; half of them change the result by less than 1e-4


class Interval(NamedTuple):
    """A two-sided bound.

    lower: from here.
    upper: to here.
    """

    lower: FloatArray
    upper: FloatArray


class Deviations(NamedTuple):
    """Deviations of the visits of classes from their average, as in Theorem 1.

    theta: of h (Eq. 61).
    sigma: of 1/(M - 1 + exp(M h)) (Eq. 62).
    """

    theta: FloatArray
    sigma: FloatArray


def visits_radius(N: ArrayLike, *, delta: ArrayLike, form: str = "corrected") -> FloatArray:
    """Lemma 10: with probability 1 - delta, |N_n - ceil(N P(n))| is at most this, after N steps.

    Corrected: sqrt((N/2) ln(2/delta)) + 1, the middle of Eq. 58. Printed: its right-hand side
    sqrt(N ln(2/delta)), which is larger only if N ln(2/delta) > 11.7; below that Eq. 58's last
    inequality is false. (Remark 4 goes on with ln(1/delta) for ln(2/delta).)

    Parameters
    ----------
    delta : array_like
        The chance of being outside, for one class; for all K at once pass delta/K.

    Examples
    --------
    >>> float(visits_radius(1000, delta=0.05).round(1))
    43.9
    """
    N = at_least("N", N, 1.0)
    spread = N * np.log(2.0 / between("delta", delta, 0.0, 1.0))
    return unwrap(np.sqrt(spread) if is_printed(form) else np.sqrt(spread / 2.0) + 1.0)


def decoder_deviations(
    N: ArrayLike,
    *,
    radius: ArrayLike,
    K: ArrayLike,
    M: ArrayLike,
    eta_y: ArrayLike,
    form: str = "corrected",
) -> Deviations:
    """Lemma 11: bounds on |theta_n| and |sigma_n| when |N_n - N/K| <= radius, after N steps.

    theta: radius / (N/K), with constant 1 because h is concave and h(0) = 0 (printed with an
    unstated constant). sigma, printed: eta_Y radius / 3, and radius / (N/K) once N >= t_0; it holds
    for radius << N/K, as Appendix D.1 has it. It is proved for N_n above its mean; below it 1/(M -
    1 + exp(M h)) is larger, and for any radius 1/3 becomes 1. Corrected: the larger |sigma| of the
    two ends N/K - radius and N/K + radius, which no N_n between them exceeds because h is monotone.

    Parameters
    ----------
    radius : array_like
        How far the visits of a class are from N/K (`visits_radius`).

    Examples
    --------
    >>> decoder_deviations(1000, radius=40, K=2, M=100, eta_y=1.0).theta.round(3)
    np.float64(0.08)
    """
    M = at_least("M", M, 2.0)
    mean = at_least("N", N, 1.0) / at_least("K", K, 1.0)
    radius = at_least("radius", radius, 0.0)
    eta_y = at_least("eta_y", eta_y, 0.0, strict=True)
    theta = radius / mean
    if is_printed(form):
        late = eta_y * mean >= 2.0 * (1.0 + omega_1(M)) * np.log(M)
        return Deviations(unwrap(theta), unwrap(np.where(late, theta, eta_y * radius / 3.0)))
    slow, at_mean, fast = (
        np.exp(scaled_growth(visits, M=M, eta_y=eta_y))
        for visits in (np.maximum(mean - radius, 0.0), mean, mean + radius)
    )
    below = (at_mean - slow) / (M - 1.0 + slow)
    above = (fast - at_mean) / (M - 1.0 + fast)
    return Deviations(unwrap(theta), unwrap(np.maximum(below, above)))


def visit_deviations(visits: ArrayLike, *, M: float, eta_y: float) -> Deviations:
    """theta_n and sigma_n themselves, from the number of visits N_n of each class.

    1 + theta_n = h(N_n)/h(N-bar) (Eq. 68), 1 + sigma_n the same of 1/(M - 1 + exp(M h)) (Eq. 71),
    with N-bar the mean of N_n; `beta`, `iota` and `xi` take them in units of gamma(K N-bar).

    Parameters
    ----------
    visits : array_like
        N_n of each class, (K,).

    Examples
    --------
    >>> visit_deviations([90, 110], M=100, eta_y=1.0).theta.round(4)
    array([-0.0126,  0.0113])
    """
    visits = at_least("visits", visits, 0.0)
    mean = visits.mean()
    if mean == 0.0:
        raise InputError("visits must not all be 0: theta is relative to their mean")
    x = scaled_growth(visits, M=M, eta_y=eta_y)
    x_mean = scaled_growth(mean, M=M, eta_y=eta_y)
    excess = (np.exp(x_mean) - np.exp(x)) / (M - 1.0 + np.exp(x))
    return Deviations(np.asarray(x / x_mean - 1.0), np.asarray(excess))


def frequency_interval(P: ArrayLike, *, length: ArrayLike, delta: ArrayLike) -> Interval:
    """Lemma 18 (Eq. 136): where a token's frequency q_l lies with probability 1 - delta.

    P(l|m, n) +- sqrt(ln(2/delta) / (2 (T - 1))), not below 0.

    Parameters
    ----------
    P : array_like
        P(l|m, n), any shape.
    delta : array_like
        The chance of being outside, for each token separately.

    Examples
    --------
    >>> [float(end.round(3)) for end in frequency_interval(0.3, length=129, delta=0.05)]
    [0.18, 0.42]
    """
    P = np.asarray(P, dtype=np.float64)
    tokens = at_least("length", length, 2.0) - 1.0
    radius = np.sqrt(np.log(2.0 / between("delta", delta, 0.0, 1.0)) / (2.0 * tokens))
    return Interval(unwrap(np.maximum(P - radius, 0.0)), unwrap(P + radius))


def expected_squared_norm(P: ArrayLike, *, length: ArrayLike) -> FloatArray:
    """E|q|^2 = |p|^2 + (1 - |p|^2)/(T - 1) for the token frequencies q of a sequence.

    Not in the paper. Lemma 2 needs q near p, and the normalisation f = q/|q| is biased unless T - 1
    is large against 1/|p|^2, the effective number of tokens, not only against 1.

    Parameters
    ----------
    P : array_like
        Probabilities, (..., L).

    Examples
    --------
    >>> float(expected_squared_norm([0.5, 0.5], length=11))
    0.55
    """
    squared = (np.asarray(P, dtype=np.float64) ** 2).sum(-1)
    return unwrap(squared + (1.0 - squared) / (at_least("length", length, 2.0) - 1.0))


def losing_length(
    p: ArrayLike, t: float, *, K: int, M: int, rho: float, eta_y: float
) -> FloatArray:
    r"""T*, the length up to which each distinct token of a class ends with a negative logit.

    Not in the paper, which takes T to infinity. For the frequencies q of one sequence and
    f = q/|q|, the term of Lemma 1 that is along f_n has the mean
    gamma iota E[f_l m_l - f_l^2 f.m], m = E f. It vanishes for T to infinity. To first order in
    1/(T - 1), with cov f = (I - f f^T) diag(p) (I - f f^T) / (|p|^2 (T - 1)), it is

    .. math::

        \frac{\gamma\iota f_l^2}{T-1}
        \Bigl[\frac{1 + 2 p_l - 2 \sum_k p_k^3/|p|^2}{|p|^2} - \frac{1}{p_l}\Bigr],

    negative for rare tokens. The interaction with the K - 1 other classes is
    gamma beta (K - 1) rho f_l^2 for a distinct token. T* is the length at which the integrals of
    the two over time cancel, and z_l(T) = z_l(infinity) (1 - (T* - 1)/(T - 1)). iota and beta are
    those of SGD (`plain_coefficients`). Near t_0 beta is of order (M ln M)^rho / M, so that T*
    grows as M^(1 - rho), up to powers of ln M.

    Holds to first order in 1/T, for eta_Z small against eta_Y, while attention is near its start.
    Returns T* of each token; 1 where a token gains at every length; NaN where p is 0.

    Parameters
    ----------
    p : array_like
        P(l|n) of one class, (L,). The result applies to its distinct tokens only.

    Examples
    --------
    >>> for M in (10**3, 10**4):
    ...     T = losing_length([0.3, 0.05, 0.65], 400.0, K=2, M=M, rho=0.2, eta_y=0.9)
    ...     print(f"{T[1]:.3g} {T[2]:.3g}")
    1.39e+04 1
    9.59e+04 1
    """
    p = np.asarray(p, dtype=np.float64)
    at_least("rho", rho, 0.0, strict=True)
    # even in ln(1 + s): beta rises exponentially at first, then gamma falls like 1/t
    end = float(at_least("eta_y", eta_y, 0.0, strict=True) * at_least("t", t, 0.0, strict=True) / K)
    s = np.expm1(np.linspace(0.0, np.log1p(end), INTEGRATION_POINTS)[1:]) * K / eta_y
    speed = np.asarray(gamma(s, K=K, M=M, eta_y=eta_y))
    sent_back = plain_coefficients(s, K=K, M=M, rho=rho, eta_y=eta_y)
    drift, interaction = (
        np.trapezoid(speed * np.asarray(part), s) for part in (sent_back.iota, sent_back.beta)
    )
    squared = (p**2).sum()
    present = np.where(p > 0, p, np.nan)
    rare = 1.0 / present - (1.0 + 2.0 * p - 2.0 * (p**3).sum() / squared) / squared
    return unwrap(1.0 + np.maximum(rare, 0.0) * drift / ((K - 1) * rho * interaction))
