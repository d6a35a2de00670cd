"""The one subtraction, and what a check makes of it."""

import numpy as np
import pytest
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.theory import Check, shortfall
from attnlab.theory.relation import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL


def test_labels_must_agree():
    here, there = (
        xr.DataArray([1.0, 2.0], dims="token", coords={"token": token})
        for token in ([0, 1], [0, 2])
    )
    with pytest.raises(ValueError, match="token"):
        shortfall(here, there, relation=EQUAL, relative=False)


def test_arrays_without_labels_have_one_shape_or_one_is_a_number():
    measured = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert Check("x", 1.0, measured, AT_LEAST).error == 0.0
    assert Check("x", measured, measured, tolerance=0.0).holds
    assert Check("x", 1.0, xr.DataArray([1.0, 3.0], dims="n"), AT_LEAST).error == 0.0
    with pytest.raises(ValueError, match="conflicting"):
        _ = Check("x", [1.0, 2.0, 3.0], [1.0, 2.0]).error
    with pytest.raises(InputError, match="dims"):  # numpy would repeat the row
        _ = Check("x", [1.0, 2.0], measured).error


@pytest.mark.parametrize(
    ("relation", "measured", "error"),
    [
        (EQUAL, [1.5, 4.0], 0.5),
        (AT_MOST, [1.5, 3.0], 0.5),
        (BELOW, [0.5, 3.0], -0.25),
        (AT_LEAST, [0.5, 4.0], 0.5),
        (ABOVE, [2.0, 8.0], -1.0),
    ],
)
def test_positive_entries_speak_against_the_statement(relation, measured, error):
    check = Check("x", [1.0, 4.0], measured, relation)
    assert check.error == pytest.approx(error)
    assert check.holds is (error < 0)


def test_relative_error_is_absolute_where_nothing_is_predicted():
    check = Check("x", [0.0, 100.0], [1e-3, 100.1])
    assert check.error == pytest.approx(1e-3)


def test_strict_relations_refuse_equality():
    same = [1.0], [1.0]
    assert Check("x", *same, AT_MOST).holds
    assert not Check("x", *same, BELOW).holds


def test_nan_never_holds():
    for relation in (EQUAL, AT_MOST, BELOW, AT_LEAST, ABOVE):
        check = Check("x", 0.0, np.nan, relation, tolerance=1e9)
        assert not check.holds
