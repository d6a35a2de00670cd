"""Every number of a study on each half of its seeds."""

import numpy as np
import xarray as xr

from attnlab.figures.finding import Finding
from attnlab.studies import Answer, apart, on_halves, unsettled
from attnlab.studies.estimate import mean, share


def judge(runs):
    numbers = mean(runs["value"]).numbers("value") | {"told": float(runs["value"].max())}
    return Finding(Answer.OPEN, "", "", "", numbers)


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


def test_a_share_is_told_as_a_count():
    hits = xr.DataArray([[1.0, 1.0, np.nan], [1.0, 0.0, 1.0]], dims=("seed", "token"))
    found = share(hits)
    assert str(found) == "4 of 5"
    assert found.value == 0.8
    assert found.error > 0
    assert str(share(xr.ones_like(hits))) == "6 of 6"
