"""Checks of the arguments of constructions, and the preset text that they make."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import numpy as np

from attnlab.files.errors import InputError
from attnlab.files.memory import require_memory
from attnlab.tasks.classes.classes import SequenceClasses

Settings = ParamSpec("Settings")

# A non-zero of P takes: class, token and value, as they come, in order and as they are kept.
ENTRY_BYTES = 120


def origin_text(preset: str, **parameters: int | float | None) -> str:
    """Return the text of a preset: its name and the parameters that were given."""
    given = [f"{key}={value!r}" for key, value in parameters.items() if value is not None]
    return f"{preset}:{','.join(given)}"


def preset(
    construction: Callable[Settings, SequenceClasses],
) -> Callable[Settings, SequenceClasses]:
    """Give the classes of a construction the preset text that makes them again as their origin."""
    signature = inspect.signature(construction)

    @wraps(construction)
    def made(*arguments: Settings.args, **settings: Settings.kwargs) -> SequenceClasses:
        classes = construction(*arguments, **settings)
        given = signature.bind(*arguments, **settings)
        given.apply_defaults()
        numbers = {
            name: value if value is None else _NUMBERS[signature.parameters[name].annotation](value)
            for name, value in given.arguments.items()
        }
        name = construction.__name__.replace("_", "-")
        return classes.with_origin(origin_text(name, **numbers))

    return made


# By annotation: numbers are written alike, whichever type they were given as.
_NUMBERS: dict[str, type[int] | type[float]] = {"float": float, "int": int, "int | None": int}


def number_of_queries(queries: int, classes: int) -> int:
    """Return `queries`; refuse more than there are classes."""
    queries = how_many("queries", queries, 1)
    if queries > classes:
        raise InputError(
            f"queries: {queries} queries for {classes} classes; take at most {classes}"
        )
    return queries


def whole_number(name: str, value: int, at_least: int) -> int:
    """Return `value`; refuse what is not a whole number of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < at_least:
        raise InputError(f"{name}: expected a whole number of at least {at_least}, got {value!r}")
    return int(value)


def how_many(name: str, value: int, at_least: int) -> int:
    """Return the whole number `value`; refuse more entries of P than fit into memory."""
    value = whole_number(name, value, at_least)
    require_entries(name, value)
    return value


def require_entries(name: str, entries: int) -> None:
    """Refuse classes with more non-zeros than memory holds."""
    require_memory(name, ENTRY_BYTES * entries)


def number_between(name: str, value: float, low: float, high: float) -> float:
    """Return `value`; refuse what is outside the open interval (low, high)."""
    if not low < value < high:
        wanted = f"above {low}" if high == math.inf else f"between {low} and {high}"
        raise InputError(f"{name}: expected a finite number {wanted}, got {value}")
    return float(value)
