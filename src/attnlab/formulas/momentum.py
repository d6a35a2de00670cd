"""Steps with momentum, counted in plain steps."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.formulas.checks import FloatArray, at_least, unwrap


def momentum_time(t: ArrayLike, *, momentum: float) -> FloatArray:
    """The plain steps that t steps of SGD with momentum amount to, at the same learning rate.

    For a gradient that stays the same: m <- momentum m + g adds up to sum_s (1 - mu^s)/(1 - mu) =
    (t - mu (1 - mu^t)/(1 - mu))/(1 - mu) of it, that is t^2/2 at first (mu near 1) and 1/(1 - mu) a
    step later on. Not in the paper, whose theory is of plain steps while its experiments have
    momentum 0.9.

    >>> momentum_time([1, 10, 100], momentum=0.9).round(1)
    array([  1. ,  41.4, 910. ])
    """
    mu = _momentum(momentum)
    t = at_least("t", t, 0.0)
    return unwrap((t - mu * (1.0 - mu**t) / (1.0 - mu)) / (1.0 - mu))


def momentum_steps(t: ArrayLike, *, momentum: float) -> FloatArray:
    """The inverse of `momentum_time`: the steps with momentum that amount to t plain ones.

    >>> float(momentum_steps(momentum_time(25, momentum=0.9), momentum=0.9).round(6))
    25.0
    """
    mu = _momentum(momentum)
    t = at_least("t", t, 0.0)
    if mu == 0.0:
        return unwrap(t)
    # s + a mu^s = c, solved by Lambert's W on the branch of s = 0 at t = 0
    a, log_mu = mu / (1.0 - mu), np.log(mu)
    c = t * (1.0 - mu) + a
    steps = c - scipy.special.lambertw(a * log_mu * mu**c).real / log_mu
    return unwrap(np.maximum(steps, 0.0))  # which rounding may miss at t = 0


def _momentum(momentum: float) -> float:
    if not 0.0 <= momentum < 1.0:
        raise InputError(f"momentum must lie in [0, 1); got {momentum!r}")
    return float(momentum)
