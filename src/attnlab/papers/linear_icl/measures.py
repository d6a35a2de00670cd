"""Measures of a staircase: first crossings of a level, dwell on plateaus, purity of heads."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def first_crossing(t: ArrayLike, values: ArrayLike, level: float = 0.5) -> FloatArray:
    """Return the first time at which each of the values, (time, ...), is above `level`.

    Interpolated linearly between records; infinite where it never is.

    >>> first_crossing([0.0, 1.0, 2.0], [[0.0, 0.0], [0.4, 0.1], [0.8, 0.2]])
    array([1.25,  inf])
    """
    t, values = np.asarray(t, dtype=np.float64), np.asarray(values, dtype=np.float64)
    above = values > level
    at = np.maximum(above.argmax(0), 1)
    low, high = (np.take_along_axis(values, of[None], 0)[0] for of in (at - 1, at))
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.clip((level - low) / (high - low), 0.0, 1.0)
        found = t[at - 1] + part * (t[at] - t[at - 1])
    return np.where(above.any(0), np.where(above[0], t[0], found), np.inf)


def dwell(
    t: ArrayLike, loss: ArrayLike, levels: ArrayLike, *, within: ArrayLike = 0.004
) -> FloatArray:
    """Return the time that a loss, (time,), spends within this distance of each level.

    Give log t for t to measure the dwell in log time.

    >>> dwell([0.0, 1.0, 2.0, 3.0], [1.0, 0.5, 0.5, 0.0], [0.5])
    array([2.])
    """
    t, loss = np.asarray(t, dtype=np.float64), np.asarray(loss, dtype=np.float64)
    near = np.abs(loss[:, None] - np.asarray(levels)) < within
    return np.asarray(np.gradient(t) @ near)


def purity(k: ArrayLike) -> FloatArray:
    """Return max_d k_d^2/|k|^2 over the last axis: 1 for a key along one eigenvector.

    >>> purity([[0.0, 2.0], [1.0, 1.0]])
    array([1. , 0.5])
    """
    squares = np.asarray(k, dtype=np.float64) ** 2
    return np.asarray(squares.max(-1) / squares.sum(-1))
