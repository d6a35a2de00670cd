"""How fast the decoder learns one class: h* and its flow h (Lemmas 5 to 7, Remark 2).

Time here counts the visits of ONE class (s in Lemma 5, t in Lemma 6). When K classes are drawn
uniformly, one batch-1 optimiser step is 1/K of a visit on average, so that steps t become h(t/K);
the functions that take K (`gamma`, `reduced_time`, ...) do that division themselves.
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, at_least, is_printed, unwrap


def scaled_growth(t: ArrayLike, *, M: ArrayLike, eta_y: ArrayLike) -> FloatArray:
    """M h(t), the logit gap between the right next token and any other (Lemma 6, Eq. 45).

    Solves exp(x) + (M - 1) x = M eta_Y t + 1. With a = M - 1 the root is x = ln(a omega(y)),
    y = (M eta_Y t + 1)/a - ln a and omega the Wright omega function, which never forms the
    exponentials that overflow in the Lambert W form.
    """
    t = at_least("t", t, 0.0)
    a = at_least("M", M, 2.0) - 1.0
    target = (a + 1.0) * at_least("eta_y", eta_y, 0.0, strict=True) * t
    finite = np.isfinite(target)
    c = np.where(finite, target, 0.0)
    x = np.log(a) + np.log(scipy.special.wrightomega((c + 1.0) / a - np.log(a)))
    # Two Newton steps on expm1(x) + a x = c restore the relative accuracy lost near t = 0.
    for _ in range(2):
        x = x - (np.expm1(x) + a * x - c) / (a + np.exp(x))
    return np.asarray(np.where(finite, x, np.inf))


def h(t: ArrayLike, *, M: ArrayLike, eta_y: ArrayLike) -> FloatArray:
    """h(t) of Lemma 6: dh/dt = eta_Y / (M - 1 + exp(M h)), h(0) = 0, in closed form.

    How far the decoder has learnt one class: M h is the gap between the logit of the right next
    token and any other. Accurate to rounding for M to 1e9 and t to 1e15.

    Parameters
    ----------
    t : array_like
        Flow time in visits of one class, any shape; infinity is allowed. With K uniform classes and
        t batch-1 steps, pass t/K.

    Examples
    --------
    >>> h([0, 1, 10, 100], M=100, eta_y=1.0).round(4)
    array([0.    , 0.0099, 0.0601, 0.0912])
    """
    return unwrap(scaled_growth(t, M=M, eta_y=eta_y) / np.asarray(M, dtype=np.float64))


def h_inverse(value: ArrayLike, *, M: ArrayLike, eta_y: ArrayLike) -> FloatArray:
    """The time t, in visits of one class, at which h(t) = value (Eq. 45 read backwards).

    Parameters
    ----------
    value : array_like
        Values of h, >= 0.

    Examples
    --------
    >>> float(h_inverse(h(7.0, M=100, eta_y=1.0), M=100, eta_y=1.0).round(9))
    7.0
    """
    M = at_least("M", M, 2.0)
    x = M * at_least("value", value, 0.0)
    return unwrap((np.expm1(x) + (M - 1.0) * x) / (M * at_least("eta_y", eta_y, 0.0, strict=True)))


def h_star(steps: ArrayLike, *, M: float, eta_y: float) -> FloatArray:
    """h*(s) of Lemma 5: the exact recursion of Eq. 33 after s optimiser steps on one class.

    The recursion has no closed form: one pass of max(steps) scalar iterations (about 0.2 s per
    million) serves them all.

    >>> h_star([1, 10, 100], M=100, eta_y=1.0).round(4)
    array([0.01  , 0.0617, 0.0914])
    >>> h([1, 10, 100], M=100, eta_y=1.0).round(4)  # the flow is a little behind
    array([0.0099, 0.0601, 0.0912])
    """
    at = np.asarray(steps)
    if not np.issubdtype(at.dtype, np.integer) or np.any(at < 0):
        raise InputError(f"steps must be integers >= 0; got {steps!r}")
    at_least("M", M, 2.0)
    at_least("eta_y", eta_y, 0.0, strict=True)
    wanted, where = np.unique(at, return_inverse=True)
    values = np.empty(wanted.shape)
    x, s = 0.0, 0
    for i, stop in enumerate(wanted.tolist()):
        while s < stop:
            # exp(-x) underflows where exp(x) would overflow, at large learning rates.
            e = math.exp(-x)
            x += M * eta_y * e / ((M - 1.0) * e + 1.0)
            s += 1
        values[i] = x / M
    return unwrap(values[where.reshape(at.shape)])


def h_gap_bound(*, M: ArrayLike, eta_y: ArrayLike, form: str = "corrected") -> FloatArray:
    """Lemma 7a: an upper bound on h*(s) - h(s), which is never negative, for every step s.

    Printed: 2 eta_Y / M. Corrected: eta_Y / M. The proof shows that either h(s) >= h*(s - 1), and
    then the gap is at most one step h*(s) - h*(s - 1) <= eta_Y / M, or the gap is smaller than it
    was at s - 1; induction on s gives eta_Y / M with no factor of 2.

    >>> gap = h_star(10, M=100, eta_y=1.0) - h(10, M=100, eta_y=1.0)
    >>> bool(0 <= gap <= h_gap_bound(M=100, eta_y=1.0))
    True
    """
    bound = at_least("eta_y", eta_y, 0.0, strict=True) / at_least("M", M, 2.0)
    return unwrap(2.0 * bound if is_printed(form) else bound)


def h_lead(steps: ArrayLike, *, M: float, eta_y: float) -> FloatArray:
    """By how many visits c the discrete growth is ahead of the flow: h(s + c) = h*(s).

    Remark 2 claims that some constant c = O(ln M) serves all s. It does not: each step adds (1/2) M
    eta_Y exp(M h) / (M - 1 + exp(M h))^2, which tends to 1/(2 s), so that c grows like (1/2) ln s
    without bound (slowly: it passes ln M only beyond s of order M^2).

    >>> h_lead([10, 1000, 100_000], M=100, eta_y=1.0).round(2)
    array([0.9, 3.5, 5.8])
    """
    return unwrap(
        h_inverse(h_star(steps, M=M, eta_y=eta_y), M=M, eta_y=eta_y) - np.asarray(steps, float)
    )
