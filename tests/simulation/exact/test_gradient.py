"""Lemma 1 against two oracles: autodiff and a brute-force dense implementation."""

import brute
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from attnlab.papers.scan_and_snap.classes import syn_small
from attnlab.simulation.exact.gradient import (
    Block,
    Parameters,
    Rows,
    attention,
    class_rows,
    loss,
    loss_and_gradient,
)
from attnlab.simulation.exact.layout import dense_layout, sparse_layout
from attnlab.simulation.program import on_device
from attnlab.tasks.classes import SequenceClasses, local_common, random


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


SHARED_NEXT = SequenceClasses(
    probs=[[0.5, 0.3, 0.2, 0, 0, 0], [0.2, 0, 0.5, 0.3, 0, 0], [0, 0.6, 0, 0.4, 0, 0]],
    query=[4, 5, 5],
    next_token=[0, 0, 3],
    prior=[0.5, 0.2, 0.3],
)
CASES = {
    "syn-small": syn_small(),
    "local": local_common(2, 2, local=3, distinct=2),
    "random": random(20, 5, overlap=0.4, queries=2, seed=3),
    "shared next": SHARED_NEXT,
}


def random_parameters(layout, rng, scale=1.0):
    outputs, shared = layout.output_multiplicity.shape[0], layout.shared_multiplicity.shape[0]
    tiles, width = layout.exclusive_multiplicity.shape
    shapes = (
        ((shared, outputs), (tiles, outputs, width)),
        ((layout.num_queries, shared), (tiles, width)),
    )
    return Parameters(*(Block(*(scale * rng.normal(size=s) for s in pair)) for pair in shapes))


def closed_form(layout, rows, parameters):
    """Return loss and gradient as numpy arrays, on which further operations compile nothing."""
    anew = quickly(lambda *given: loss_and_gradient(*given))  # `_write_out` is read when traced
    return jax.device_get(anew(layout, rows, parameters))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["dense", "sparse", "tiled"])
def test_closed_form_is_the_derivative_of_the_loss(name, kind, monkeypatch):
    if kind == "tiled":
        monkeypatch.setattr("attnlab.simulation.exact.layout.PADDING_FACTOR", 0)
    classes = CASES[name]
    if kind == "dense":
        layout, _ = dense_layout(classes, symmetric_start=False)
    else:
        layout, _ = sparse_layout(classes, symmetric_start=False, lump=False)
    layout = on_device(layout, "float64")
    rows = class_rows(layout, layout.prior)
    parameters = random_parameters(layout, np.random.default_rng(0))
    value, gradient = closed_form(layout, rows, parameters)
    derivative = quickly(jax.value_and_grad(loss, argnums=2))
    expected_value, expected = jax.device_get(derivative(layout, rows, parameters))
    assert value == pytest.approx(float(expected_value), rel=1e-13)
    for ours, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        inside = np.isfinite(theirs)
        np.testing.assert_allclose(ours[inside], theirs[inside], rtol=0, atol=1e-13)


def sequences_of(classes, rng, count, length):
    """Explicit sequences (tokens, query, next token), and their classes."""
    drawn = rng.integers(len(classes), size=count)
    return drawn, [
        (
            rng.choice(classes.vocab_size, size=length, p=classes.probs[k]),
            classes.query[k],
            classes.next_token[k],
        )
        for k in drawn
    ]


@pytest.mark.parametrize(
    ("name", "by_class", "written_out"),
    [
        ("shared next", False, False),
        ("local", False, False),
        ("local", True, False),
        ("local", True, True),
    ],
    ids=["shared next", "dense", "slots", "slots written out"],
)
def test_gradient_is_that_of_the_brute_force_model_over_explicit_sequences(
    name, by_class, written_out, monkeypatch
):
    monkeypatch.setattr("attnlab.simulation.exact.gradient._write_out", lambda *sizes: written_out)
    classes = CASES[name]
    M = classes.vocab_size
    rng = np.random.default_rng(1)
    drawn, sequences = sequences_of(classes, rng, 7, 9)
    Y, Z = rng.normal(size=(M, M)), rng.normal(size=(M, M))
    layout, where = dense_layout(classes, symmetric_start=False, by_class=by_class)
    layout = on_device(layout, "float64")
    by_place = where.tokens[np.argsort(where.position)]
    counts = np.stack([np.bincount(tokens, minlength=M) for tokens, _, _ in sequences])[:, by_place]
    first_exclusive = None
    if by_class:
        assert layout.exclusive_each == 2
        first_exclusive = np.asarray(layout.first_exclusive)[drawn]
        common = np.tile(np.arange(layout.before_exclusive), (7, 1))
        slots = np.concatenate([common, first_exclusive[:, None] + np.arange(2)], axis=1)
        rest = counts.copy()
        np.put_along_axis(rest, slots, 0, axis=1)
        assert np.all(rest == 0)  # a row has nothing elsewhere
        counts = np.take_along_axis(counts, slots, axis=1)
    with np.errstate(divide="ignore"):
        log_mass = np.log(counts)
    rows = Rows(
        jnp.asarray(log_mass),
        layout.exclusive_log_prob,
        layout.query[drawn],
        layout.target[drawn],
        jnp.full(7, 1 / 7),
        first_exclusive=first_exclusive,
    )
    none = len(classes), M, 0
    parameters = Parameters(
        Y=Block(jnp.asarray(Y[by_place]), jnp.zeros(none)),
        Z=Block(jnp.asarray(Z[classes.queries][:, by_place]), jnp.zeros((len(classes), 0))),
    )
    value, gradient = closed_form(layout, rows, parameters)
    dY, dZ = brute.lemma_1(Y, Z, sequences)
    assert float(value) == pytest.approx(brute.loss(Y, Z, sequences), rel=1e-13)
    np.testing.assert_allclose(-gradient.Y.shared, dY[by_place], atol=1e-14)
    np.testing.assert_allclose(-gradient.Z.shared, dZ[classes.queries][:, by_place], atol=1e-14)
    untouched = np.setdiff1d(np.arange(M), by_place)
    assert np.all(dY[untouched] == 0)
    assert np.all(np.delete(dZ, classes.queries, axis=0) == 0)


