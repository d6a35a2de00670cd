"""Extended: each variant and their mixtures against a brute force over the whole vocabulary, with
explicit one-hot sequences; against finite differences; and against the theory."""

import json
from functools import partial

import brute
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from plain import plain
from quickly import quickly

import attnlab
from attnlab import (
    AlibiPosition,
    Batches,
    Extended,
    FixedPosition,
    Flow,
    LearnedPosition,
    Pairwise,
    Population,
    Record,
    SequenceClasses,
    Sequences,
    Simulation,
    Steps,
    formulas,
    measures,
    simulate,
)
from attnlab.files.errors import InputError
from attnlab.formulas import Setting
from attnlab.models.positions import position_from
from attnlab.papers.scan_and_snap import theory
from attnlab.papers.scan_and_snap.classes import syn_small
from attnlab.simulation.exact.gradient import Parameters, Rows, class_rows
from attnlab.simulation.exact.layout import dense_layout
from attnlab.simulation.exact.model import ExactExtended, Given, Logits, Start
from attnlab.simulation.exact.rows import log_position_mass, row_source
from attnlab.simulation.program import base_keys, on_device

DOUBLE = {"dtype": "float64"}
# Next token 0 belongs to two queries, the prior is not uniform, and query 4 is drawn as context.
CLASSES = SequenceClasses(
    probs=[
        [0.4, 0.3, 0.2, 0, 0.1, 0, 0, 0],
        [0.2, 0, 0.5, 0.3, 0, 0, 0, 0],
        [0, 0.6, 0, 0.4, 0, 0, 0, 0],
    ],
    query=[4, 5, 5],
    next_token=[0, 0, 3],
    prior=[0.5, 0.2, 0.3],
)
LENGTH = 7
EVERYTHING = Extended(
    residual=True,
    normalization="layer",
    heads=2,
    combine="concatenate",
    position="learned",
    attend_self=True,
)
VARIANTS = [
    Extended(residual=True),
    Extended(normalization="rms", heads=3),
    Extended(normalization="none", attend_self=True),
    Extended(normalization="layer", residual=True, heads=2, combine="concatenate"),
    Extended(position=AlibiPosition(0.3), attend_self=True),
    EVERYTHING,
]
HEAD_STARTS = np.linspace(-1, 1, 2 * 2 * 8).reshape(2, 2, 8) ** 3
RUN = Simulation(
    Sequences(CLASSES, length=LENGTH, training_set=3),
    EVERYTHING,
    gradient=Population(),
    motion=Steps(5),
    eta_y=[0.4, 0.8],
    eta_z=0.6,
    seeds=[11, 12],
    init=HEAD_STARTS,
    record=Record(at=[0, 5]),
    **DOUBLE,
)
BY_HEAD_ALONE = xr.DataArray(np.zeros((2, 8)), dims=("head", "token"))


@pytest.fixture(scope="module")
def everything():
    """Return runs with every switch at once, on a training set of three sequences."""
    return plain(RUN)


def name_of(model):
    default = Extended()
    changed = [v for k, v in vars(model).items() if v != getattr(default, k)]
    return "-".join(str(getattr(v, "name", v)) for v in changed) or "default"


def final(result, name="attention"):
    return result[name].isel({attnlab.measures.clock_of(result): -1})


def switches(model):
    names = ("residual", "normalization", "combine", "attend_self")
    return {name: getattr(model, name) for name in names}


def layout_of(model, classes, *, symmetric):
    layout, where = dense_layout(
        classes,
        symmetric_start=symmetric,
        also=classes.queries if model.residual or model.attend_self else None,
        whole=model.normalization == "layer",
    )
    return on_device(layout, "float64"), where


# -- gradients against brute force and finite differences ---------------------------------------


