"""Row sources: rows follow the prior and P, tokens are where the layout has them, and a training
set is drawn once."""

from functools import cache

import jax
import numpy as np
import pytest
from quickly import quickly

from attnlab import AlibiPosition, LearnedPosition, SequenceClasses, Sequences
from attnlab.simulation.exact.layout import dense_layout
from attnlab.simulation.exact.rows import row_source
from attnlab.simulation.program import on_device

# Token 2 belongs to two queries and so comes first in the layout; next token 6 to two queries.
CLASSES = SequenceClasses(
    [[0.5, 0, 0.5, 0, 0, 0, 0], [0, 0.3, 0.7, 0, 0, 0, 0]],
    query=[3, 4],
    next_token=[6, 6],
    prior=[0.8, 0.2],
)
LAYOUT, WHERE = dense_layout(CLASSES, symmetric_start=True, also=CLASSES.queries)
LAYOUT = on_device(LAYOUT, "float32")


@cache
def drawing(length, size, training_set, position):
    task = Sequences(CLASSES, length=length, training_set=training_set)
    source = row_source(task, CLASSES, WHERE, position, size)

    @quickly
    def rows(seed, step):
        key = jax.random.key(seed)
        return source.draw(LAYOUT, jax.random.fold_in(key, step), source.collect(LAYOUT, key))

    return rows


def draw(length, size, position=None, *, training_set=None, step=0, seed=0):
    rows = drawing(length, size, training_set, position)(seed, step)
    return jax.tree.map(np.asarray, rows)


def frequencies(rows):
    """Return the mean token frequencies of the rows of each query, by token id."""
    mass = np.exp(rows.shared_log_mass)
    mass /= mass.sum(axis=1, keepdims=True)
    places = WHERE.places(CLASSES.in_play)
    return np.stack([mass[rows.query == q].mean(axis=0)[places] for q in range(2)])


@pytest.mark.parametrize(
    "position", [None, AlibiPosition(0.0), AlibiPosition(0.01)], ids=["counts", "flat", "alibi"]
)
def test_sequences_follow_the_prior_and_p_wherever_their_tokens_are_laid_out(position):
    rows = draw(40, 2000, position)
    assert np.mean(rows.query == 0) == pytest.approx(0.8, abs=0.04)
    np.testing.assert_allclose(frequencies(rows), CLASSES.probs[:, :3], atol=0.02)
    # nothing falls on tokens that a class does not draw
    assert np.all(np.exp(rows.shared_log_mass)[rows.query == 0][:, WHERE.places(1)] == 0)


def test_slots_have_what_a_whole_row_has():
    """The same draw in a layout that sets exclusive tokens apart."""
    layout, where = dense_layout(CLASSES, symmetric_start=True, by_class=True)
    assert layout.exclusive_each == 1
    layout = on_device(layout, "float32")
    source = row_source(Sequences(CLASSES, length=40), CLASSES, where, None, 200)
    slots = quickly(lambda key: source.draw(layout, jax.random.fold_in(key, 0), None))
    slots = jax.tree.map(np.asarray, slots(jax.random.key(0)))
    whole = draw(40, 200)
    np.testing.assert_array_equal(slots.query, whole.query)
    exclusive = np.where(slots.query == 0, *WHERE.places(np.array([0, 1])))  # token 0 or token 1
    places = np.stack([np.full(200, WHERE.places(2)), exclusive], axis=1)
    mass = np.take_along_axis(whole.shared_log_mass, places, axis=1)
    np.testing.assert_array_equal(slots.shared_log_mass, mass)
    np.testing.assert_array_equal(slots.first_exclusive, 1 + slots.query)


def test_order_is_kept_for_a_learned_bias():
    rows = draw(12, 500, LearnedPosition())
    assert rows.shared_log_mass is None
    assert rows.places.shape == (500, 11)
    tokens = WHERE.tokens[np.argsort(WHERE.position)][rows.places]
    assert set(tokens[rows.query == 0].flat) == {0, 2}
    assert set(tokens[rows.query == 1].flat) == {1, 2}


@pytest.mark.parametrize("position", [None, LearnedPosition()], ids=["counts", "sequences"])
def test_a_training_set_is_drawn_once_for_each_seed(position):
    name = "shared_log_mass" if position is None else "places"
    whole = draw(12, None, position, training_set=6)
    same = draw(12, 6, position, training_set=6, step=5)
    other = draw(12, None, position, training_set=6, seed=1)
    np.testing.assert_array_equal(getattr(whole, name), getattr(same, name))
    assert np.any(getattr(whole, name) != getattr(other, name))

    batch, later = (draw(12, 50, position, training_set=6, step=step) for step in (0, 1))
    matches = (getattr(batch, name)[:, None] == getattr(whole, name)).all(axis=-1)
    assert matches.any(axis=1).all()  # every row is one of the six
    assert matches.any(axis=0).all()  # and all six come up in fifty draws
    chosen = matches.argmax(axis=1)
    np.testing.assert_array_equal(batch.query, whole.query[chosen])
    assert batch.weight.sum() == pytest.approx(1)
    assert np.any(getattr(batch, name) != getattr(later, name))


def test_the_limit_weighs_classes_by_their_prior():
    np.testing.assert_allclose(draw("inf", None).weight, CLASSES.prior, rtol=1e-6)
    assert draw("inf", 4000).weight[0] == pytest.approx(0.8, abs=0.03)