def test_brute_force_lemma_1_is_the_derivative_of_its_own_loss():
    classes = SHARED_NEXT
    rng = np.random.default_rng(2)
    M = classes.vocab_size
    sequences = [(rng.choice(M, size=5, p=classes.probs[k]), 4 + (k > 0), k) for k in range(3)]
    Y, Z = rng.normal(size=(M, M)), rng.normal(size=(M, M))
    dY, dZ = brute.lemma_1(Y, Z, sequences)
    step = 1e-6
    for i, j in [(0, 0), (2, 3), (3, 5), (1, 1)]:
        nudge = np.zeros((M, M))
        nudge[i, j] = step
        slope = brute.loss(Y + nudge, Z, sequences) - brute.loss(Y - nudge, Z, sequences)
        assert -slope / (2 * step) == pytest.approx(dY[i, j], abs=1e-8)
    for i, j in [(4, 0), (4, 2), (5, 3), (5, 1), (0, 0)]:
        nudge = np.zeros((M, M))
        nudge[i, j] = step
        slope = brute.loss(Y, Z + nudge, sequences) - brute.loss(Y, Z - nudge, sequences)
        assert -slope / (2 * step) == pytest.approx(dZ[i, j], abs=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_rows_of_the_gradient_sum_to_zero(name):
    """Section 3.1: each row of Y and of Z keeps its sum (columns do not)."""
    layout, _ = sparse_layout(CASES[name], symmetric_start=False, lump=False)
    layout = on_device(layout, "float64")
    parameters = random_parameters(layout, np.random.default_rng(4))
    rows = class_rows(layout, layout.prior)
    _, gradient = closed_form(layout, rows, parameters)
    np.testing.assert_allclose(gradient.Y.shared.sum(1), 0, atol=1e-14)
    np.testing.assert_allclose(gradient.Y.exclusive.sum(1), 0, atol=1e-14)
    per_query = gradient.Z.shared.sum(1)
    tile_query = np.asarray(layout.query)[np.asarray(layout.tile_class)]
    np.add.at(per_query, tile_query, gradient.Z.exclusive.sum(1))
    np.testing.assert_allclose(per_query, 0, atol=1e-14)


def test_attention_is_equation_5():
    classes = CASES["random"]
    layout, where = sparse_layout(classes, symmetric_start=True, lump=False)
    z = np.random.default_rng(5).normal(size=(classes.queries.size, classes.vocab_size))
    blocks = where.blocks(z, classes.query_index, layout.exclusive_log_prob.shape)
    c = quickly(attention)(on_device(layout, "float64"), Block(*map(jnp.asarray, blocks)))
    ours = where.attention(np.asarray(c.shared), np.asarray(c.exclusive), classes.vocab_size)
    entries = classes.attention_entries(z)
    np.testing.assert_allclose(ours[classes.class_of_entry, classes.tokens], entries, rtol=1e-12)
    np.testing.assert_allclose(ours.sum(1), 1, rtol=1e-14)


def test_extreme_logits_do_not_overflow():
    classes = syn_small()
    layout, _ = sparse_layout(classes, symmetric_start=True, lump=True)
    layout = on_device(layout, "float64")
    parameters = random_parameters(layout, np.random.default_rng(6), scale=1e4)
    rows = class_rows(layout, layout.prior)
    value, gradient = closed_form(layout, rows, parameters)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_the_error_of_a_certain_target_does_not_cancel():
    """1 - alpha stays accurate when it is far below the rounding of 1 (late training)."""
    classes = SequenceClasses([[1.0, 0, 0]], query=[1], next_token=[2])
    layout, _ = sparse_layout(classes, symmetric_start=True, lump=True)
    layout = on_device(layout, "float64")
    Y = Block(jnp.zeros((0, 2)), jnp.asarray([[[60.0], [0.0]]]))
    Z = Block(jnp.zeros((1, 0)), jnp.zeros((1, 1)))
    value, gradient = closed_form(layout, class_rows(layout, layout.prior), Parameters(Y, Z))
    odds = 2 * np.exp(-60)  # two other outputs, lumped
    assert float(value) == pytest.approx(odds, rel=1e-12)
    assert float(gradient.Y.exclusive[0, 0, 0]) == pytest.approx(-odds, rel=1e-12)
