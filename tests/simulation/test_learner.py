"""Losses, captures of a probe, and starts from arrays or from a result."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bowl import Bowl

from attnlab import Batches, Record, Simulation, Steps, simulate
from attnlab.files.errors import InputError
from attnlab.measures import positions
from attnlab.models import Model, Transformer
from attnlab.models.losses import cross_entropy, logistic, mean_loss, square
from attnlab.simulation import TaskLearner
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


def test_the_mean_is_over_what_the_mask_lets_count():
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


@pytest.mark.slow
def test_measures_are_those_of_attention():
    model = Transformer(layers=2, heads=2, dim=8)
    params = model.init(jax.random.key(0), TASK, ())
    found = TaskLearner(TASK, model).capture((), params, PROBE)
    attention = np.asarray(found["attention"])  # layer sequence head query key
    tokens, position = np.asarray(PROBE.inputs), np.arange(attention.shape[-1])
    lags = position[:, None] - position
    for layer in range(2):
        for head in range(2):
            maps = attention[layer, :, head]
            expected = {
                "previous_mass": np.asarray([np.diag(m, -1).sum() / 10 for m in maps]).mean(),
                "sink_mass": maps[:, :, 0].mean(),
                "mean_distance": (maps * lags).sum(-1).mean(),
                "induction_mass": np.nanmean(positions.induction_mass(maps, tokens)),
                "duplicate_mass": np.nanmean(positions.duplicate_mass(maps, tokens)),
                "entropy": -(maps * np.log(np.where(maps > 0, maps, 1))).sum(-1).mean(),
            }
            for name, value in expected.items():
                assert float(found[name][layer, head]) == pytest.approx(value, rel=1e-4, abs=1e-6)


# -- starts ---------------------------------------------------------------------------------------

BOWL = Simulation(
    Bowl(),
    motion=Steps(8),
    learning_rate=0.1,
    dtype="float64",
    record=Record(("loss", "parameters"), every=4),
)


def test_a_run_goes_on_from_a_result():
    """Gradient descent on the population has no memory but its parameters."""
    whole = simulate(BOWL)
    second = simulate(BOWL, steps=4, init=simulate(BOWL, steps=4))
    for name in ("loss", "parameters.x", "parameters.y"):
        np.testing.assert_array_equal(second[name], whole[name].isel(step=slice(1, None)))


@pytest.mark.slow
def test_a_start_from_a_result_keeps_nested_groups():
    run = Simulation(
        TASK,
        Transformer(layers=2, dim=4),
        motion=Steps(3, "adam"),
        gradient=Batches(4),
        learning_rate=[0.1, 0.2],
        seeds=2,
        record=Record("parameters", every=3),
    )
    result = simulate(run)
    chosen = result.sel(learning_rate=0.2).isel(seed=1)
    again = simulate(run, init=chosen)
    for name in result.data_vars:  # every run starts where the chosen one ended
        start = again[name].isel(step=0)
        assert (start == chosen[name].isel(step=-1)).all(), name


@pytest.mark.parametrize(
    ("init", "words"),
    [
        (lambda: simulate(BOWL, what="loss"), "init: the result has no parameters; record what="),
        (lambda: simulate(BOWL, seeds=2), "init: the result has several runs along seed; select o"),
        (lambda: simulate(BOWL, learning_rate=[0.1, 0.2]), "several runs along learning_rate; sel"),
        (lambda: {"x": np.zeros(2)}, "init: expected shapes"),
        (lambda: {"z": np.zeros(3)}, "init: the groups are x, y, got 'z'"),
        (lambda: {"x": np.full(3, np.nan)}, "init: expected finite numbers in the group 'x'"),
        (lambda: "zero", "init: expected arrays by group, or a result"),
        (lambda: np.zeros(3), "init: expected arrays by group, or a result"),
    ],
)
def test_starts_that_do_not_fit_are_refused(init, words):
    with pytest.raises(InputError) as raised:
        simulate(BOWL, init=init())
    assert words in str(raised.value)


def test_a_start_of_some_groups_leaves_the_others():
    result = simulate(BOWL, init={"y": np.array([1.0, 2.0])}).isel(seed=0, step=0)
    np.testing.assert_array_equal(result["parameters.y"], [1.0, 2.0])
    np.testing.assert_array_equal(result["parameters.x"], 1.0)
