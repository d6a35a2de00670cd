"""Joint: against a brute force in the space of the embeddings and finite differences, its limits,
its invariants, and where it reaches infinity."""

from dataclasses import replace
from functools import partial

import brute
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain import plain
from quickly import quickly

import attnlab
from attnlab import (
    Batches,
    Population,
    Record,
    SequenceClasses,
    Sequences,
    Simulation,
    Steps,
    measures,
    simulate,
)
from attnlab.files.errors import InputError
from attnlab.papers.joma import theory
from attnlab.papers.joma.classes import joma_toy
from attnlab.papers.joma.exact import ExactJoint, Perceptron, gelu, softmax
from attnlab.papers.joma.model import Joint
from attnlab.simulation.exact.gradient import Parameters, Rows
from attnlab.simulation.program import on_device

DOUBLE = {"dtype": "float64"}
# Next token 0 belongs to two queries, the prior is not uniform, query 4 is drawn as context, and
# token 6 is not in play.
CLASSES = SequenceClasses(
    probs=[[0.4, 0.3, 0.2, 0, 0.1, 0, 0], [0.2, 0, 0.5, 0.3, 0, 0, 0], [0, 0.6, 0, 0.4, 0, 0, 0]],
    query=[4, 5, 5],
    next_token=[0, 0, 3],
    prior=[0.5, 0.2, 0.3],
)
LABELS = np.array([0, 0, 1])
ONE_QUERY = SequenceClasses(
    probs=[[0.5, 0.3, 0.2, 0, 0, 0], [0.2, 0, 0.4, 0.4, 0, 0], [0.1, 0.6, 0, 0.3, 0, 0]],
    query=[4, 4, 4],
    next_token=[0, 1, 5],
)
VARIANTS = [
    Joint(),
    Joint(5, "gelu", "softmax", temperature=0.5),
    Joint(4, "relu", "exp", residual=False),
    Joint(None, "gelu", "exp", temperature=2.0, stationary=True),
    Joint(3, "relu", "linear", stationary=True),
    Joint(6, "linear", "linear", temperature=0.7),
]
STARTS = np.linspace(-1, 1, 2 * 7).reshape(2, 7) ** 3 + 0.3
RUN = Simulation(
    CLASSES,
    Joint(5, "gelu", "exp", temperature=0.5, scale=0.3),
    gradient=Population(),
    motion=Steps(6),
    eta_y=[0.4, 0.8],
    eta_z=0.6,
    seeds=[11, 12],
    init=STARTS,
    record=Record(at=[0, 6]),
    **DOUBLE,
)


def name_of(model):
    return "-".join(str(v) for v in vars(model).values())


def orthonormal(M):
    return np.linalg.qr(np.random.default_rng(3).normal(size=(2 * M, 2 * M)))[0]


def switches(model):
    names = ("activation", "attention", "temperature", "residual", "stationary")
    return {name: getattr(model, name) for name in names}


