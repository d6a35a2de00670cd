"""Records: when, what, the loss on other tasks, and what fits into memory."""

import numpy as np
import pytest
from bowl import Bowl

from attnlab import (
    Batches,
    MarkovChains,
    Population,
    Record,
    Sequences,
    Simulation,
    Steps,
    Transformer,
    simulate,
)
from attnlab.files.errors import InputError
from attnlab.simulation.record import DEFAULT_RECORDS

CHAINS = Simulation(
    MarkovChains(2, 8),
    Transformer(layers=1, dim=4),
    motion=Steps(4, "adam"),
    gradient=Batches(4),
    learning_rate=0.1,
)


def steps_of(record, last=20):
    return record.clock(last, whole=True).tolist()


def test_when_to_record_steps():
    assert steps_of(Record(every=8)) == [0, 8, 16, 20]
    assert steps_of(Record(every="doubling")) == [0, 1, 2, 4, 8, 16, 20]
    assert steps_of(Record(at=[0, 3, 4])) == [0, 3, 4]
    assert steps_of(Record(geometric=4)) == [0, 1, 3, 7, 20]
    assert steps_of(Record()) == list(range(21))
    assert len(steps_of(Record(), last=100_000)) == DEFAULT_RECORDS
    few = Record().clock(100_000, whole=True, bytes_per_record=2**26)
    assert few.tolist() == [0, 33_333, 66_667, 100_000]  # 256 MiB by default


def test_when_to_record_times():
    times = Record(geometric=5).clock(1e4, whole=False)
    np.testing.assert_allclose(times, [0, 1, *np.geomspace(1, 1e4, 4)[1:]])
    assert Record().clock(1e4, whole=False).size == DEFAULT_RECORDS
    assert Record(at=(0.5, 2.0)).clock(3.0, whole=False).tolist() == [0.5, 2.0]


def test_a_run_ends_at_its_last_record():
    result = simulate("syn-small", gradient=Population(), steps=10**9, at=(0, 3), what="loss")
    assert result.step.values.tolist() == [0, 3]


@pytest.mark.slow
def test_by_default_no_parameters_and_nothing_for_each_example():
    default = simulate(CHAINS)
    assert {"loss", "probe_loss", "entropy", "bigram_kl", "bigram_loss"} <= set(default.data_vars)
    assert not any(name.startswith("parameters") for name in default.data_vars)
    assert "attention" not in default
    asked = simulate(CHAINS, what=("attention", "parameters"), probe=3)
    assert asked["attention"].dims == ("seed", "step", "layer", "sequence", "head", "query", "key")
    assert asked.sizes["sequence"] == 3
    assert "parameters.attention.qkv" in asked and "loss" not in asked


def test_the_loss_is_that_of_the_batch_about_to_be_taken():
    whole = simulate("syn-small", length=16, batch_size=4, steps=6, what="loss")
    for step in (0, 3):
        alone = simulate("syn-small", length=16, batch_size=4, steps=6, what="loss", at=(step,))
        assert float(alone.loss[0, 0]) == float(whole.loss[0, step])


@pytest.mark.slow
def test_the_mean_training_loss_is_that_of_the_steps_between_records():
    """train_loss at a record is the mean of the losses of the steps since the one before."""
    each = simulate(CHAINS, what="loss", steps=8, every=1, dtype="float64").loss[0].values
    mean = simulate(CHAINS, what="train_loss", steps=8, every=4, dtype="float64").train_loss[0]
    assert np.isnan(mean[0])
    np.testing.assert_allclose(mean[1:], [each[:4].mean(), each[4:8].mean()], rtol=1e-9)


@pytest.mark.slow
def test_the_loss_on_another_task_is_that_of_the_model_there():
    other = MarkovChains(2, 8, concentration=0.2)
    run = simulate(CHAINS, evaluate={"other": other}, what=("loss_other", "parameters"), seeds=2)
    assert run["loss_other"].dims == ("seed", "step")
    there = simulate(
        CHAINS, task=other, init=run.isel(seed=0), batch_size=4096, at=(0,), what="loss"
    )
    expected = float(there["loss"][0, 0])
    assert float(run["loss_other"][0, -1]) == pytest.approx(expected, rel=0.05)
    # its examples are fixed: the loss changes by training alone
    still = simulate(CHAINS, evaluate={"other": other}, what="loss_other", learning_rate=0.0)
    assert (still["loss_other"] == still["loss_other"].isel(step=0)).all()


def test_evaluating_where_there_is_a_population_takes_all_of_it():
    run = simulate(
        "syn-small",
        length=8,
        batch_size=4,
        steps=3,
        exact=False,
        what="loss_limit",
        evaluate={"limit": Sequences("syn-small", length="inf")},
    )
    limit = simulate("syn-small", gradient=Population(), steps=1, what="loss")
    assert float(run["loss_limit"][0, 0]) == pytest.approx(float(limit["loss"][0, 0]), rel=1e-5)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Record(()), "what"),
        (lambda: Record(every=0), "every"),
        (lambda: Record(every=2, at=[1]), "every, geometric, at"),
        (lambda: Record(at=[3, 2]), "at"),
        (lambda: Record(at=[]), "at"),
        (lambda: Record(geometric=1), "geometric"),
        (lambda: Record(probe=0), "probe"),
        (lambda: steps_of(Record(at=[0.5])), "at: optimizer steps are whole numbers"),
        (lambda: steps_of(Record(at=[0, 200])), "at: 200 is after the last step 20"),
        (lambda: simulate(CHAINS, batch_size=10**30), "batch_size: an array would have too"),
        (
            lambda: Simulation(
                Bowl(), learning_rate=1.0, record=Record(evaluate={"a": CHAINS.task})
            ),
            "evaluate: a learner has no other tasks",
        ),
    ],
)
def test_bad_records_are_refused(make, field):
    with pytest.raises(InputError, match=f"^{field}"):
        make()


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"model": Transformer(dim=4096), "seeds": 100_000, "what": "loss"}, "seeds"),
        ({"batch_size": 10**8, "what": "loss"}, "batch_size"),
        ({"steps": 10**6, "seeds": 10**4, "every": 1, "what": "entropy"}, "every"),
        ({"probe": 10**8, "what": "attention"}, "record"),
    ],
)
def test_a_run_that_does_not_fit_names_the_field_that_asks_for_it(settings, field):
    with pytest.raises(InputError, match=f"^{field}: would need .*; this machine has .*B"):
        simulate(CHAINS, **settings)
