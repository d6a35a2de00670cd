"""Salient tokens first, the others later: v' = (mu - v) * exp(v^2/2) (JoMA, claims 3 and 4).

The equation itself is a heuristic of the paper, as we know it: a nonlinear activation on mixture
data pulls v to a centre mu, and attention multiplies the pull by exp(v^2/2). What follows from it
is re-derived. With delta_l = 1 - v_l/mu_l and y_l = ln(1/delta_l),

    y_l' = exp(v_l^2/2),     so that     y_l / y_l' -> exp((mu_l^2 - mu_l'^2)/2)

as t grows (1 without attention). The limit is approached as 1/t: up to what decays exponentially,
y_l = lambda_l t + y_l(0) - C_l, where lambda_l = exp(mu_l^2/2), with a lag

    C_l = integral from v_l(0) to mu_l of (exp((mu_l^2 - v^2)/2) - 1)/(mu_l - v) dv.

The constant C_l is ours; the order 1/t may not be.

Let all tokens start at the same v(0), 0 <= v(0) < min mu, and not all mu be equal. Then the entropy
of softmax(v^2/2) falls first, since the uniform has the largest; and in the end it rises to that of
softmax(mu^2/2) from below (ours): the last token to arrive is the one with the smallest mu, whose
share is below exp(-entropy), and entropy grows with such a share. So there is a dip. From a start
above the smallest mu its token comes down instead, and there need be none: with mu = (1, 2) and
v(0) = 1.9 entropy falls throughout.

With `normalised`, attention is softmax(v^2 c) instead: all tokens then share one clock, and every
ratio is the same function of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas import solve
from attnlab.formulas.checks import FloatArray, at_least, unwrap

# Where the entropy is looked at, for its lowest point.
LOOKS = 4001


@dataclass(frozen=True)
class SalientFlow:
    """Tokens on the way to their centres, at the times asked for, whose shape leads.

    weights: v, (..., L).
    closeness: y = ln(1/delta), (..., L).
    """

    weights: FloatArray
    closeness: FloatArray


@dataclass(frozen=True)
class EntropyDip:
    """The entropy of attention.

    start: at the start.
    lowest: at its lowest.
    time: when that is.
    end: in the end.
    """

    start: float
    lowest: float
    time: float
    end: float


def salient_flow(
    mu: ArrayLike,
    t: ArrayLike,
    *,
    v0: ArrayLike = 0.0,
    sharpness: float = 0.5,
    normalised: bool = False,
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> SalientFlow:
    """v' = (mu - v) * exp(c v^2) from v0, which is below every mu.

    >>> salient_flow([1.0, 2.0], [0.0, 0.5, 5.0]).weights.round(3)
    array([[0.   , 0.   ],
           [0.403, 0.874],
           [0.999, 2.   ]])
    """
    mu, start = _centres(mu, v0)
    times = at_least("t", t, 0.0)

    def velocity(_: float, y: FloatArray) -> FloatArray:
        lift = sharpness * (mu * -np.expm1(-y)) ** 2
        return np.asarray(scipy.special.softmax(lift) if normalised else np.exp(lift))

    y = solve(velocity, start, times, rtol=rtol, atol=atol)
    return SalientFlow(np.asarray(mu * -np.expm1(-y)), y)


def salient_ratio(mu: ArrayLike, other: ArrayLike, *, sharpness: float = 0.5) -> FloatArray:
    """The limit of ln(1/delta)/ln(1/delta') of two tokens: exp(c (mu^2 - mu'^2)).

    >>> float(salient_ratio(2.0, 1.0).round(3))
    4.482
    """
    mu, other = np.asarray(mu, dtype=np.float64), np.asarray(other, dtype=np.float64)
    return unwrap(np.exp(sharpness * (mu**2 - other**2)))


def salient_lag(mu: ArrayLike, *, v0: float = 0.0, sharpness: float = 0.5) -> FloatArray:
    """C of each mu: how far ln(1/delta) stays behind a token that had its speed from the start.

    >>> salient_lag([1.0, 2.0]).round(3)
    array([0.881, 6.344])
    """

    def lag(centre: float) -> float:
        def missing(v: float) -> float:
            return float(np.expm1(sharpness * (centre**2 - v**2)) / (centre - v))

        # the integrand tends to 2 c mu at the end, where it is 0/0
        return float(
            scipy.integrate.quad(missing, v0, centre * (1 - 1e-12), epsabs=0.0, epsrel=1e-10)[0]
        )

    mu, _ = _centres(mu, v0)
    return unwrap(np.array([lag(float(of)) for of in mu]).reshape(mu.shape))


def salient_entropy(v: ArrayLike, *, sharpness: float = 0.5) -> FloatArray:
    """The entropy of softmax(c v^2) over the last axis, in nats.

    >>> salient_entropy([[0.0, 0.0], [0.0, 3.0]]).round(3)
    array([0.693, 0.06 ])
    """
    share = scipy.special.softmax(sharpness * np.asarray(v, dtype=np.float64) ** 2, axis=-1)
    return unwrap(-scipy.special.xlogy(share, share).sum(-1))


def entropy_dip(
    mu: ArrayLike, *, v0: float = 0.0, sharpness: float = 0.5, normalised: bool = False
) -> EntropyDip:
    """The entropy of softmax(c v^2) along `salient_flow`: its two limits and its lowest point.

    >>> dip = entropy_dip([1.0, 2.0, 3.0])
    >>> dip.lowest < dip.end < dip.start
    True
    """
    centres, _ = _centres(mu, v0)
    slowest = 50.0 / np.exp(sharpness * centres.min() ** 2)  # by then the last one has arrived
    end = slowest * (np.exp(sharpness * centres**2).sum() if normalised else 1.0)
    times = np.concatenate([[0.0], np.geomspace(1e-6 * end, end, LOOKS)])
    flow = salient_flow(
        centres, times, v0=v0, sharpness=sharpness, normalised=normalised, rtol=1e-8, atol=1e-10
    )
    H = salient_entropy(flow.weights, sharpness=sharpness)
    low = int(np.argmin(H))
    last = float(salient_entropy(centres, sharpness=sharpness))
    return EntropyDip(float(H[0]), min(float(H[low]), last), float(times[low]), last)


def _centres(mu: ArrayLike, v0: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """mu, and y at the start."""
    mu = np.atleast_1d(at_least("mu", mu, 0.0, strict=True))
    start = at_least("v0", v0, 0.0)
    if np.any(start >= mu):
        raise InputError(f"v0 must be below every mu; got {v0!r}")
    return mu, np.broadcast_to(-np.log1p(-start / mu), mu.shape)


def stable_rank(W: ArrayLike) -> FloatArray:
    """|W|_F^2/|W|_2^2 over the last two axes, from 1 to the rank; nan for a zero matrix.

    Parameters
    ----------
    W : array_like
        Matrices, (..., m, n).

    Examples
    --------
    >>> float(stable_rank(np.diag([2.0, 1.0, 1.0])))
    1.5
    """
    sizes = np.linalg.svd(np.asarray(W, dtype=np.float64), compute_uv=False) ** 2
    with np.errstate(invalid="ignore"):
        return unwrap(sizes.sum(-1) / sizes.max(-1))
