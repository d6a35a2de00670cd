"""The levels of the theory against descent in numpy, each other, and their limits."""

from dataclasses import replace

import numpy as np
import pytest

from attnlab import Simulation
from attnlab.files.errors import InputError
from attnlab.papers.max_margin import runs, theory
from attnlab.papers.max_margin.evidence import EVIDENCE
from attnlab.papers.max_margin.model import CrossAttention, normalised, released
from attnlab.papers.max_margin.predict import LateTraining, MaxMargin, RegularisationPath
from attnlab.theory.facts import Facts

AT = (10, 100, 1000)


def run_of(model=None, optimizer=normalised, rate=0.1, **task):
    model = model or CrossAttention(scale=0)
    return runs.descent(
        replace(runs.EVEN, **task), model, at=AT, seeds=1, optimizer=optimizer, rate=rate
    )


def facts_of(run, start=None, seed=0):
    """Return the facts of a run, drawn by numpy, from W = 0 unless a start is given."""
    task = run.task
    data = task.instance(np.random.default_rng(seed).standard_normal(task.numbers))
    start = start or {"attention": np.zeros((task.vocab_size, data["z"].shape[1]))}
    return Facts(run, seed, dict.fromkeys(start, run.grid.rates()["attention"][0]), data, start)


def trained(facts, step, at=AT):
    """Return the directions of W at these steps of `step(gradient)`."""
    x, z, scores = (facts.data[name] for name in ("x", "z", "scores"))
    W, found = facts.start["attention"], []
    for t in range(1, max(at) + 1):
        W = W + step(theory.loss_gradient(x, z, scores, W))
        if t in at:
            found.append(W / np.linalg.norm(W))
    return np.stack(found)


def unit_step(gradient):
    return -0.1 * gradient.value / np.linalg.norm(gradient.value)


def errors(level, facts, found, at=AT):
    said = level.predict(facts, np.array(at, float))["direction"][1]
    return np.linalg.norm(said - found, axis=(-2, -1))


def test_each_level_is_nearer_late_and_the_path_is_nearest_at_all_times():
    """In training, on file: a seed is trained again by test_trainings."""
    of = EVIDENCE.read("levels")
    direction, late, path = (
        of[f"max-margin{level}_direction"].mean("seed").values for level in ("", "-late", "-path")
    )
    assert (path < direction).all() and (path < late).all() and path.max() < 0.12
    assert late[-1] < direction[-1] < 0.1
    assert of["max-margin-path_attention"].max() < 0.01 < 0.3 < of["still_attention"].max()


def test_limits_at_no_time_and_after_all_time():
    facts = facts_of(run_of())
    best = np.eye(5)[facts.data["scores"].argmax(-1)]
    ends = []
    for level in (MaxMargin(), LateTraining()):
        said = level.predict(facts, np.array([0.0, np.inf]))
        np.testing.assert_array_equal(said["attention"][1][1], best)
        ends.append(said["direction"][1][1])
        if type(level) is MaxMargin:
            np.testing.assert_allclose(said["attention"][1][0], 0.2)
    np.testing.assert_array_equal(*ends)
    assert all(of.holds for of in MaxMargin().assumptions(facts))
    random = MaxMargin().assumptions(facts_of(run_of(scores="random")))
    assert [of.holds for of in random] == [False, True, True]


def test_late_training_keeps_what_the_start_leaves():
    start = {"attention": np.random.default_rng(1).uniform(-0.3, 0.3, (12, 12))}
    facts = facts_of(run_of(CrossAttention()), start)
    found = trained(facts, unit_step)
    direction, late = (errors(of, facts, found)[-1] for of in (MaxMargin(), LateTraining()))
    assert late < 0.8 * direction < 0.1


def test_plain_descent_is_predicted_late():
    facts = facts_of(run_of(optimizer="sgd", rate=1.0))
    found = trained(facts, lambda gradient: -gradient.gradient)
    for level in (MaxMargin(), LateTraining()):
        assert errors(level, facts, found)[-1] < 0.3
    path = RegularisationPath()
    assert errors(path, facts, found)[-1] < 0.1


def test_factors_grow_as_the_square_of_time():
    rng, rate = np.random.default_rng(1), 0.1
    start = dict(zip(("key", "query"), rng.uniform(-1, 1, (2, 12, 12)) / 12**0.5, strict=True))
    run = run_of(CrossAttention(width=12))
    data = facts_of(run_of()).data
    facts = Facts(run, 0, {"key": rate, "query": rate}, data, start)
    x, z, scores = (data[name] for name in ("x", "z", "scores"))
    (K, Q), sizes = start.values(), []
    for t in range(1, 101):
        g = theory.loss_gradient(x, z, scores, K @ Q.T).value
        by_key, by_query = theory.factor_gradients(g, K, Q)
        K = K - rate * by_key / np.linalg.norm(by_key)
        Q = Q - rate * by_query / np.linalg.norm(by_query)
        if t in (60, 100):
            sizes.append(np.linalg.norm(K @ Q.T, "nuc"))
    np.testing.assert_allclose(sizes, [36, 100], rtol=0.25)
    W = K @ Q.T
    assert errors(MaxMargin(), facts, W / np.linalg.norm(W), (100,)) < 0.5


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
        theory.check(run)