@pytest.mark.parametrize("model", VARIANTS, ids=name_of)
def test_gradient_is_that_of_the_brute_force_and_of_finite_differences(model):
    rng = np.random.default_rng(0)
    exact, M, H = ExactExtended(model), CLASSES.vocab_size, model.heads
    Y = rng.normal(size=(model.blocks, M, M))
    Z = rng.normal(size=(H, M, M))
    learned = isinstance(model.position, LearnedPosition)
    bias = np.zeros((H, LENGTH - 1))
    if model.position is not None:
        bias = bias + model.position.biases(LENGTH - 1)
    if learned:
        bias = rng.normal(size=bias.shape)
    drawn = [0, 1, 2, 0]
    tokens = np.stack([rng.choice(M, size=LENGTH - 1, p=CLASSES.probs[k]) for k in drawn])
    sequences = (tokens, CLASSES.query[drawn], CLASSES.next_token[drawn])
    weights = np.array([0.4, 0.3, 0.2, 0.1])
    with jax.enable_x64(True):
        layout, where = layout_of(model, CLASSES, symmetric=False)
        A = where.num_shared
        places = jnp.asarray(where.places(tokens))
        mass = log_position_mass(places, jnp.asarray(bias[0]), A)
        rows = Rows(
            None if learned else mass,
            layout.exclusive_log_prob,
            np.asarray(layout.query)[drawn],
            np.asarray(layout.target)[drawn],
            jnp.asarray(weights),
            places if learned else None,
        )
        by_place = where.tokens[np.argsort(where.position)]
        trained = Parameters(
            jnp.asarray(Y[:, by_place].transpose(0, 2, 1)),
            Logits(
                jnp.asarray(Z[:, CLASSES.queries][:, :, by_place]),
                jnp.asarray(bias if learned else bias[:, :0]),
            ),
        )
        given = Given(jnp.asarray(where.places(CLASSES.queries)), jnp.asarray(bias[0]))
        value, slope = quickly(exact.loss_and_gradient)(layout, rows, trained, given)

        by_autodiff = jax.value_and_grad(partial(brute.extended_loss, **switches(model)), (0, 1, 2))
        brute_value, (dY, dZ, dp) = quickly(by_autodiff)(Y, Z, bias, sequences, weights)
        close = {"rtol": 0, "atol": 1e-13}
        assert float(value) == pytest.approx(float(brute_value), rel=1e-12)
        np.testing.assert_allclose(slope.Y.transpose(0, 2, 1), dY[:, by_place], **close)
        np.testing.assert_allclose(slope.Z.z, dZ[:, CLASSES.queries][:, :, by_place], **close)
        if learned:
            np.testing.assert_allclose(slope.Z.bias, dp, **close)
        # what has no place here never moves
        assert not np.any(np.delete(dY, by_place, axis=1))
        assert not np.any(np.delete(dZ[:, CLASSES.queries], by_place, axis=2))
        assert not np.any(np.delete(dZ, CLASSES.queries, axis=1))

        direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), trained)
        moved = quickly(
            lambda s: exact.loss(
                layout, rows, jax.tree.map(lambda x, d: x + s * d, trained, direction), given
            )
        )
        difference = float(moved(1e-5) - moved(-1e-5)) / 2e-5
        pairs = zip(*map(jax.tree.leaves, (slope, direction)), strict=True)
        along = sum(np.vdot(g, d) for g, d in pairs)
        assert difference == pytest.approx(along, rel=1e-7, abs=1e-9)


def test_groups_of_equal_entries_train_as_the_whole_matrices():
    """From Y(0) = 0, outputs and tokens that are alike are one entry: against M x M brute force."""
    classes = SequenceClasses(
        [[0.5, 0.3, 0.2, 0, 0, 0, 0, 0], [0.5, 0, 0.1, 0.4, 0, 0, 0, 0]],
        query=[4, 4],
        next_token=[5, 6],
    )
    M = classes.vocab_size
    model = Extended(residual=True, normalization="layer", heads=2, combine="concatenate")
    start = np.random.default_rng(1).normal(scale=0.5, size=(2, 1, M))
    result = plain(
        classes,
        gradient=Population(),
        eta_y=0.8,
        eta_z=0.6,
        steps=8,
        model=model,
        init=start,
        **DOUBLE,
    )
    # T to infinity: a sequence whose token frequencies are exactly P
    tokens = np.stack([np.repeat([0, 1, 2], [5, 3, 2]), np.repeat([0, 2, 3], [5, 1, 4])])
    sequences = (tokens, classes.query, classes.next_token)
    with jax.enable_x64(True):
        gradient = quickly(jax.grad(partial(brute.extended_loss, **switches(model)), (0, 1)))
        Y, Z = np.zeros((2, M, M)), np.zeros((2, M, M))
        Z[:, 4] = start[:, 0]
        for _ in range(8):
            dY, dZ = gradient(Y, Z, np.zeros((2, 10)), sequences)
            Y, Z = Y - 0.8 * dY, Z - 0.6 * dZ
    np.testing.assert_allclose(final(result, "attention_logits")[0, :, 0], Z[:, 4], atol=1e-12)


