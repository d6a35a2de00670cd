"""Training, the value: checked, equal by content, written down and given back."""

import json
from dataclasses import replace

import pytest
from small_text import read_corpus, write_text
from tiny_trainings import SPEC, counting_corpus

import attnlab
from attnlab.dynamics import Optimizer
from attnlab.text import Source, Training, train

SHORT = {"steps": 4, "measure_every": 2, "batch": 4, "validation_tokens": 160}


def test_trainings_are_equal_and_hashable_by_content(tmp_path):
    training = Training("builtin", SPEC, rates=[1, 2], seeds=2, optimizer="sgd")
    same = Training(Source("builtin"), SPEC, rates=(1.0, 2.0), seeds=(0, 1), clip=0.5)
    assert training == same and hash(training) == hash(same)
    assert training != replace(training, steps=3)
    assert replace(training, seeds=1).seeds == (0,)
    assert training.optimizer == Optimizer(momentum=0.0)
    assert Training(counting_corpus()) == Training(counting_corpus())
    corpus = read_corpus(tmp_path)
    assert Training(corpus).text is corpus
    assert Training(corpus) == Training(str(write_text(tmp_path)))
    assert Training(corpus).digest == Training(str(write_text(tmp_path))).digest


def test_a_document_gives_the_training_back():
    training = Training(
        Source("builtin", vocab_size=300), SPEC, rates=(1, 2), seeds=(4, 2),
        optimizer=Optimizer("adam", beta_2=0.9), precision="default",
    )  # fmt: skip
    assert Training.from_document(training.to_document()) == training
    assert Training.from_document({"corpus": "builtin"}) == Training()
    with pytest.raises(ValueError, match="model.layrs: unknown key; did you mean 'layers'"):
        Training.from_document({"model": {"layrs": 2}})
    with pytest.raises(ValueError, match="seed: unknown key; did you mean 'seeds'"):
        Training.from_document({"seed": 2})
    with pytest.raises(ValueError, match="counting was made in memory"):
        Training(counting_corpus()).to_document()


def test_it_is_measured_at_even_steps_at_doubling_ones_or_at_those_named():
    def steps(every, last=20):
        return Training(steps=last, measure_every=every).record_steps.tolist()

    assert steps(8) == [0, 8, 16, 20]
    assert steps("doubling") == [0, 1, 2, 4, 8, 16, 20]
    assert steps("doubling", last=16) == [0, 1, 2, 4, 8, 16]
    assert steps("doubling", last=1) == [0, 1]
    assert steps([3, 1, 7]) == [0, 1, 3, 7, 20]
    for every in ("doubling", [1, 5]):
        training = Training(measure_every=every, reset_moments=True)
        assert Training.from_document(training.to_document()) == training
        assert hash(training) == hash(Training(measure_every=every, reset_moments=True))
    for wrong, message in (
        ("halving", "measure_every: expected a number of steps, 'doubling' or a list"),
        (0, "measure_every: expected a whole number of at least 1"),
        ([1, 30], "measure_every: step 30 is past the last, 20"),
        ([1.5], "measure_every: expected a whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            steps(wrong)
    with pytest.raises(ValueError, match="measure_every: 'duobling' is not among the choices"):
        Training.from_document({"measure_every": "duobling"})


def test_a_result_carries_its_training(tmp_path):
    training = Training(read_corpus(tmp_path), SPEC, rates=(0.5,), **SHORT)
    result = train(training, progress=False)
    assert attnlab.Training.of(result) == training
    assert attnlab.Training.of(result).text.digest == training.text.digest
    short = attnlab.train(training, steps=2, progress=False)
    assert Training.of(short) == replace(training, steps=2)
    (tmp_path / "text.txt").write_text("other words " * 500)
    with pytest.raises(ValueError, match="is another text than it was"):
        assert attnlab.Training.of(result).text
    # results of before have not the fields that came later
    spec = json.loads(result.attrs["spec"])
    del spec["reset_moments"], spec["model"]["activation"]
    assert Training.of(result.assign_attrs(spec=json.dumps(spec))) == training
    with pytest.raises(ValueError, match="not one that train"):
        Training.of(result.drop_attrs())
