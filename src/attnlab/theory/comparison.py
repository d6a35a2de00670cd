"""Prediction against measurement: two arrays of one schema, and one subtraction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from attnlab.files.errors import InputError
from attnlab.theory.relation import EQUAL, Relation

Form = Literal["printed", "corrected", "premise"]
Values = xr.DataArray | ArrayLike


def shortfall(
    predicted: Values, measured: Values, *, relation: Relation, relative: bool
) -> xr.DataArray:
    """Distance of each entry from the relation; a positive one speaks against it.

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
    """One thing that a claim says, as numbers: `measured` `relation` `predicted`.

    `form` tells the paper as printed from its correction, and both from the premise of a
    conditional statement; `training` tells the joint dynamics of Y and Z from the algebra and the
    reduced dynamics (Eq. 10) that the paper analyses. `relation` and `tolerance` are the claim's
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
