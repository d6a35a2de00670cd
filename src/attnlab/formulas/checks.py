"""Checks of arguments, shared by the theory: each error names the field and what would be right."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FORMS = ("corrected", "printed")


def is_printed(form: str) -> bool:
    """Say whether `form` asks for a formula as its source prints it; refuse other than `FORMS`."""
    if form not in FORMS:
        raise InputError(f"form must be one of {', '.join(map(repr, FORMS))}; got {form!r}")
    return form == "printed"


def at_least(field: str, value: ArrayLike, low: float, *, strict: bool = False) -> FloatArray:
    """`value` as float64, refused when any entry is below `low` (or equal to it when strict)."""
    array = np.asarray(value, dtype=np.float64)
    good = array > low if strict else array >= low
    if not np.all(good):
        raise InputError(f"{field} must be {'>' if strict else '>='} {low:g}; got {value!r}")
    return array


def between(field: str, value: ArrayLike, low: float, high: float) -> FloatArray:
    """`value` as float64, refused when any entry is outside the open interval (low, high)."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all((array > low) & (array < high)):
        raise InputError(f"{field} must lie in ({low:g}, {high:g}); got {value!r}")
    return array


def unwrap(array: Any) -> FloatArray:
    """A 0-d array as a float64 scalar, any other array as it is, so that scalars give scalars."""
    return cast(FloatArray, np.asarray(array)[()])