def test_everything_trains_as_the_brute_force_on_the_same_sequences(everything):
    with jax.enable_x64(True):
        learner, (tables,) = RUN.learner, on_device(RUN.tables, "float64")
        key = base_keys(jnp.asarray([11], jnp.uint32), None)[0]
        of_data = jax.random.fold_in(key, learner.uses.data)
        kept = quickly(learner.draw_with)(tables, of_data)
        where = learner.laid_out(RUN)[0].where
        tokens = where.tokens[np.argsort(where.position)][np.asarray(kept.places)]
        query = CLASSES.queries[np.asarray(kept.query)]
        target = np.unique(CLASSES.next_token)[np.asarray(kept.target)]
        loss = partial(brute.extended_loss, **switches(EVERYTHING))
        gradient = quickly(jax.grad(loss, (0, 1, 2)))
        W = [np.zeros((2, 8, 8)), np.zeros((2, 8, 8)), np.zeros((2, LENGTH - 1))]
        W[1][:, CLASSES.queries] = HEAD_STARTS
        for _ in range(5):
            slopes = gradient(*W, (tokens, query, target))
            W = [w - rate * g for w, g, rate in zip(W, slopes, (0.8, 0.6, 0.6), strict=True)]
    run = everything.sel(eta_y=0.8, seed=11).isel(step=-1)
    np.testing.assert_allclose(run.attention_logits, W[1][:, CLASSES.queries], atol=1e-12)
    np.testing.assert_allclose(run.position_bias, W[2], atol=1e-12)


# -- the default is the paper's model ---------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"length": 16, "batch_size": 8, "init": "uniform", "steps": 30, "momentum": 0.0},
        {"gradient": Population(), "steps": 30, "momentum": 0.0},
    ],
    ids=["batches", "population"],
)
def test_without_switches_it_is_pairwise(settings):
    pairwise, extended = (
        simulate(CLASSES, eta_z=0.5, model=model, at=[0, 30], **settings, **DOUBLE)
        for model in (Pairwise(), Extended())
    )
    assert set(pairwise.variables) == set(extended.variables)
    for name in ("attention", "attention_logits", "loss", "entropy", "distinct_entropy"):
        np.testing.assert_allclose(pairwise[name], extended[name], rtol=0, atol=1e-12)


def test_rms_is_l2_at_a_learning_rate_that_is_m_times_higher():
    """RMS norm is sqrt(M) times L2: Y shrinks by that factor and its gradient grows by it."""
    M = CLASSES.vocab_size
    l2, rms = (
        plain(
            CLASSES,
            gradient=Population(),
            eta_y=eta_y,
            eta_z=0.5,
            steps=20,
            what="attention",
            model=Extended(residual=True, normalization=kind),
            **DOUBLE,
        )
        for kind, eta_y in (("l2", 0.8), ("rms", 0.8 / M))
    )
    np.testing.assert_allclose(final(l2), final(rms), atol=1e-12)


# -- the theory -------------------------------------------------------------------------------


