"""Theories by name."""

from __future__ import annotations

from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.prediction.joma import JOMA_LADDER
from attnlab.prediction.theory import LADDER, Theory


def as_theory(theory: str | Theory) -> Theory:
    """Return the theory, looking it up if a name is given."""
    if isinstance(theory, Theory):
        if not isinstance(getattr(theory, "name", None), str):
            raise InputError(f"theory: {type(theory).__name__} has no name; give it one, a text")
        return theory
    if not isinstance(theory, str):
        raise InputError(f"theory: expected a name or a Theory object, got {theory!r}")
    known = {of.name: of for of in (*LADDER, *JOMA_LADDER)}
    if theory not in known:
        raise InputError(f"theory: {theory!r} is not one; {did_you_mean(theory, known)}")
    return known[theory]
