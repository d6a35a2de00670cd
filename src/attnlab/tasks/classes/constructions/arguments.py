"""What the arguments of a construction must be, and the preset text that they make."""

from __future__ import annotations

import math

import numpy as np

from attnlab.files.errors import InputError
from attnlab.files.memory import require_memory

# Of a non-zero of P: class, token and value, as they come, in order and as they are kept.
ENTRY_BYTES = 120


def origin_text(preset: str, **parameters: int | float | None) -> str:
    """The text of a preset: its name and the parameters that were given."""
    given = [f"{key}={value!r}" for key, value in parameters.items() if value is not None]
    return f"{preset}:{','.join(given)}"


def number_of_queries(queries: int, classes: int) -> int:
    """`queries`, if there is a class for each."""
    queries = how_many("queries", queries, 1)
    if queries > classes:
        raise InputError(
            f"queries: {queries} queries for {classes} classes; take at most {classes}"
        )
    return queries


def whole_number(name: str, value: int, at_least: int) -> int:
    """`value`, if it is a whole number of at least `at_least`; the error names the argument."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < at_least:
        raise InputError(f"{name}: expected a whole number of at least {at_least}, got {value!r}")
    return int(value)


def how_many(name: str, value: int, at_least: int) -> int:
    """`value`, if so many entries of P fit into memory."""
    value = whole_number(name, value, at_least)
    require_entries(name, value)
    return value


def require_entries(name: str, entries: int) -> None:
    """Refuse classes with more non-zeros than memory holds."""
    require_memory(name, ENTRY_BYTES * entries)


def number_between(name: str, value: float, low: float, high: float) -> float:
    """`value`, if it lies between `low` and `high`, which are not allowed themselves."""
    if not low < value < high:
        wanted = f"above {low}" if high == math.inf else f"between {low} and {high}"
        raise InputError(f"{name}: expected a finite number {wanted}, got {value}")
    return float(value)
