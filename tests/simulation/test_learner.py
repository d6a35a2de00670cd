"""Losses, and what a learner captures of its probe."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.measures import places
from attnlab.models import Model, Transformer
from attnlab.simulation import TaskLearner
from attnlab.simulation.losses import cross_entropy, logistic, mean_loss, square
from attnlab.tasks import Batch, MarkovChains

TASK = MarkovChains(3, 10)
PROBE = TASK.batch((), jax.random.key(0), 0, 5)


def test_labels_are_certain_probabilities():
    outputs = jax.random.normal(jax.random.key(1), (4, 3))
    labels = jnp.asarray([0, 2, 1, 1])
    by_label = cross_entropy(outputs, labels)
    np.testing.assert_allclose(by_label, cross_entropy(outputs, jnp.eye(3)[labels]), rtol=1e-6)
    expected = -np.log(np.asarray(jax.nn.softmax(outputs))[np.arange(4), labels])
    np.testing.assert_allclose(by_label, expected, rtol=1e-5)


def test_square_and_logistic_losses():
    np.testing.assert_allclose(square(jnp.asarray([1.0, 3.0]), jnp.asarray([0.0, 1.0])), [1, 4])
    found = logistic(jnp.asarray([2.0, -1.0]), jnp.asarray([1.0, 1.0]))
    np.testing.assert_allclose(found, np.log1p(np.exp([-2.0, 1.0])), rtol=1e-6)


def test_the_mean_is_over_what_counts():
    losses = jnp.asarray([[1.0, 2.0], [3.0, jnp.inf]])
    mask, weight = jnp.asarray([[True, True], [True, False]]), jnp.asarray([0.25, 0.75])
    assert mean_loss(losses, Batch(None, mask=mask)) == pytest.approx(2.0)
    found = mean_loss(losses, Batch(None, mask=mask, weight=weight))
    assert float(found) == pytest.approx((0.25 * 3 + 0.75 * 3) / (0.5 + 0.75))


@dataclass(frozen=True)
class Bigrams(Model):
    """The add-one bigram rule itself."""

    def init(self, key, task, data):
        return {"nothing": jnp.zeros(1)}

    def apply(self, params, inputs, *, key=None):
        return TASK.references((), Batch(inputs))["bigram"], {}


def test_a_model_that_is_a_rule_has_its_loss_and_no_distance_to_it():
    found = TaskLearner(TASK, Bigrams()).capture((), {"nothing": jnp.zeros(1)}, PROBE)
    assert float(found["bigram_kl"]) == pytest.approx(0, abs=1e-6)
    assert float(found["probe_loss"]) == pytest.approx(float(found["bigram_loss"]), rel=1e-6)
    assert float(found["uniform_loss"]) == pytest.approx(np.log(3), rel=1e-6)
    assert found["uniform_kl"] > 0.01


def test_measures_are_those_of_attention():
    model = Transformer(layers=2, heads=2, dim=8)
    params = model.init(jax.random.key(0), TASK, ())
    found = TaskLearner(TASK, model).capture((), params, PROBE)
    attention = np.asarray(found["attention"])  # layer sequence head query key
    for layer in range(2):
        for head in range(2):
            maps = attention[layer, :, head]
            expected = {
                "previous_mass": np.asarray([np.diag(m, -1).sum() / 10 for m in maps]).mean(),
                "sink_mass": maps[:, :, 0].mean(),
                "induction_mass": np.nanmean(places.induction_mass(maps, np.asarray(PROBE.inputs))),
                "entropy": -(maps * np.log(np.where(maps > 0, maps, 1))).sum(-1).mean(),
            }
            for name, value in expected.items():
                assert float(found[name][layer, head]) == pytest.approx(value, rel=1e-4, abs=1e-6)
