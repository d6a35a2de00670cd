"""Relations: how the signs of a source ("=", "<~", "O(.)", "~", ">>") are read, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from attnlab.files.errors import InputError

Sign = Literal["==", "<=", "<", ">=", ">"]


class Reading(StrEnum):
    """Meanings of a sign of the source."""

    EQUALITY = "equality"
    BOUND = "bound"
    CONSTANT = "bound up to a constant"
    ORDER = "asymptotic order"
    LEADING = "leading order"
    MUCH = "much greater"


@dataclass(frozen=True)
class Relation:
    """`measured` `sign` `factor` times `predicted`.

    An equality is one to the tolerance of its check; so is a leading order, whose tolerance is
    what the source neglects. An order of magnitude with sign "==" is met within the factor, in
    either direction. For O(.) in a limit (`SETTLES`) what is measured is the exponent with which
    its constant goes on growing towards the limit, predicted to be 0 or less.
    """

    reading: Reading
    sign: Sign
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not self.factor > 0:
            raise InputError(f"factor: expected a number above 0, got {self.factor}")

    def __str__(self) -> str:
        """The reading in words."""
        match self.reading:
            case Reading.BOUND:
                return f"bound ({self.sign})"
            case Reading.CONSTANT if self.factor > 1.0:
                return f"bound up to a constant (at most {self.factor:g} times)"
            case Reading.CONSTANT:
                return "bound up to a constant (which is 1)"
            case Reading.ORDER if self.factor > 1.0:
                return f"asymptotic order (within a factor of {self.factor:g})"
            case Reading.ORDER:
                return "asymptotic order (a constant that does not grow)"
            case Reading.MUCH if self.factor > 1.0:
                return f"much greater (at least {self.factor:g} times)"
            case Reading.MUCH:
                return f"much smaller (at most 1/{1.0 / self.factor:g})"
        return self.reading.value


EQUAL = Relation(Reading.EQUALITY, "==")
AT_MOST = Relation(Reading.BOUND, "<=")
BELOW = Relation(Reading.BOUND, "<")
AT_LEAST = Relation(Reading.BOUND, ">=")
ABOVE = Relation(Reading.BOUND, ">")
LEADING = Relation(Reading.LEADING, "==")
SETTLES = Relation(Reading.ORDER, "<=")


def up_to(constant: float) -> Relation:
    """`<~`: at most this many times."""
    return Relation(Reading.CONSTANT, "<=", constant)


def within(factor: float) -> Relation:
    """`~` between quantities of one order: no further apart than this factor."""
    return Relation(Reading.ORDER, "==", factor)


def much_greater(times: float) -> Relation:
    """`>>`: at least this many times."""
    return Relation(Reading.MUCH, ">=", times)


def much_smaller(times: float) -> Relation:
    """`<<`: this many times smaller at least."""
    return Relation(Reading.MUCH, "<=", 1.0 / times)