@pytest.mark.parametrize("model", VARIANTS, ids=name_of)
def test_gradient_is_that_of_the_brute_force_and_of_finite_differences(model):
    rng = np.random.default_rng(0)
    exact, M, H = ExactJoint(model), CLASSES.vocab_size, model.hidden or 2
    U = orthonormal(M)
    W, Z = rng.normal(size=(H, 2 * M)), rng.normal(size=(M, M))
    V = rng.normal(size=(H, 2)) if model.hidden else np.eye(2)
    drawn = [0, 1, 2, 0]
    tokens = np.stack([rng.choice(M, size=6, p=CLASSES.probs[k]) for k in drawn])
    sequences = (tokens, CLASSES.query[drawn], LABELS[drawn])
    weights = np.array([0.4, 0.3, 0.2, 0.1])
    with jax.enable_x64(True):
        layout, where = exact.lay_out(CLASSES, None)
        layout = on_device(layout, "float64")
        by_place = where.tokens[np.argsort(where.position)]
        counts = (tokens[:, :, None] == by_place).sum(axis=1)
        with np.errstate(divide="ignore"):
            mass = jnp.asarray(np.log(counts))
        rows = Rows(
            mass,
            layout.exclusive_log_prob,
            layout.query[jnp.array(drawn)],
            layout.target[jnp.array(drawn)],
            jnp.asarray(weights),
        )
        none = np.zeros((H, 0))
        of_query = (W @ U)[:, M + CLASSES.queries] if model.residual else none
        upper = V if model.hidden else none
        trained = jax.tree.map(
            jnp.asarray,
            Parameters(
                Perceptron((W @ U)[:, by_place], of_query, none if model.stationary else upper),
                Z[CLASSES.queries][:, by_place],
            ),
        )
        fixed = jnp.asarray(upper if model.stationary else none)
        value, slope = quickly(exact.loss_and_gradient)(layout, rows, trained, fixed)

        loss = partial(brute.joint_loss, **switches(model))
        by_autodiff = quickly(jax.value_and_grad(loss, (0, 1, 2)))
        brute_value, (dW, dZ, dV) = by_autodiff(W, Z, V, U, sequences, weights)
        close = {"rtol": 0, "atol": 1e-13}
        assert float(value) == pytest.approx(float(brute_value), rel=1e-12)
        np.testing.assert_allclose(slope.Y.lower, (dW @ U)[:, by_place], **close)
        np.testing.assert_allclose(slope.Z, dZ[CLASSES.queries][:, by_place], **close)
        if model.residual:
            np.testing.assert_allclose(slope.Y.query, (dW @ U)[:, M + CLASSES.queries], **close)
        if slope.Y.upper.size:
            np.testing.assert_allclose(slope.Y.upper, dV, **close)

        direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), trained)
        moved = quickly(
            lambda s: exact.loss(
                layout, rows, jax.tree.map(lambda x, d: x + s * d, trained, direction), fixed
            )
        )
        difference = float(moved(1e-5) - moved(-1e-5)) / 2e-5
        pairs = zip(*map(jax.tree.leaves, (slope, direction)), strict=True)
        along = sum(np.vdot(g, d) for g, d in pairs)
        assert difference == pytest.approx(along, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(("dtype", "within"), [("float64", 1e-14), ("float32", 1e-6)])
def test_gelu_and_softmax_are_those_of_jax_up_to_their_second_slopes(dtype, within):
    """An implicit solver takes the second."""
    theirs = partial(jax.nn.gelu, approximate=False), partial(jax.nn.softmax, axis=1)
    with jax.enable_x64(True):
        x = jnp.linspace(-9, 9, 60, dtype=dtype).reshape(3, 20)
        direction = jnp.ones((3, 20), dtype).at[:, ::3].set(-0.5)
        for ours, jaxs in zip((gelu, softmax), theirs, strict=True):
            found, expected = (
                quickly(lambda x, f=f: _slopes(f, x, direction))(x) for f in (ours, jaxs)
            )
            assert found[0].dtype == dtype
            for here, there in zip(found, expected, strict=True):
                np.testing.assert_allclose(here, there, rtol=0, atol=9 * within)


def _slopes(f, x, direction):
    """Return f, its slope pulled back, and the change of that along the direction."""

    def slope(x):
        value, pull_back = jax.vjp(f, x)
        return value, pull_back(direction)[0]

    return (*slope(x), jax.jvp(slope, (x,), (direction,))[1][1])


# -- runs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs():
    """Return runs at two learning rates and two seeds at once, for T to infinity."""
    return plain(RUN)


def test_it_trains_as_the_brute_force(runs):
    """From the recorded start, over whole vocabularies and embeddings; also that each weight is
    recorded at its token."""
    model, M = RUN.model, CLASSES.vocab_size
    first, last = (runs.sel(eta_y=0.8, seed=12).isel(step=i) for i in (0, -1))
    U = orthonormal(M)
    r = np.zeros((5, M))
    r[:, CLASSES.queries] = first["query_weights"]
    W = np.concatenate([first["mlp_weights"], r], axis=1) @ U.T
    Z = np.zeros((M, M))
    Z[CLASSES.queries] = first["attention_logits"]
    np.testing.assert_array_equal(first["attention_logits"], STARTS)
    V = first["upper_weights"].values
    # sequences whose frequencies are P: 10 tokens each
    tokens = np.stack([np.repeat(np.arange(M), np.rint(10 * P).astype(int)) for P in CLASSES.probs])
    sequences = (tokens, CLASSES.query, LABELS)
    with jax.enable_x64(True):
        loss = partial(brute.joint_loss, **switches(model))
        slope = quickly(jax.grad(loss, (0, 1, 2)))
        for _ in range(6):
            dW, dZ, dV = slope(W, Z, V, U, sequences, CLASSES.prior)
            dW, dZ, dV = map(np.asarray, (dW, dZ, dV))
            W, Z, V = W - 0.8 * dW, Z - 0.6 * dZ, V - 0.8 * dV
    in_play = CLASSES.in_play
    np.testing.assert_allclose(last["mlp_weights"][:, in_play], (W @ U)[:, in_play], atol=1e-12)
    assert not np.any(last["mlp_weights"].isel(token=6))
    np.testing.assert_allclose(last["query_weights"], (W @ U)[:, M + CLASSES.queries], atol=1e-12)
    np.testing.assert_allclose(last["upper_weights"], V, atol=1e-12)
    np.testing.assert_allclose(last["attention_logits"], Z[CLASSES.queries], atol=1e-12)


def test_many_runs_at_once_are_those_runs_one_by_one(runs):
    alone = plain(RUN, eta_y=0.4, seeds=[12])
    together = runs.sel(eta_y=[0.4], seed=[12]).squeeze("eta_y")
    for name in ("attention", "attention_logits", "mlp_weights", "upper_weights", "loss"):
        np.testing.assert_allclose(together[name], alone[name], rtol=0, atol=1e-13)


def test_records_have_their_labels_and_give_the_value_back(runs):
    assert runs["mlp_weights"].dims == ("eta_y", "seed", "step", "unit", "token")
    assert runs["query_weights"].dims[-2:] == ("unit", "query")
    assert runs["upper_weights"].dims[-2:] == ("unit", "label")
    assert runs.sizes["unit"] == 5
    assert Simulation.of(runs).model == RUN.model
    np.testing.assert_allclose(runs["attention"].sum("token"), 1, rtol=1e-12)
    b = CLASSES.probs * np.exp(runs["attention_logits"].values[..., [0, 1, 1], :] / 0.5)
    np.testing.assert_allclose(runs["attention"], b / b.sum(axis=-1, keepdims=True), rtol=1e-12)
    W = runs["mlp_weights"].values
    expected = np.linalg.norm(W, axis=(-2, -1)) ** 2 / np.linalg.norm(W, 2, axis=(-2, -1)) ** 2
    np.testing.assert_allclose(measures.stable_rank(runs), expected, rtol=1e-12)


def test_stable_rank_needs_recorded_weights(runs):
    some = runs.isel(eta_y=0, seed=0)[["mlp_weights"]].copy(deep=True)
    some["mlp_weights"][0] = np.nan
    assert np.isnan(measures.stable_rank(some)).values.tolist() == [True, False]
    with pytest.raises(InputError, match=r"Record\(\"logits\"\)"):
        measures.stable_rank(runs[["loss"]])


def test_long_sequences_are_the_limit():
    """With linear attention, for which frequencies have to be counts over T - 1."""
    model = Joint(4, "gelu", "linear", scale=0.3)
    run = replace(RUN, model=model, eta_y=0.5, seeds=1, init="uniform")
    long = replace(run, task=Sequences(CLASSES, length=100_000), gradient=Batches(4_096))
    limit, sampled = (plain(of)["mlp_weights"] for of in (run, long))
    np.testing.assert_array_equal(sampled.isel(step=0), limit.isel(step=0))
    moved = float(abs(limit.isel(step=-1) - limit.isel(step=0)).max())
    apart = float(abs(sampled.isel(step=-1) - limit.isel(step=-1)).max())
    assert 0 < apart < 0.1 * moved  # which classes are drawn still differs from the prior


def test_small_steps_are_the_flow():
    model = Joint(5, "gelu", "softmax", scale=0.3)
    flow = simulate(CLASSES, model=model, eta_z=0.5, time=4.0, **DOUBLE)
    errors = []
    for rate in (0.02, 0.01):
        last = round(4 / rate)
        steps = plain(
            CLASSES,
            gradient=Population(),
            model=model,
            eta_y=rate,
            eta_z=0.5 * rate,
            steps=last,
            at=[0, last],
            **DOUBLE,
        )
        for name in ("mlp_weights", "attention_logits", "upper_weights"):
            assert abs(steps[name][0, 0] - flow[name][0, 0]).max() == 0
        gap = steps["mlp_weights"][0, -1] - flow["mlp_weights"][0, -1]
        errors.append(float(abs(gap).max()))
    assert errors[1] < 5e-3
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1)  # first order in the step


