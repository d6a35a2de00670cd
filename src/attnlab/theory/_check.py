"""Checks of arguments, shared by the theory: each error names the field and what would be right."""

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FORMS = ("corrected", "printed")


def is_printed(form: str) -> bool:
    """Whether `form` asks for the paper as printed; anything but the two forms is an error."""
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


def probabilities(P: ArrayLike) -> FloatArray:
    """P as a (K, L) matrix of non-negative weights in which no class is empty."""
    P = np.asarray(P, dtype=np.float64)
    if P.ndim != 2:
        raise InputError(f"P must have one row per class and one column per token; got {P.shape}")
    if not np.all(np.isfinite(P)) or np.any(P < 0) or np.any(P.sum(1) <= 0):
        raise InputError("P must be finite, >= 0, and positive somewhere in each row")
    return P


def query_rows(psi: ArrayLike | None, K: int) -> IntArray:
    """psi as K row numbers; None means that every class shares one query."""
    if psi is None:
        return np.zeros(K, dtype=np.int64)
    rows = np.asarray(psi)
    if rows.shape != (K,) or not np.issubdtype(rows.dtype, np.integer) or np.any(rows < 0):
        raise InputError(f"psi must give one query row (an integer >= 0) per class, {K} in all")
    return rows.astype(np.int64)
