"""In-context Markov chains: what is drawn, and the rules of reference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.files.errors import InputError
from attnlab.models.losses import cross_entropy
from attnlab.tasks import MarkovChains


def test_sequences_follow_their_chain():
    """With near-deterministic rows a symbol is nearly always followed by the same."""
    task = MarkovChains(vocab_size=3, length=40, concentration=1e-3)
    x = np.asarray(task.batch((), jax.random.key(0), 0, 200).inputs)
    same = sum(len(set(row[1:][row[:-1] == a])) <= 1 for row in x for a in range(3)) / (3 * len(x))
    assert same > 0.97


def test_transitions_have_the_mean_of_their_prior():
    batch = MarkovChains(vocab_size=2, length=1, start="uniform").batch(
        (), jax.random.key(1), 0, 20_000
    )
    pairs = np.asarray(batch.inputs[:, 0] * 2 + batch.target[:, 0])
    np.testing.assert_allclose(np.bincount(pairs) / len(pairs), 0.25, atol=0.015)


@pytest.mark.slow
@pytest.mark.parametrize("k, expected", [(2, (0.693, 0.581, 0.514)), (3, (1.099, 1.005, 0.886))])
def test_reference_losses_are_those_of_the_atlas(k, expected):
    """Mean cross entropy over all positions at T = 100, as measured apart from this code."""
    task = MarkovChains(vocab_size=k, length=100)
    batch = task.batch((), jax.random.key(2), 0, 4000)
    rules = task.references((), batch)
    found = [
        float(jnp.mean(cross_entropy(rules[name], batch.target)))
        for name in ("uniform", "unigram", "bigram")
    ]
    np.testing.assert_allclose(found, expected, atol=0.006)


def test_targets_are_the_next_symbols():
    batch = MarkovChains(length=9).batch((), jax.random.key(0), 0, 2)
    np.testing.assert_array_equal(batch.inputs[:, 1:], batch.target[:, :-1])


@pytest.mark.parametrize(
    "field", [{"vocab_size": 1}, {"length": 0}, {"concentration": 0.0}, {"start": "x"}]
)
def test_bad_settings_are_refused(field):
    with pytest.raises(InputError, match=next(iter(field))):
        MarkovChains(**field)
