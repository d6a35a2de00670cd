"""InputError: something is wrong with what was given.

Anything else that goes wrong is our bug, and keeps its traceback.
"""

import re
import shlex
import sys
from collections.abc import Collection
from typing import Any


class InputError(ValueError):
    """Bad input. The message names the field and the remedy; the command line prints it alone."""


def require_whole(field_name: str, value: Any, least: int) -> None:
    """Refuse a value that is not a whole number of at least `least`."""
    try:
        whole = not isinstance(value, bool) and int(value) == value >= least
    except (OverflowError, TypeError, ValueError):  # infinite, or no number at all
        whole = False
    if not whole:
        raise InputError(
            f"{field_name}: expected a whole number of at least {least}, got {value!r}"
        )


def not_installed(what: str, package: str, *, extra: str = "", or_else: str = "") -> InputError:
    """Return the error of an optional package that is absent.

    pip adds an extra to the attnlab that is installed, be it from a clone or a wheel.
    """
    wanted = f"attnlab[{extra}]" if extra else package
    command = shlex.join([sys.executable, "-m", "pip", "install", wanted])
    return InputError(f"{what}: needs {package}, which is not installed; run {command}{or_else}")


# netCDF ends a text at a NUL, and no encoding has half a surrogate pair.
_NOT_KEPT = re.compile("[\0\ud800-\udfff]")
# What a terminal obeys instead of showing it (C0 and C1 controls), what turns the order of the
# letters after it, what ends a line, and what no encoding has.
_OBEYED = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def check_name(field: str, name: str) -> None:
    """Refuse a name that a result could not hold."""
    if _NOT_KEPT.search(name):
        raise InputError(
            f"{field}: {name!r} has a character that no file keeps (NUL, or half of a surrogate "
            "pair); give another name"
        )


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return a text with its control characters escaped: ESC becomes \x1b.

    With `lines`, line ends stay.
    """
    return _OBEYED.sub(
        lambda found: (
            "\n" if lines and found[0] == "\n" else found[0].encode("unicode_escape").decode()
        ),
        text,
    )


def require_choice(field_name: str, value: Any, choices: Collection[Any]) -> None:
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        raise InputError(f"{field_name}: expected one of {tuple(choices)}, got {value!r}")


def refuse_if(wrong: Any, field_name: str, expected: str, value: Any) -> None:
    """Refuse the value of a field if `wrong` is true; `expected` says what would be right."""
    if wrong:
        shown = repr(value) if isinstance(value, str) else value
        raise InputError(f"{field_name}: expected {expected}, got {shown}")
