"""Rates: the slope of a power law, fitted."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def slope(x: ArrayLike, y: ArrayLike) -> float:
    """The exponent p of y ~ x^p, by least squares in logarithms."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])