# -- invariants of the flow, and where it ends --------------------------------------------------


@pytest.mark.parametrize(("attention", "activation"), [("exp", "gelu"), ("linear", "linear")])
def test_the_flow_keeps_its_invariant(attention, activation):
    """JoMA: for one query, any activation, any learning rates and any temperature."""
    model = Joint(4, activation, attention, temperature=0.5, scale=0.3)
    run = simulate(ONE_QUERY, model=model, eta_z=0.3, time=30.0, init="uniform", **DOUBLE)
    run = run.isel(seed=0)
    z = run["attention_logits"].isel(query=0, token=ONE_QUERY.in_play)
    v2 = (run["mlp_weights"] ** 2).sum("unit").isel(token=ONE_QUERY.in_play)
    kept = z**2 / 0.3 - v2 if attention == "linear" else 0.5 * z / 0.3 - v2 / 2
    assert float(abs(z - z.isel(time=0)).max()) > 0.05
    assert float(abs(kept - kept.isel(time=0)).max()) < 1e-7


@pytest.fixture(scope="module")
def two_labels():
    """Return classes with two labels, and Delta_l = (P(l|0) - P(l|1)) / (2 sqrt(2)).

    Their hidden units move in opposite directions, so that there is one unit u = sqrt(2) v.
    """
    P = np.array([[0.5, 0.3, 0.2, 0, 0, 0, 0], [0.1, 0.3, 0.25, 0.35, 0, 0, 0]])
    delta = (P[0] - P[1]) / (2 * np.sqrt(2))
    return SequenceClasses(P, query=[4, 4], next_token=[5, 6]), delta


