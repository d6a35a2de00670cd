"""Numbers with their uncertainty, and every number of a study on each half of its seeds."""

import numpy as np
import pytest
import xarray as xr

from attnlab.experiments import (
    Estimate,
    Judgement,
    Standing,
    apart,
    jackknife,
    mean,
    on_halves,
    share,
    unsettled,
)
from attnlab.experiments.estimate import count_of, coverage, median, number_name, numbers_of, power


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = xr.DataArray(np.random.default_rng(0).normal(size=12), dims="seed")
    estimate = mean(values)
    assert estimate.value == pytest.approx(float(values.mean()))
    assert estimate.error == pytest.approx(float(values.std(ddof=1)) / np.sqrt(12))
    assert estimate.count == 12


def test_the_jackknife_covers_a_slope():
    """Check that of many samples, about 68 % have the true exponent within one standard error."""
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


def test_one_seed_has_no_error(recwarn):
    of = mean(xr.DataArray([2.0], dims="seed"))
    assert of.value == 2 and np.isnan(of.error) and not recwarn


def test_estimates_are_shown_with_their_error():
    estimate = Estimate(0.12345, 0.0312, 8)
    assert str(estimate) == "0.123 ± 0.03"
    assert estimate.numbers("slope") == {"slope": 0.12345, "slope_error": 0.0312}


def judge(runs):
    numbers = mean(runs["value"]).numbers("value") | {"told": float(runs["value"].max())}
    return Judgement(Standing.OPEN, "", "", "", numbers)


def test_halves_of_one_kind_agree_and_of_two_kinds_do_not():
    value = np.random.default_rng(0).normal(size=20)
    runs = xr.Dataset({"value": ("seed", value)})
    halves = on_halves(judge, runs)
    assert [half["value"] for half in halves] == [value[:10].mean(), value[10:].mean()]
    assert unsettled(halves) == {}
    assert list(apart(halves)) == ["value"]  # what has no error cannot be held against one
    value[10:] += 3.0
    by = unsettled(on_halves(judge, runs.assign(value=("seed", value))))
    assert by["value"] > 3


def test_halves_without_a_spread_or_without_a_value():
    same, other = {"a": 1.0, "a_error": 0.0}, {"a": 0.9, "a_error": 0.0}
    assert unsettled([same, same]) == {}
    assert unsettled([same, other]) == {"a": np.inf}
    assert list(unsettled([same, {"a": np.nan, "a_error": 0.1}])) == ["a"]


def test_a_share_is_printed_as_a_count():
    hits = xr.DataArray([[1.0, 1.0, np.nan], [1.0, 0.0, 1.0]], dims=("seed", "token"))
    found = share(hits)
    assert str(found) == "4 of 5"
    assert found.value == 0.8
    assert found.error > 0
    assert str(share(xr.ones_like(hits))) == "6 of 6"


@pytest.mark.parametrize(("seeds", "chance"), [(2, 0.5), (3, 0.75), (5, 0.9375), (12, 0.9614)])
def test_the_interval_of_a_median_covers_as_often_as_it_says_and_stays_in_range(seeds, chance):
    """Entropies that gather near 0 and near the most there is, and two equal runs of each start."""
    assert coverage(seeds) == pytest.approx(chance, abs=1e-4)
    rng = np.random.default_rng(seeds)
    most, tries = 2.63, 2000
    starts = most * rng.beta(0.4, 0.3, size=(tries, seeds))
    centre = np.median(most * rng.beta(0.4, 0.3, size=200_000))
    within = 0
    for start in starts:
        runs = xr.DataArray([start, start, np.full(seeds, np.nan)], dims=("rate", "seed"))
        found = median(runs)
        assert 0 <= found.low <= found.value <= found.high <= most
        assert found.count == seeds
        within += found.low <= centre <= found.high
    assert within / tries == pytest.approx(chance, abs=0.03)


def test_the_interval_of_a_median_of_few_seeds_is_its_range():
    none = median(xr.DataArray([np.nan, np.nan], dims="seed"))
    assert (none.count, none.told()) == (0, "-")
    assert median(xr.DataArray([2.33, np.nan], dims="seed")).told() == "2.33"
    assert median(xr.DataArray([1.82, 2.34, np.nan], dims="seed")).told() == "2.08 (1.82 to 2.34)"


def test_an_estimate_is_clear_of_a_bound_by_two_errors_and_has_an_interval_by_students_t():
    found = Estimate(1.0, 0.1, 5)
    assert found.below(1.3) and not found.below(1.15)
    assert found.above(0.7) and not found.above(0.85)
    low, high = found.interval()
    assert (low, high) == pytest.approx((1 - 0.2776, 1 + 0.2776), abs=1e-4)  # t of 4 at 97.5 %


def test_numbers_of_estimates_go_by_their_names():
    slow = number_name("T = 8 (long)")
    found = numbers_of({"fall": Estimate(1.0, 0.1, 5), slow: Estimate(2, 0, 5)})
    assert found == {"fall": 1.0, "fall_error": 0.1, "t_8_long": 2, "t_8_long_error": 0}
    assert count_of(xr.DataArray([True, False, True])) == "2 of 3"
