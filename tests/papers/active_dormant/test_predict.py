"""Predictions of the reparametrised head against training, and runs that theories refuse."""

import pytest

from attnlab import Flow, Record, Simulation, Steps, predict, simulate
from attnlab.files.errors import InputError
from attnlab.papers.active_dormant.head import SinkFlow
from attnlab.papers.active_dormant.predict import DormantFlow, DormantLate, DormantSink

NAMES = ("parameters.sink", "parameters.value", "sink_mass", "value_size")
BOTH = {"sink": 1.0, "value": 1.0}
ALONE = {"sink": 1.0, "value": None}


def run(contexts, times, learning_rate=BOTH):
    return Simulation(
        SinkFlow(contexts=contexts),
        motion=Flow(times[-1], rtol=1e-8, atol=1e-10),
        learning_rate=learning_rate,
        dtype="float64",
        record=Record(what=("sink_mass", "value_size", "parameters"), at=times),
    )


def gaps(trained, predicted):
    for name in NAMES:
        assert trained[name].dims == predicted[name].dims
    return {name: abs(trained[name] - predicted[name]).isel(seed=0) for name in NAMES}


def test_one_context_against_training():
    """The solved flow is the training; the end point is known in advance, and has no sink."""
    one = run(0, (0.0, 1e2, 1e4, 1e8))
    trained = simulate(one, progress=False)
    for gap in gaps(trained, predict(one, theory=DormantFlow())).values():
        assert gap.max() < 1e-4
    late = gaps(trained, predict(one, theory=DormantLate()))
    assert late["parameters.sink"].isel(time=-1).max() < 2e-3
    assert late["value_size"][-1] < 0.02 < late["value_size"][0]
    assert trained["sink_mass"].isel(time=-1).max() < 0.2


def test_contexts_that_differ_against_training():
    """Live while it is not stiff; `test_evidence` compares what is on file to the end."""
    one = run(48, (0.0, 1e3, 1e4, 1e5))
    trained = simulate(one, progress=False)
    for gap in gaps(trained, predict(one, theory=DormantFlow())).values():
        assert gap.max() < 1e-3
    assert trained["value_size"][0].max() > 1


def test_the_sink_alone_against_training():
    one = run(0, (0.0, 1e5, 1e7, 1e9), ALONE)
    trained, predicted = simulate(one, progress=False), predict(one, theory=DormantSink())
    gap = gaps(trained, predicted)
    assert gap["parameters.sink"].max() < 0.15
    assert gap["parameters.sink"].isel(time=[0, -1]).max() < 0.005
    assert gap["value_size"].max() == 0
    assert predicted["assumption_holds"].all()
    moved = trained["parameters.sink"].isel(time=-1).min()
    assert moved > 5  # a baseline in which nothing moves is off by this


@pytest.mark.parametrize(
    ("theory", "one", "says"),
    [
        (DormantSink(), run(0, (0.0, 1.0)), "learning_rate: the theory moves sink; give"),
        (DormantLate(), run(0, (0.0, 1.0), ALONE), "the theory moves sink and value"),
        (DormantFlow(), Simulation("syn-small"), "task: the theory is about"),
        (
            DormantFlow(),
            Simulation(SinkFlow(), motion=Steps(2, "adam"), learning_rate=0.1),
            "optimizer: the theory is about gradient descent",
        ),
    ],
)
def test_theories_refuse_other_runs(theory, one, says):
    with pytest.raises(InputError, match=says):
        predict(one, theory=theory)
