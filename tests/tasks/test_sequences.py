"""Sequences as tokens, as the general path draws them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab import SequenceClasses, Sequences
from attnlab.files.errors import InputError
from attnlab.tasks import Task

CLASSES = SequenceClasses(
    [[0.5, 0, 0.5, 0, 0, 0, 0], [0, 0.3, 0.7, 0, 0, 0, 0]],
    query=[3, 4],
    next_token=[5, 6],
    prior=[0.8, 0.2],
)


def data_of(task, seed=0):
    (tables,) = jax.tree.map(jnp.asarray, task.tables())
    return {**tables, **task.draw(jax.random.key(seed), tables)}


def test_tokens_follow_the_prior_and_p_and_the_query_is_last():
    task = Sequences(CLASSES, length=41)
    batch = task.batch(data_of(task), jax.random.key(1), 0, 2000)
    tokens, target = np.asarray(batch.inputs), np.asarray(batch.target)
    assert tokens.shape == (2000, 41)
    assert np.mean(target == 5) == pytest.approx(0.8, abs=0.04)
    np.testing.assert_array_equal(tokens[:, -1], np.where(target == 5, 3, 4))
    for k, next_token in enumerate(CLASSES.next_token):
        drawn = tokens[target == next_token, :-1]
        frequencies = np.bincount(drawn.ravel(), minlength=7) / drawn.size
        np.testing.assert_allclose(frequencies, CLASSES.probs[k], atol=0.02)
        assert set(np.unique(drawn)) == set(np.flatnonzero(CLASSES.probs[k]))


def test_without_a_length_an_example_is_its_class():
    task = Sequences(CLASSES, length="inf")
    assert task.infinite and task.length == math.inf and task.distances == 0
    whole = task.population(data_of(task))
    np.testing.assert_allclose(whole.inputs.probs, CLASSES.probs, rtol=1e-6)
    np.testing.assert_array_equal(whole.inputs.query, CLASSES.query)
    np.testing.assert_allclose(whole.weight, CLASSES.prior, rtol=1e-6)
    batch = task.batch(data_of(task), jax.random.key(1), 0, 4000)
    assert np.mean(np.asarray(batch.target) == 5) == pytest.approx(0.8, abs=0.03)


def test_a_training_set_is_drawn_once_for_each_seed():
    task = Sequences(CLASSES, length=12, training_set=6)
    data = data_of(task)
    whole = task.population(data)
    assert whole.inputs.shape == (6, 12)
    batch = task.batch(data, jax.random.key(1), 0, 50)
    matches = (np.asarray(batch.inputs)[:, None] == np.asarray(whole.inputs)).all(axis=-1)
    assert matches.any(axis=1).all()  # every sequence is one of the six
    assert matches.any(axis=0).all()  # and all six come up in fifty draws
    assert np.any(np.asarray(data_of(task, seed=1)["tokens"]) != np.asarray(data["tokens"]))
    assert Sequences(CLASSES, length=12).population(data_of(Sequences(CLASSES))) is None


def test_all_tasks_are_known_by_name():
    assert {"sequences", "markovchains", "text"} <= Task.kinds().keys()


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Sequences(CLASSES, length=1), "length: expected a whole number"),
        (lambda: Sequences(CLASSES, length=2**31), "length: expected at most"),
        (lambda: Sequences(CLASSES, length=0.5), "length"),
        (lambda: Sequences(CLASSES, training_set=0), "training_set"),
        (lambda: Sequences(CLASSES, length="inf", training_set=3), "training_set: its sequences"),
        (lambda: Sequences(3), "classes: expected SequenceClasses, the name"),
        (lambda: Sequences("syn-smal"), "classes: 'syn-smal' is not a preset; did you mean"),
        (lambda: Sequences([CLASSES, "syn-small"]), "classes: sets that run together"),
    ],
)
def test_bad_settings_are_refused_when_made(make, field):
    with pytest.raises(InputError, match=f"^{field}"):
        make()