def test_the_residual_moves_attention_as_in_theory():
    """Section 7 with both normalisations: theory.residual_velocity at its decoder."""
    P = np.array(
        [
            [0.3, 0.3, 0, 0.4, 0, 0, 0],
            [0.3, 0, 0.3, 0, 0.4, 0, 0],
            [0.3, 0.3, 0, 0, 0, 0.4, 0],
            [0.3, 0, 0.3, 0, 0, 0, 0.4],
        ]
    )
    psi, M = np.array([0, 0, 1, 1]), 40
    classes = SequenceClasses(
        np.pad(P, ((0, 0), (0, M - 7))), query=psi + 7, next_token=[9, 10, 11, 12]
    )
    z = np.random.default_rng(2).normal(scale=0.2, size=(2, 7))
    growth = theory.h(20.0, M=M, eta_y=1.0)
    gamma = (M - 1.0) ** 2 * growth / (M - 1.0 + np.exp(M * growth))
    fbar = np.hstack([formulas.unit_attention(Setting(P, psi=psi), z), np.eye(2)[psi]]) / np.sqrt(2)
    W = theory.decoder_weights(fbar, growth, M=M)  # outputs: the K next tokens, then the rest
    model = Extended(residual=True)
    with jax.enable_x64(True):
        layout, where = layout_of(model, classes, symmetric=True)
        place = where.places(np.arange(9))
        J = layout.output_multiplicity.size
        Y = np.zeros((1, J, 9))
        Y[0][:, place] = W[:, :J].T
        logits = np.zeros((1, 2, 9))
        logits[0][:, place[:7]] = z
        given = Given(jnp.asarray(place[7:]), jnp.zeros(0))
        trained = Parameters(jnp.asarray(Y), Logits(jnp.asarray(logits), jnp.zeros((1, 0))))
        rows = class_rows(layout, layout.prior)
        _, slope = quickly(ExactExtended(model).loss_and_gradient)(layout, rows, trained, given)
    velocity = theory.residual_velocity(Setting(P, psi=psi, M=M), z)
    measured = -np.asarray(slope.Z.z)[0][:, place[:7]] / gamma
    np.testing.assert_allclose(measured, velocity, atol=1e-12)


def test_a_position_bias_cancels_in_the_mean_and_leaves_fewer_tokens():
    """Tokens are alike at all distances, so that P stays P. Attention is that of a sequence of
    fewer tokens, (sum of e^p)^2 / (sum of e^2p)."""
    slope, length = 0.05, 400
    classes = syn_small()
    layout, where = dense_layout(classes, symmetric_start=True)
    layout = on_device(layout, "float32")
    task = Sequences(classes, length=length)
    source = row_source(task, classes, where, AlibiPosition(slope), 4000)
    rows = quickly(lambda key: source.draw(layout, key, None))(jax.random.key(0))
    first = np.asarray(rows.query) == 0
    w = np.exp(np.asarray(rows.shared_log_mass)[first])
    seen = w / w.sum(axis=1, keepdims=True)
    P = np.exp(layout.shared_log_prob[0])
    np.testing.assert_allclose(seen.mean(axis=0), P, atol=5e-3)
    bias = AlibiPosition(slope).biases(length - 1)
    tokens = np.exp(bias).sum() ** 2 / np.exp(2 * bias).sum()
    variance = (seen.var(axis=0) / np.maximum(P * (1 - P), 1e-12))[P > 0]
    assert variance.mean() * tokens == pytest.approx(1, abs=0.1)


# -- labels, records, starts, groups --------------------------------------------------------------


def test_heads_and_learned_positions_have_dims_of_their_own(everything):
    run = ("eta_y", "seed", "step", "head")
    assert everything.attention.dims == (*run, "sequence_class", "token")
    assert everything.attention_logits.dims == (*run, "query", "token")
    assert everything.entropy.dims == (*run, "sequence_class")
    assert everything.position_bias.dims == (*run, "distance")
    assert everything.loss.dims == run[:-1]
    assert everything["distance"].values.tolist() == list(range(1, LENGTH))
    model = json.loads(everything.attrs["spec"])["model"]
    assert (model["name"], model["heads"]) == ("extended", 2)
    assert model["position"] == {"name": "learned"}
    for name in ("entropy", "distinct_entropy", "common_mass"):
        measured = getattr(measures, name)(everything)
        np.testing.assert_allclose(everything[name], measured, rtol=1e-10, err_msg=name)


