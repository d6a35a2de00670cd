"""Where curves turn."""

import numpy as np
import pytest
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.measures import turning_points
from attnlab.measures.turning import SHAPES, extremes

CURVE = np.array([2.0, 2.1, 1.5, 1.52, 1.4, 1.9, 1.88, 1.0, 1.2, np.nan])


def test_extremes_alternate_and_small_turns_do_not_count():
    assert extremes(CURVE, 0.1) == [1, 4, 5, 7, 8]
    assert extremes(CURVE, 0.3) == [1, 4, 5, 7]
    assert extremes(np.full(3, np.nan), 0.1) == [0]


@pytest.mark.parametrize(
    ("values", "shape", "turns"),
    [
        ([2.0, 1.99, 2.0, 2.2, 2.15], "no fall", {}),
        ([2.0, 1.0, 0.9, 0.95, 0.9], "dip", {"first": (0.9, 20)}),
        ([2.0, 1.0, 1.5, 1.6, 1.55], "bounce", {"first": (1.0, 10), "back": (1.6, 30)}),
        (
            [2.0, 1.0, 1.5, 0.5, 1.5],
            "cycle",
            {"first": (1.0, 10), "back": (1.5, 20), "second": (0.5, 30)},
        ),
    ],
)
def test_the_shape_and_the_places_of_a_curve(values, shape, turns):
    curve = xr.DataArray(values, {"time": [0, 10, 20, 30, 40]}, "time")
    found = turning_points(curve, least=0.1, along="time")
    assert SHAPES[int(found["shape"])] == shape
    told = {
        name: (found[name].item(), found[f"{name}_at"].item())
        for name in ("first", "back", "second")
        if found[name].notnull().item()
    }
    assert told == turns


def test_of_many_curves_each_alone_and_none_of_what_is_not_there():
    curves = xr.DataArray([CURVE, np.full(10, np.nan)], dims=("seed", "step"))
    found = turning_points(curves.assign_coords(step=np.arange(10)), least=0.3)
    assert found["shape"].dims == ("seed",)
    assert found["shape"].values[0] == SHAPES.index("cycle")
    assert found.isel(seed=1).to_array().isnull().all()
    assert found["second_at"].values[0] == 7
    with pytest.raises(InputError, match="least: expected a positive number"):
        turning_points(curves, least=0.0)
