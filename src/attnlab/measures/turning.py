"""Turning points of a curve: does the entropy of attention dip, bounce or cycle?

From its start on a curve goes down to a first minimum, back up, and down again to a second one. How
far it comes is its shape:

- *no fall*: it never goes down by as much as a turn;
- a *dip* goes down and has not come back by as much at the end;
- a *bounce* comes back and stays;
- a *cycle* comes back and falls again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from attnlab.files.errors import refuse_if

if TYPE_CHECKING:
    from jaxtyping import Float

SHAPES = ("no fall", "dip", "bounce", "cycle")
TURNS = ("first", "back", "second")  # minimum, return, minimum


def turning_points(curves: xr.DataArray, *, least: float, along: str = "step") -> xr.Dataset:
    """Find where curves along a dim turn, by at least `least`.

    The result has `shape` (an index of SHAPES), and for each of TURNS the value there and, with
    `_at`, its position along the dim; nan for turns that a curve does not reach. The last extreme
    of a curve may be one only because the curve ends there.

    Parameters
    ----------
    curves : xarray.DataArray
        The curves.
    least : float
        Smaller turns do not count.
    along : str, optional
        The dim.

    Returns
    -------
    xarray.Dataset
        The shape of each curve, and its turns.
    """
    refuse_if(not least > 0, "least", "a positive number", least)
    where = curves[along].values

    def of_curve(values: NDArray[np.floating]) -> NDArray[np.float64]:
        row = np.full(1 + 2 * len(TURNS), np.nan)
        if np.isnan(values).all():
            return row
        found = extremes(values, least)
        row[0] = min(len(found), len(SHAPES)) - 1
        for i, turn in enumerate(found[1 : 1 + len(TURNS)]):
            row[1 + 2 * i : 3 + 2 * i] = values[turn], where[turn]
        return row

    names = ["shape", *(name + end for name in TURNS for end in ("", "_at"))]
    found = xr.apply_ufunc(
        of_curve, curves, input_core_dims=[[along]], output_core_dims=[["what"]], vectorize=True
    )
    return found.assign_coords(what=names).to_dataset("what")


def extremes(values: Float[Any, " records"], least: float) -> list[int]:
    """Return the indices at which a curve is highest, lowest, highest, ... in turn.

    The curve leaves each but the last by at least `least`, so there is one more than it has turns.
    """
    found, extreme, sign = [], 0, 1  # it is followed upwards first
    for i, value in enumerate(values):
        if sign * (value - values[extreme]) > 0:
            extreme = i
        elif sign * (values[extreme] - value) >= least:
            found.append(extreme)
            extreme, sign = i, -sign
    return [*found, extreme]