def test_attention_counts_the_query_among_the_expected_tokens(everything):
    last = everything.isel(eta_y=1, seed=0, step=-1, head=0)
    for k, probs in enumerate(CLASSES.probs):
        z = last.attention_logits.sel(query=CLASSES.query[k]).values
        expected = probs * np.exp(z) * np.exp(last.position_bias.values).sum()
        expected[CLASSES.query[k]] += np.exp(z[CLASSES.query[k]])
        attention = last.attention.isel(sequence_class=k)
        np.testing.assert_allclose(attention, expected / expected.sum(), rtol=1e-12)


def test_heads_start_independently_within_the_bounds_of_a_random_start():
    model = ExactExtended(Extended(heads=3, combine="concatenate"))
    layout, _ = dense_layout(CLASSES, symmetric_start=False)
    start = Start(None, CLASSES.in_play, CLASSES.queries, np.array([0, 0]), np.zeros(0), None)
    _, trained = model.begin(on_device(layout, "float32"), start, True, jax.random.key(0))
    for group in (trained.Y, trained.Z.z):
        values = np.asarray(group)
        assert np.abs(values).max() <= 1 / np.sqrt(CLASSES.vocab_size)
        assert np.unique(values).size == values.size


def test_from_zero_heads_stay_identical_and_from_given_logits_they_differ():
    run = Simulation(
        syn_small(),
        Extended(heads=2),
        gradient=Population(),
        motion=Steps(200),
        record=Record("attention", at=[200]),
    )
    same = plain(run)
    np.testing.assert_allclose(same.attention.isel(head=0), same.attention.isel(head=1))
    start = np.zeros((2, 2, syn_small().vocab_size))
    start[1, 0, 12] = 2.0  # head 1 prefers token 12 in the classes of the first query
    labelled = xr.DataArray(start, dims=("head", "query", "token"))
    for init in (start, labelled):
        apart = plain(run, init=init)
        winner = final(apart).isel(seed=0, sequence_class=0).argmax("token")
        assert winner.values.tolist()[1] == 12
        assert winner.values.tolist()[0] != 12


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Extended(normalization="L2"), "normalization"),
        (lambda: Extended(combine="sum"), "combine"),
        (lambda: Extended(heads=0), "heads"),
        (lambda: Extended(heads=1.5), "heads"),
        (lambda: Extended(residual="yes"), "residual"),
        (lambda: Extended(position=0.1), "position"),
        (lambda: position_from("alibi"), "position"),
        (lambda: position_from("alibi:steep"), "position"),
        (lambda: position_from("rotary"), "position"),
        (lambda: AlibiPosition(float("nan")), "slope"),
        (lambda: FixedPosition(()), "bias"),
        (lambda: Sequences(CLASSES, training_set=0), "training_set"),
        (lambda: Sequences(CLASSES, length="inf", training_set=3), "training_set"),
    ],
)
def test_settings_are_checked_when_made(make, field):
    with pytest.raises(InputError, match=f"^{field}"):
        make()


@pytest.mark.parametrize(
    ("model", "settings", "field"),
    [
        (Extended(position="learned"), {}, "position"),
        (Extended(position="alibi:0.1"), {"motion": Flow()}, "position"),
        (Extended(attend_self=True), {}, "attend_self"),
        (
            Extended(position="fixed:0,1"),
            {"task": Sequences(CLASSES, length=LENGTH), "gradient": Batches(4)},
            "position",
        ),
        (Extended(heads=2), {"init": np.zeros((3, 2, 8))}, "init"),
        (Extended(), {"init": np.zeros((1, 2, 8))}, "init"),
        (Extended(heads=2), {"init": BY_HEAD_ALONE}, "init"),
    ],
)
def test_settings_that_do_not_fit_together_name_the_field(model, settings, field):
    with pytest.raises(InputError, match=f"^{field}"):
        Simulation(**{"task": CLASSES, "model": model, "gradient": Population(), **settings})


def test_positions_are_read_from_text():
    assert position_from("learned") == LearnedPosition()
    assert position_from("alibi:0.5") == AlibiPosition(0.5)
    assert position_from("fixed:0,-1,2") == FixedPosition((0.0, -1.0, 2.0))
