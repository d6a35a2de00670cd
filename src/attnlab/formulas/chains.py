"""Markov chains: what theories of sequences drawn from chains share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlab.formulas.checks import FloatArray


def stationary(P: ArrayLike) -> FloatArray:
    """Return the stationary laws (..., k) of transition matrices (..., k, k).

    State by state is taken out of the chain (Grassmann, Taksar and Heyman), without a subtraction,
    so that every entry is right to rounding however small it is: kernels divide by it, and rows
    from a sparse prior have symbols that almost never occur.

    Examples
    --------
    >>> stationary([[0.5, 0.5], [1.0, 0.0]]).round(4)
    array([0.6667, 0.3333])
    """
    left = np.array(P, dtype=np.float64)
    k = left.shape[-1]
    for n in range(k - 1, 0, -1):
        left[..., :n, n] /= left[..., n, :n].sum(-1, keepdims=True)
        left[..., :n, :n] += left[..., :n, n, None] * left[..., n, None, :n]
    mu = np.ones(left.shape[:-1])
    for n in range(1, k):
        mu[..., n] = (mu[..., :n] * left[..., :n, n]).sum(-1)
    return np.asarray(mu / mu.sum(-1, keepdims=True))
