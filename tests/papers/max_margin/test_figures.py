"""What the figures say, at tiny size, and what would make them say otherwise."""

import pytest
from made_small import make

from attnlab.experiments import Standing, experiment
from attnlab.papers.max_margin.figures import published


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
    found = make("max_margin/dimension")
    rank = found["rank"]
    assert (
        rank.sel(norm="nuclear") <= rank.sel(norm="frobenius")
    ).sum() == rank.notnull().sum() / 2
    assert rank.sel(d=5).notnull().all()
    swapped = found.assign(rank=rank.assign_coords(norm=["nuclear", "frobenius"]))
    assert judged("dimension", swapped).standing == Standing.FAILS


def test_both_parts_are_nearest_among_what_the_filter_keeps():
    found = make("max_margin/several")
    assert (found["gap"].notnull().all(["by", "step"]) == found["kept"]).all()
    assert judged("several", found).standing == Standing.HOLDS


def test_paths_turn_to_the_solution():
    found = make("max_margin/planar")
    assert (found["error"].isel(step=-1) < found["error"].isel(step=0)).all()


def test_published_rows_are_read():
    assert {row["trained"] for row in published("local_convergence")} == {"W", "KQ"}
    assert len(published("several_tokens")) == 4
