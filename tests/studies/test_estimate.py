"""Numbers with their uncertainty."""

import numpy as np
import pytest
import xarray as xr

from attnlab.studies import Estimate, jackknife
from attnlab.studies.estimate import mean, power


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = xr.DataArray(np.random.default_rng(0).normal(size=12), dims="seed")
    estimate = mean(values)
    assert estimate.value == pytest.approx(float(values.mean()))
    assert estimate.error == pytest.approx(float(values.std(ddof=1)) / np.sqrt(12))
    assert estimate.count == 12


def test_the_jackknife_covers_a_slope():
    """Of many samples, about 68 % have the true exponent within one standard error."""
    rng = np.random.default_rng(1)
    x = np.array([1.0, 2.0, 4.0, 8.0])
    hits = 0
    for _ in range(80):
        noise = rng.normal(scale=0.1, size=(10, 4))
        y = xr.DataArray(x**-0.5 * np.exp(noise), dims=("seed", "x"))
        estimate = jackknife(lambda kept: power(x, kept.mean("seed").values), y)
        hits += abs(estimate.value + 0.5) < estimate.error
    assert 40 < hits < 68


def test_what_has_no_value_stays_without():
    assert np.isnan(mean(xr.DataArray([1.0, np.nan], dims="seed")).value)
    assert np.isnan(power([1, 2], [1, 0]))


def test_estimates_are_shown_with_their_error():
    estimate = Estimate(0.12345, 0.0312, 8)
    assert str(estimate) == "0.123 ± 0.03"
    assert estimate.numbers("slope") == {"slope": 0.12345, "slope_error": 0.0312}
