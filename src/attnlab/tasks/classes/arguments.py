"""Arguments of constructions: their checks, and the preset text that they make."""

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
Construction = Callable[Settings, SequenceClasses]

# A non-zero of P takes: class, token and value, as they come, in order and as they are kept.
ENTRY_BYTES = 120


def preset(
    **bounds: int | tuple[float, float],
) -> Callable[[Construction[Settings]], Construction[Settings]]:
    """Check the arguments of a construction, and name it as the origin of the classes it makes.

    bounds: the least value of a whole number, or the open interval of another. Numbers are written
    alike, whichever type they were given as.
    """

    def decorate(construction: Construction[Settings]) -> Construction[Settings]:
        signature = inspect.signature(construction)

        @wraps(construction)
        def made(*arguments: Settings.args, **settings: Settings.kwargs) -> SequenceClasses:
            given = signature.bind(*arguments, **settings)
            given.apply_defaults()
            numbers = given.arguments
            for name, value in numbers.items():
                if isinstance(bound := bounds.get(name), int):
                    numbers[name] = how_many(name, value, bound)
                elif bound is not None:
                    numbers[name] = number_between(name, value, *bound)
                elif value is not None and signature.parameters[name].annotation != "float":
                    numbers[name] = whole_number(name, value, 0)
                elif value is not None:
                    numbers[name] = float(value)
            if "queries" in numbers:
                number_of_queries(numbers["queries"], numbers["classes"])
            classes = construction(*given.args, **given.kwargs)
            return classes.with_origin(
                origin_text(construction.__name__.replace("_", "-"), **numbers)
            )

        return made

    return decorate


def origin_text(preset: str, **parameters: int | float | None) -> str:
    """Return the text of a preset: its name and the parameters that were given."""
    given = [f"{key}={value!r}" for key, value in parameters.items() if value is not None]
    return f"{preset}:{','.join(given)}"


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
