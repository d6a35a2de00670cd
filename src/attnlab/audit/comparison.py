"""Prediction against measurement: two labelled arrays of one schema, and one subtraction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

Relation = Literal["==", "<=", "<", ">=", ">"]
Form = Literal["printed", "corrected"]


def labelled(values: ArrayLike, **coords: Any) -> xr.DataArray:
    """`values` with one dim per keyword, in their order; a keyword holds the labels of its dim."""
    array = np.asarray(values, dtype=np.float64)
    return xr.DataArray(array, dims=tuple(coords), coords=dict(coords))


def shortfall(
    predicted: xr.DataArray, measured: xr.DataArray, *, relation: Relation, relative: bool
) -> xr.DataArray:
    """measured - predicted, signed so that a positive entry speaks against the statement.

    The labels must agree exactly. Relative to the size of the prediction, entry by entry, where
    asked for (an entry predicted to be 0 stays absolute).
    """
    predicted, measured = xr.align(predicted, measured, join="exact")
    gap = measured - predicted
    if relation == "==":
        gap = abs(gap)
    elif relation in (">", ">="):
        gap = -gap
    if relative:
        gap = gap / abs(predicted).where(predicted != 0, 1.0)
    return gap


@dataclass(frozen=True)
class Check:
    """One thing that a claim says, as numbers: `measured` `relation` `predicted`.

    `form` tells the paper as printed from its correction; `training` tells the joint dynamics of
    Y and Z from the algebra and the reduced dynamics (Eq. 10) that the paper analyses.
    `tolerance` is the claim's own unless it is given.
    """

    about: str
    predicted: xr.DataArray
    measured: xr.DataArray
    relation: Relation = "=="
    relative: bool = True
    tolerance: float | None = None
    form: Form = "printed"
    training: bool = False

    @property
    def error(self) -> float:
        """The worst entry against the statement (negative: there is room); nan if any is nan."""
        gap = shortfall(
            self.predicted, self.measured, relation=self.relation, relative=self.relative
        )
        return float(gap.max(skipna=False))

    @property
    def holds(self) -> bool:
        """Whether the worst entry is within the tolerance (nan is not)."""
        allowed = self.tolerance or 0.0
        return self.error < allowed if self.relation in ("<", ">") else self.error <= allowed
