"""The levels of the theory against training, each other, and their limits."""

from dataclasses import replace

import numpy as np
import pytest

from attnlab import Population, Record, Simulation, Steps, predict, simulate
from attnlab.files.errors import InputError
from attnlab.papers.max_margin.model import CrossAttention, normalised, released
from attnlab.papers.max_margin.predict import LateTraining, MaxMargin, RegularisationPath
from attnlab.papers.max_margin.task import TokenSelection

AT = (0, 10, 100, 1000)


def run_of(model=None, optimizer=normalised, rate=0.1, **task):
    return Simulation(
        TokenSelection(**{"vocab_size": 12, "scores": "equal", **task}),
        model or CrossAttention(scale=0),
        motion=Steps(AT[-1], optimizer=optimizer),
        gradient=Population(),
        learning_rate=rate,
        loss="logistic",
        seeds=3,
        record=Record(("attention", "direction"), at=AT),
        dtype="float64",
    )


def errors(said, trained):
    """Return the direction's error over steps past the start, mean over seeds."""
    gap = (said - trained)["direction"].isel(step=slice(1, None))
    return ((gap**2).sum(["key_dim", "query_dim"]) ** 0.5).mean("seed").values


@pytest.fixture(scope="module")
def from_zero():
    run = run_of()
    return run, simulate(run, progress=False)


def test_each_level_is_nearer_late_and_the_path_is_nearest_at_all_times(from_zero):
    run, trained = from_zero
    said = [predict(run, theory=of) for of in (MaxMargin(), LateTraining(), RegularisationPath())]
    direction, late, path = (errors(of, trained) for of in said)
    assert (path < direction).all() and (path < late).all() and path.max() < 0.12
    assert late[-1] < direction[-1] < 0.1
    moved = said[-1]["attention"] - trained["attention"]
    still = trained["attention"].isel(step=0, drop=True) - trained["attention"]
    assert abs(moved).max() < 0.1 < 0.5 < abs(still).max()


def test_limits_at_no_time_and_after_all_time(from_zero):
    run, trained = from_zero
    said = predict(run, theory=MaxMargin(), at=[0, np.inf])
    np.testing.assert_allclose(said["attention"].isel(step=0), 0.2)
    best = trained["attention"].isel(step=-1).argmax("token")
    np.testing.assert_array_equal(said["attention"].isel(step=1).argmax("token"), best)
    np.testing.assert_array_equal(said["attention"].isel(step=1).max("token"), 1)
    ends = [
        predict(run, theory=of, at=[np.inf])["direction"] for of in (MaxMargin(), LateTraining())
    ]
    np.testing.assert_array_equal(*ends)
    assert said["assumption_holds"].all()
    spread = run_of(scores="random")
    assert not predict(spread, theory=MaxMargin())["assumption_holds"].all()


def test_plain_descent_and_random_starts_keep_what_the_start_leaves():
    for run in (run_of(optimizer="sgd", rate=1.0), run_of(CrossAttention())):
        trained = simulate(run, progress=False)
        direction, late = (
            errors(predict(run, theory=of), trained) for of in (MaxMargin(), LateTraining())
        )
        assert late[-1] < 0.4 and direction[-1] < 0.4
    assert late[-1] < direction[-1]  # it knows what a random start leaves


def test_factors_grow_as_the_square_of_time():
    run = run_of(CrossAttention(width=12, arithmetic="scaled"))
    run = replace(run, record=Record(("attention", "direction", "matrix"), at=(0, 60, 100)))
    found = simulate(run, progress=False)
    nuclear = np.linalg.norm(found["matrix"].values[:, 1:], "nuc", axis=(-2, -1)).mean(0)
    np.testing.assert_allclose(nuclear, [36, 100], rtol=0.25)
    assert errors(predict(run, theory=MaxMargin()), found)[-1] < 0.5


@pytest.mark.parametrize(
    ("run", "theory", "match"),
    [
        (run_of(CrossAttention(hidden=3)), MaxMargin(), "hidden"),
        (run_of(optimizer="adam"), MaxMargin(), "optimizer"),
        (run_of(optimizer=released), MaxMargin(), "optimizer"),
        (run_of(CrossAttention(width=3), optimizer="sgd"), MaxMargin(), "K and Q"),
        (run_of(CrossAttention(width=3)), LateTraining(), "width"),
        (run_of(CrossAttention()), RegularisationPath(), "scale"),
        (Simulation("syn-small"), MaxMargin(), "TokenSelection"),
        (replace(run_of(), loss="square"), MaxMargin(), "logistic"),
    ],
)
def test_other_runs_are_refused(run, theory, match):
    with pytest.raises(InputError, match=match):
        predict(run, theory=theory)
