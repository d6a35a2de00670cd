"""What the figures say, at tiny size, and what would make them say otherwise."""

import numpy as np
import pytest
import xarray as xr
from made_small import make

from attnlab.experiments import Standing, experiment, published
from attnlab.papers.max_margin.figures import dimension


def judged(name, data):
    return experiment(f"max_margin/{name}").judge(data)


@pytest.fixture(scope="module")
def arithmetic():
    return make("max_margin/arithmetic")


def test_the_naive_form_fails_late(arithmetic):
    last = arithmetic["error"].isel(step=-1)
    assert (last.sel(how="naive") > 3 * last.sel(how="accurate")).all()
    assert judged("arithmetic", arithmetic).standing == Standing.HOLDS
    same = arithmetic.assign(
        error=arithmetic["error"].sel(how="accurate", drop=True) + 0 * arithmetic["error"]
    )
    assert judged("arithmetic", same).standing == Standing.PARTLY


def test_infeasible_instances_have_no_rank():
    rank = [[[[2.0, np.nan, 2.0], [1.0, np.nan, 2.0]], [[3.0, 3.0, 2.0], [2.0, 3.0, 2.0]]]]
    ending = [[[1, 0, 0], [1, 1, 1]], [[0, 1, 0], [0, 0, 0]], [[0, 0, 1], [0, 0, 0]]]
    found = xr.Dataset(
        {
            "rank": (("n", "d", "norm", "instance"), rank),
            "ending": (("kind", "width", "seed"), np.array(ending, float)),
        },
        {
            **{"n": [5], "d": [2, 5], "norm": ["frobenius", "nuclear"], "width": [2, 8]},
            "kind": list(dimension.KINDS),
        },
    )
    judgement = judged("dimension", found)
    assert judgement.standing == Standing.HOLDS
    assert judgement.numbers["frobenius_rank_n5_d2"] == 2  # not 5/3, with 1 for no solution
    assert dimension.draw(found).axes
    swapped = found.assign_coords(norm=["nuclear", "frobenius"])
    assert judged("dimension", swapped).standing == Standing.FAILS


def test_both_parts_are_nearest_among_what_the_filter_keeps():
    found = make("max_margin/several")
    assert (found["gap"].notnull().all(["by", "step"]) == found["kept"]).all()
    assert judged("several", found).standing == Standing.HOLDS


def test_published_rows_are_read():
    assert {row["trained"] for row in published(dimension.__file__, "local_convergence")} == {
        "W",
        "KQ",
    }
    assert len(published(dimension.__file__, "several_tokens")) == 4
