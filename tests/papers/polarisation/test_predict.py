"""Predictions of runs against training, and the runs that theories refuse."""

import numpy as np
import pytest

from attnlab import Flow, Record, Simulation, Steps, predict, simulate
from attnlab.files.errors import InputError
from attnlab.models import Extended
from attnlab.papers.polarisation import theory
from attnlab.papers.polarisation.classes import polarisation_pair
from attnlab.papers.polarisation.model import FactoredAttention, TiedAttention, ValueAttention
from attnlab.papers.polarisation.task import Direction, Distribution, Regression, StickyChain
from attnlab.tasks.classes import SequenceClasses

RATES = {"value": 1.0, "attention": 0.5}
ALONE = Extended(normalization="none")
EMPTY = ValueAttention(5, value_scale=0.0, logit_scale=0.1)


def run(task, model, time=20.0, **settings):
    settings = {"learning_rate": RATES, "loss": "task", "dtype": "float64"} | settings
    return Simulation(
        task,
        model,
        motion=Flow(time),
        record=Record(("weights", "value_norms", "parameters"), at=[0.0, time / 3, time]),
        **settings,
    )


def test_the_path_is_the_training():
    """Nothing is fitted; claim pol-one-clock has softmax and three losses at equal rates."""
    one = run(Direction(4), ValueAttention(5, "l2", logit_scale=0.3))
    trained, path = simulate(one, progress=False), predict(one, theory="polarisation")
    moved = abs(trained["parameters.attention"] - trained["parameters.attention"][:, 0]).max()
    assert moved > 0.05
    for name in ("weights", "value_norms", "parameters.attention", "parameters.value"):
        np.testing.assert_allclose(path[name], trained[name], atol=2e-8)
        assert path[name].dims == trained[name].dims
    assert path["assumption_holds"].all()


def test_the_level_below_starts_well_from_nearly_even_weights():
    one = run(Distribution(4, None), EMPTY)
    even, path = (
        predict(one, theory=of)["parameters.attention"].isel(seed=0)
        for of in ("polarisation-even", "polarisation")
    )
    np.testing.assert_allclose(even[0], path[0])
    assert 0.01 < float(abs(even - path).max() / abs(path - path[0]).max()) < 0.5


def test_values_off_the_direction_are_an_assumption():
    one = run(Regression(4, norm=3.0), ValueAttention(5, value_scale=0.5))
    assert not predict(one, theory="polarisation")["assumption_holds"].any()


def test_classes_without_a_shared_token_polarise_alone():
    classes = SequenceClasses(
        [{0: 0.5, 1: 0.3, 2: 0.2}, {3: 0.6, 4: 0.4}],
        query=[0, 0],
        next_token=[4, 5],
        vocab_size=6,
        prior=[0.3, 0.7],
    )
    one = Simulation(
        classes,
        ALONE,
        motion=Flow(300.0),
        eta_y=2.0,
        eta_z=1.0,
        record=Record("logits", at=[0.0, 10.0, 300.0]),
        dtype="float64",
    )
    found, said = simulate(one, progress=False), predict(one, theory="polarisation-class")
    np.testing.assert_allclose(said["attention_logits"], found["attention_logits"], atol=1e-7)
    assert abs(found["attention_logits"]).max() > 1
    assert said["assumption_holds"].all()
    shared = predict(one, theory="polarisation-class", task=polarisation_pair())
    assert shared["assumption_value"][0] == pytest.approx(0.4)  # mass of the common tokens
    z = shared["attention_logits"].isel(seed=0, time=-1, query=0).values
    assert z[2] == pytest.approx(z[4]) and z[2] > 1
    np.testing.assert_allclose(z[[0, 1, 5]], z[3])  # as frequent as the common tokens


def test_stage_one_counts_time_by_the_learning_rate():
    """That it is training's stage I is in test_focus.py, and measured by claim fd-condense."""
    one = Simulation(
        StickyChain(),
        FactoredAttention(4),
        motion=Flow(9.0),
        learning_rate=2.0,
        record=Record(("loss", "attention", "parameters"), at=[0.0, 3.0, 9.0]),
        dtype="float64",
    )
    said = predict(one, theory="dilution-stage-one").isel(seed=0)
    start = [said[f"parameters.{name}"][0].values for name in ("embedding", "decoder")]
    pi = one.task.frequencies
    stage = theory.stage_one(pi, *start, [0.0, 6.0, 18.0])
    np.testing.assert_allclose(said["loss"], stage.loss)
    np.testing.assert_allclose(said["parameters.embedding"], stage.embedding)
    np.testing.assert_array_equal(said["attention"], np.broadcast_to(pi, (3, 4, 4)))
    assert stage.loss[0] - stage.loss[-1] > 0.5


@pytest.mark.parametrize(
    ("made", "theory", "says"),
    [
        (lambda: run(Direction(4), TiedAttention(), learning_rate=1.0), "polarisation", "model: "),
        (lambda: run(Direction(4), ValueAttention(5, "relu")), "polarisation", "ends at the kink"),
        (lambda: run(Regression(4, 2.0), EMPTY), "polarisation", "task: the path is that of one"),
        (lambda: run(Distribution(4), EMPTY), "polarisation", "task: the path is that of one"),
        (
            lambda: run(Direction(4), ValueAttention(5, "l2")),
            "polarisation-even",
            "this level is about softmax",
        ),
        (
            lambda: Simulation(polarisation_pair(), motion=Flow(1.0)),
            "polarisation-class",
            "model: the theory is about attention that nothing normalises",
        ),
        (
            lambda: Simulation(polarisation_pair(), ALONE, motion=Steps(5, "adam")),
            "polarisation-class",
            "optimizer: ",
        ),
        (lambda: run(Direction(4), EMPTY), "dilution-stage-one", "task, model: stage I is about"),
    ],
)
def test_runs_that_a_theory_does_not_cover_are_refused(made, theory, says):
    with pytest.raises(InputError, match=says):
        predict(made(), theory=theory)


def test_stage_one_takes_one_learning_rate():
    rates = {"embedding": 1.0, "query": 1.0, "key": 1.0, "decoder": 2.0}
    one = Simulation(StickyChain(), FactoredAttention(4), motion=Flow(1.0), learning_rate=rates)
    with pytest.raises(InputError, match="learning_rate: stage I is about one"):
        predict(one, theory="dilution-stage-one")