STATIONARY = Joint(None, "linear", "exp", scale=0.0, stationary=True)


@pytest.mark.parametrize(("dtype", "within"), [("float64", 1e-9), ("float32", 1e-3)])
def test_a_flow_that_reaches_infinity_reports_the_time(two_labels, dtype, within):
    classes, delta = two_labels
    end = np.sqrt(np.pi / 2) / abs(delta).max()
    at = [0.0, 0.5 * end, 0.99 * end, 2 * end]
    with pytest.raises(attnlab.Diverged, match=rf"at time {end:.2f}.*reach infinity") as problem:
        simulate(classes, model=STATIONARY, time=3 * end, at=at, dtype=dtype)
    kept = problem.value.dataset.isel(seed=0)
    assert float(kept["diverged_step"]) == pytest.approx(end, rel=within)
    assert kept["time"].values.tolist() == at[:3]
    # v = sqrt(2) erfinv(sqrt(2/pi) Delta t), up to the last record
    from scipy.special import erfinv

    t = kept["time"].values[:, None]
    u = np.sqrt(2) * erfinv(np.sqrt(2 / np.pi) * delta * t)
    found = np.sqrt(2) * kept["mlp_weights"].isel(unit=0).values
    np.testing.assert_allclose(found, u, atol=1e-6 if dtype == "float64" else 1e-3)


