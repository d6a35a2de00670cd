"""Relations: how the signs of a source ("=", "<~", "O(.)", "~", ">>") are read, as numbers.

A `Check` compares two labelled arrays by a relation, a `Hypothesis` two numbers of a case.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError, refuse_if

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
        refuse_if(not self.factor > 0, "factor", "a number above 0", self.factor)

    def __str__(self) -> str:
        """Return the reading in words."""
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


# -- prediction against measurement: two arrays of one schema, and one subtraction -----------------

Form = Literal["printed", "corrected", "premise"]
Values = xr.DataArray | ArrayLike


def shortfall(
    predicted: Values, measured: Values, *, relation: Relation, relative: bool
) -> xr.DataArray:
    """Return how far each entry is from satisfying the relation; above 0 it violates it.

    Parameters
    ----------
    predicted, measured : xarray.DataArray or array_like
        What is compared. Labels must agree exactly; arrays without labels have one shape, or one
        of them is a number.
    relation : Relation
        How the sign between them is read.
    relative : bool
        To the size of the prediction, entry by entry (an entry predicted to be 0 stays absolute);
        orders of magnitude always are.

    Returns
    -------
    xarray.DataArray
        Entry by entry.
    """
    predicted, measured = xr.align(_as_array(predicted), _as_array(measured), join="exact")
    if predicted.ndim and measured.ndim and {*predicted.dims} != {*measured.dims}:
        raise InputError(
            f"predicted: expected the dims of what is measured, {measured.dims}, or a number, got "
            f"{predicted.dims}"
        )
    if relation.sign == "==" and relation.factor > 1.0:
        with np.errstate(invalid="ignore", divide="ignore"):
            apart: xr.DataArray = np.exp(abs(np.log(measured / predicted)))
        return apart / relation.factor - 1.0
    target = relation.factor * predicted
    gap = measured - target
    if relation.sign == "==":
        gap = abs(gap)
    elif relation.sign in (">", ">="):
        gap = -gap
    if relative:
        gap = gap / abs(target).where(target != 0, 1.0)
    return gap


def _as_array(values: Values) -> xr.DataArray:
    if isinstance(values, xr.DataArray):
        return values
    return xr.DataArray(np.asarray(values, dtype=np.float64))


@dataclass(frozen=True)
class Check:
    """A statement of a claim in numbers: `measured` `relation` `predicted`.

    `form` is the paper as printed, its correction, or the premise of a conditional statement.
    `training` marks the joint dynamics of Y and Z, as opposed to the algebra and the reduced
    dynamics (Eq. 10) that the paper analyses. `relation` and `tolerance` are the claim's
    own unless they are given.
    """

    about: str
    predicted: Values
    measured: Values
    relation: Relation | None = None
    relative: bool = True
    tolerance: float | None = None
    form: Form = "printed"
    training: bool = False

    @property
    def error(self) -> float:
        """The worst entry against the statement (negative: there is room); nan if any is nan."""
        gap = shortfall(
            self.predicted, self.measured, relation=self.relation or EQUAL, relative=self.relative
        )
        return float(gap.max(skipna=False))

    @property
    def holds(self) -> bool:
        """True if the worst entry is within the tolerance (nan is not)."""
        allowed = self.tolerance or 0.0
        strict = (self.relation or EQUAL).sign in ("<", ">")
        return self.error < allowed if strict else self.error <= allowed


Trained = partial(Check, training=True)  # a check of training, instead of the algebra


@dataclass(frozen=True)
class Hypothesis:
    """`value` `relation` `bound`, where `source` asks for it in the words of `says`.

    Parameters
    ----------
    source : str
        Who asks for it.
    says : str
        In which words.
    value : float
        What the case has.
    relation : Relation
        How they compare.
    bound : float
        With what.
    """

    source: str
    says: str
    value: float
    relation: Relation
    bound: float

    @property
    def needed(self) -> float:
        """Bound of the value: the given bound times the factor of the relation."""
        return self.relation.factor * self.bound

    @property
    def holds(self) -> bool:
        """True if the case fulfils it."""
        return Check(self.says, self.bound, self.value, self.relation, relative=False).holds

    def __str__(self) -> str:
        """Return one line: the requirement, how it is read, and the value."""
        met = "holds" if self.holds else "does not hold"
        return (
            f"{self.says} ({self.source}), read as {self.relation}: {self.value:.4g}, "
            f"needs {self.relation.sign} {self.needed:.4g}: {met}"
        )
