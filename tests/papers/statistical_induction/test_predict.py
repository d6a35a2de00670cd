"""Predictions of runs against training, and runs that theories refuse."""

import numpy as np
import pytest
from scipy.special import log_softmax

from attnlab import Batches, Record, Simulation, Steps, predict, simulate
from attnlab.files.errors import InputError
from attnlab.papers.statistical_induction import runs, theory
from attnlab.papers.statistical_induction.distances import HeldOut, distances
from attnlab.papers.statistical_induction.model import MinimalInduction
from attnlab.tasks import MarkovChains

AT = (0, 1, 10, 30, 50)


@pytest.fixture(scope="module")
def trained():
    run = runs.minimal(2, at=AT, seeds=4, length=30)
    return run, simulate(run, progress=False)


def test_descent_is_the_mean_of_training(trained):
    """Nothing is fitted, and batches are of other chains."""
    run, found = trained
    said = predict(run, theory="induction-descent")
    for name, off in (("diagonal", 0.02), ("off_diagonal", 0.01), ("lag_mass", 0.08)):
        assert said[name].dims == found[name].dims
        np.testing.assert_allclose(said[name][0], found[name].mean("seed"), atol=off)
    assert found["lag_mass"].isel(step=-1, lag=1).min() > 0.25
    assert said["assumption_holds"].all()


def test_distances_are_those_of_the_logits(trained):
    """At the last position, by the theory's own forward pass."""
    run, result = trained
    last = result.isel(seed=[0], step=[-1])
    found, of = distances(last, chains=50), HeldOut.of(run.task, 50)
    W, v = (last[f"parameters.{name}"].values[0, 0].astype(float) for name in ("second", "first"))
    logs = log_softmax(theory.logits(of.tokens, W, v)[:, -1], axis=-1)
    for name, of_what in (("kl", of.row), ("unigram", of.rules["unigram"])):
        expected = theory.divergence(of_what, logs).mean()
        np.testing.assert_allclose(found[name], expected, atol=1e-5)


def test_start_is_right_at_first_and_wrong_later(trained):
    run, found = trained
    said = predict(run, theory="induction-start")
    gap = abs(said["diagonal"] - found["diagonal"]).mean("seed").values
    assert gap[1] < 0.01 and gap[-1] > 0.1
    np.testing.assert_allclose(said["parameters.first"].isel(step=1), 0)


def test_the_end_does_not_depend_on_time(trained):
    run, _ = trained
    said = predict(run, theory="induction-end", at=[0, np.inf])
    assert said["diagonal"].values.std() == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(said["lag_mass"].isel(lag=1), 1)


def test_doubly_stochastic_chains_leave_lag_one():
    """W off the diagonal falls, since the loss of these chains does not fix it."""
    rng = np.random.default_rng(0)
    x = theory.sample(rng, theory.doubly(rng, 100, 3), 31)
    W, v = 0.2 * np.eye(3), 4.0 * (np.arange(30) == 1)
    at = [0, 30]
    W, _ = theory.descend(x[:, :-1], x[:, 1:], W, v, at, (0.02, 10.0))
    assert W[1, 0, 1] < -0.02


def refused(model=None, task=None, **settings):
    return Simulation(
        task or MarkovChains(2, 8),
        model or MinimalInduction(),
        **{"motion": Steps(4), "gradient": Batches(4), "learning_rate": 0.1} | settings,
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: refused(MinimalInduction(first="linear")), "model: the theory is about"),
        (lambda: refused(task=MarkovChains(2, 8, 0.5)), "task: the theory is about"),
        (lambda: refused(task=MarkovChains(2, 8, start="uniform")), "task.start: "),
        (lambda: refused(motion=Steps(4, "adam")), "optimizer: "),
    ],
)
def test_runs_that_the_theory_does_not_cover_are_refused(make, says):
    with pytest.raises(InputError, match=says):
        predict(make(), theory="induction-descent")


def test_large_starts_are_outside_the_assumptions():
    run = refused(MinimalInduction(scale=1.0), record=Record("diagonal", at=[0, 2]))
    assert not predict(run, theory="induction-start")["assumption_holds"].any()
