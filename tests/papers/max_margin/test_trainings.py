"""Figures at tiny size, and what would make them say otherwise; numbers on file, some trained
again. They are together because they share compiled programs."""

import numpy as np
import pytest
import xarray as xr
from made_small import make

from attnlab import simulate
from attnlab.experiments import Standing, experiment, published
from attnlab.papers.max_margin import theory
from attnlab.papers.max_margin.evidence import EVIDENCE, QUERY, TOKENS, measured
from attnlab.papers.max_margin.figures import dimension
from attnlab.papers.max_margin.runs import BY


def judged(name, data):
    return experiment(f"max_margin/{name}").judge(data)


def test_the_naive_form_fails_late():
    arithmetic = make("max_margin/arithmetic")
    last = arithmetic["error"].isel(step=-1)
    assert (last.sel(how=["naive", "released"]) > 3 * last.sel(how="accurate")).all()
    # rounding turns W away, and 2.2e-16 beside |g| ends its growth: eta t is 400
    accurate, naive, released = arithmetic["size"].isel(step=-1).mean("seed")
    assert accurate > 398 and naive < 320 and released < 160
    assert judged("arithmetic", arithmetic).standing == Standing.HOLDS
    same = arithmetic.assign(
        error=arithmetic["error"].sel(how="accurate", drop=True) + 0 * arithmetic["error"]
    )
    assert judged("arithmetic", same).standing == Standing.PARTLY


def test_infeasible_instances_have_no_rank():
    short, low = [[[2.0, np.nan, 2.0], [3.0, 3.0, 2.0]]], [[[1.0, np.nan, 2.0], [2.0, 3.0, 2.0]]]
    best = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    found = xr.Dataset(
        {
            "frobenius": (("n", "d", "instance"), short),
            "nuclear": (("n", "d", "instance"), low),
            "global": (("width", "seed"), best),
            "local": (("width", "seed"), 1 - best),
            "neither": (("width", "seed"), 0 * best),
        },
        {"n": [5], "d": [2, 5], "width": [2, 8]},
    )
    judgement = judged("dimension", found)
    assert judgement.standing == Standing.HOLDS
    assert judgement.numbers["frobenius_rank_n5_d2"] == 2  # not 5/3, with 1 for no solution
    assert dimension.draw(found).axes
    swapped = found.assign(frobenius=found["nuclear"], nuclear=found["frobenius"])
    assert judged("dimension", swapped).standing == Standing.FAILS


def test_both_parts_are_nearest_among_what_the_filter_keeps():
    found = make("max_margin/several")
    kept = found.to_dataarray().notnull()
    assert (kept.all(["variable", "step"]) == kept.any(["variable", "step"])).all()
    assert judged("several", found).standing == Standing.HOLDS
    worse = found.assign({BY[0]: found[BY[-1]]})
    assert judged("several", worse).standing == Standing.FAILS


def test_published_rows_are_read():
    assert {row["trained"] for row in published(dimension.__file__, "local_convergence")} == {
        "W",
        "KQ",
    }
    assert len(published(dimension.__file__, "several_tokens")) == 4


# Numbers on file


@pytest.mark.parametrize("name", EVIDENCE.runs)
def test_numbers_on_file_are_of_their_runs(name):
    run, found = EVIDENCE.runs[name](), EVIDENCE.read(name)
    assert found.sizes["seed"] == len(run.seeds)
    if "step" in found.dims:
        assert found["step"].values.tolist() == [*run.record.at]


def test_numbers_on_file_are_found_again():
    run, kept = EVIDENCE.runs["levels"](), EVIDENCE.read("levels")
    found = measured(run, simulate(run, progress=False))
    assert set(found) == set(kept)
    for key, of in kept.items():
        again = found[key].broadcast_like(of).transpose(*of.dims)
        np.testing.assert_allclose(again, of, rtol=1e-4, atol=1e-6)


def test_a_flow_of_sequence_classes_turns_to_the_row_of_one_hot_tokens():
    of = EVIDENCE.read("one-hot-distinct-even").isel(seed=0)
    row = theory.one_hot_margin(TOKENS, (2, 4), QUERY)[None]
    assert theory.correlation(of["z"].values[None], row) > 0.998
    assert theory.correlation(of["grown"].values[None], row) > 1 - 1e-6
