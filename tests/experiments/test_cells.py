"""Grids of cells: the order of their axes, sizes that differ, and the fraction done."""

import numpy as np
import pytest
import xarray as xr

from attnlab.experiments.cells import over_cells


def cell(size, name, report):
    report(0.5)
    return xr.Dataset(
        {"value": ("token", np.arange(size) + 10.0 * ord(name))}, {"token": np.arange(size)}
    )


def test_cells_are_put_together_along_their_axes_in_the_order_given():
    heard = []
    found = over_cells(cell, heard.append, size=(3, 2), name=("b", "a"))
    assert found["value"].dims == ("size", "name", "token")
    assert found["size"].values.tolist() == [3, 2]
    assert found["name"].dims == ("name",)
    assert found["value"].sel(size=3, name="a").values.tolist() == [970.0, 971.0, 972.0]
    # smaller cells are filled up
    assert found["value"].sel(size=2).isnull().sum("token").values.tolist() == [1, 1]
    assert heard == sorted(heard)
    assert heard[-1] == pytest.approx(1.0)