def test_a_step_that_rounding_repeats_is_the_last():
    """It is not tried 100,000 times: steps of three times the least that time can grow by."""
    classes = joma_toy()
    end = np.sqrt(np.pi / 2) / np.linalg.norm(theory.delta(classes)[0], axis=0).max()
    with pytest.raises(attnlab.Diverged, match="^the flow could take no further step in float64"):
        simulate(classes, model=STATIONARY, time=2 * end, what="loss", at=[2 * end], **DOUBLE)


def test_linear_attention_grows_exponentially(two_labels):
    """With a stationary gradient: z = cosh(Delta t), u = sinh(Delta t)."""
    classes, delta = two_labels
    model = replace(STATIONARY, attention="linear")
    run = simulate(classes, model=model, time=50.0, at=[50.0], **DOUBLE).isel(seed=0, time=0)
    np.testing.assert_allclose(run["attention_logits"][0, :4], np.cosh(delta * 50)[:4], rtol=1e-7)
    u = np.sqrt(2) * run["mlp_weights"].isel(unit=0)
    np.testing.assert_allclose(u, np.sinh(delta * 50), atol=1e-6)


def test_a_diverged_run_is_replayed_and_named(two_labels):
    with pytest.raises(attnlab.Diverged, match="^the MLP became non-finite at step ") as problem:
        plain(
            two_labels[0],
            gradient=Population(),
            model=STATIONARY,
            eta_y=[1.0, 30.0],
            eta_z=30.0,
            steps=40,
            what="loss",
            every=1,
        )
    step = problem.value.dataset["diverged_step"].values[:, 0]
    loss = problem.value.dataset["loss"].isel(seed=0)
    assert step[0] > step[1] > 0
    assert np.isfinite(loss.isel(eta_y=1)[: int(step[1]) - 1]).all()
    assert np.isnan(loss.isel(eta_y=1)[int(step[1]) :]).all()


# -- settings -----------------------------------------------------------------------------------


def test_it_is_written_down_and_read_again():
    model = Joint(5, "gelu", "exp", temperature=0.5, residual=False, stationary=True)
    simulation = Simulation(CLASSES, model=model)
    written = simulation.to_document()
    assert written["model"]["name"] == "joint"
    assert Simulation.from_document(written) == simulation


def test_a_sweep_goes_over_its_fields():
    swept = attnlab.sweep(
        Simulation(
            ONE_QUERY,
            Joint(2),
            gradient=Population(),
            motion=Steps(2),
            record=Record("logits", at=[2]),
        ),
        grid={"model.hidden": [2, 3], "eta_z": [0.1, 0.2]},
    )
    weights = swept["mlp_weights"]
    assert (weights.sizes["eta_z"], weights.sizes["hidden"], weights.sizes["unit"]) == (2, 2, 3)
    assert np.isfinite(weights.sel(hidden=3)).all()
    assert np.isnan(weights.sel(hidden=2).isel(unit=2)).all()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hidden": 0}, "hidden"),
        ({"activation": "tanh"}, "activation"),
        ({"attention": "sigmoid"}, "attention"),
        ({"temperature": 0.0}, "temperature"),
        ({"residual": 1}, "residual"),
        ({"scale": -1.0}, "scale"),
        ({"activation": "relu", "scale": 0.0}, "scale"),
        ({"stationary": "no"}, "stationary"),
    ],
)
def test_bad_settings_are_refused(fields, named):
    with pytest.raises(InputError, match=f"^{named}:"):
        Joint(**fields)
