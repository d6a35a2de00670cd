"""InputError: something is wrong with what was given.

Anything else that goes wrong is our bug, and keeps its traceback.
"""

from collections.abc import Collection
from typing import Any


class InputError(ValueError):
    """Bad input. The message names the field and the remedy; the command line prints it alone."""


def require_whole(field_name: str, value: Any, least: int) -> None:
    """Refuse what is not a whole number of at least so much."""
    try:
        whole = not isinstance(value, bool) and int(value) == value >= least
    except (OverflowError, TypeError, ValueError):  # infinite, or no number at all
        whole = False
    if not whole:
        raise InputError(
            f"{field_name}: expected a whole number of at least {least}, got {value!r}"
        )


def require_choice(field_name: str, value: Any, choices: Collection[Any]) -> None:
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        raise InputError(f"{field_name}: expected one of {tuple(choices)}, got {value!r}")
