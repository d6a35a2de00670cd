"""Numbers of a measurement: the slope of a power law, fitted, and a list of them for a note."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def slope(x: ArrayLike, y: ArrayLike) -> float:
    """Return the exponent p of y ~ x^p, by least squares in logarithms."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])


def listed(values: Iterable[Any], form: str) -> str:
    """Return numbers in a format, as a note lists them: 1.5, 2.0, 3.5."""
    return ", ".join(format(value, form) for value in values)
