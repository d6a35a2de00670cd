"""The task and the model against a PyTorch twin, the closed gradient, and measured values."""

from dataclasses import replace
from functools import cache, partial
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab.files.errors import InputError
from attnlab.papers.max_margin import theory
from attnlab.papers.max_margin.attention import attend
from attnlab.papers.max_margin.model import CrossAttention, normalised, released, released_factors
from attnlab.papers.max_margin.task import TokenSelection

TASK = TokenSelection(sequences=6, length=8, vocab_size=10)  # of the published runs
EQUAL = replace(TASK, scores="equal")
SEEDS = 24


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@cache
def instances(task):
    """Return `SEEDS` instances of a task, along the first axis."""
    keys = jax.random.split(jax.random.key(0), SEEDS)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(task.draw))(keys))


@cache
def starts(task, model):
    keys = jax.random.split(jax.random.key(1), SEEDS)
    init = jax.jit(jax.vmap(lambda key, data: model.init(key, task, data)))
    return jax.tree.map(np.asarray, init(keys, instances(task)))


def drawn(task, model):
    """Return an instance, its population and the model's start."""
    data, params = (
        jax.tree.map(itemgetter(0), of) for of in (instances(task), starts(task, model))
    )
    return data, task.population(data), params


def loss(model, params, batch):
    outputs, _ = model.apply(params, batch.inputs)
    return jax.nn.softplus(-batch.target * outputs).mean()


# The task


def test_an_instance_is_made_of_unit_vectors_and_their_scores():
    data = jax.tree.map(itemgetter(0), instances(TASK))
    shapes = {"x": (6, 8, 10), "z": (6, 10), "y": (6,), "values": (6, 8), "scores": (6, 8)}
    assert {name: of.shape for name, of in data.items()} == shapes
    for name in ("x", "z"):
        np.testing.assert_allclose(np.linalg.norm(data[name], axis=-1), 1)
    # the values are those of one unit vector
    v, residual, *_ = np.linalg.lstsq(data["x"].reshape(-1, 10), data["values"].ravel())
    assert residual < 1e-20
    np.testing.assert_allclose(np.linalg.norm(v), 1)
    np.testing.assert_allclose(data["scores"], data["y"][:, None] * (data["x"] @ v), atol=1e-12)


def test_tokens_are_uniform_on_the_sphere_and_labels_fair():
    data = instances(TASK)
    x = data["x"].reshape(-1, 10)
    error = 4 / np.sqrt(len(x))
    np.testing.assert_allclose(x.mean(0), 0, atol=error / np.sqrt(10))
    np.testing.assert_allclose(np.cov(x.T), np.eye(10) / 10, atol=error / 5)
    assert set(data["y"].ravel()) == {-1.0, 1.0} and abs(data["y"].mean()) < 4 / np.sqrt(144)


def test_equal_scores_are_equal_to_the_last_bit():
    """Differences of rounding would decide late in training, when nothing else pulls."""
    data = instances(EQUAL)
    scores = np.sort(data["scores"])
    np.testing.assert_array_equal(scores[..., :-1], 0.1)
    np.testing.assert_array_equal(scores[..., -1], 0.6)
    best = np.bincount(data["scores"].argmax(-1).ravel(), minlength=8)
    np.testing.assert_allclose(best, 144 / 8, atol=4 * np.sqrt(144 / 8))
    x, values = data["x"][0], data["values"][0]
    products = x @ np.linalg.lstsq(x.reshape(-1, 10), values.ravel())[0]
    np.testing.assert_allclose(products, values, atol=1e-12)
    assert len(np.unique(np.abs(products))) > 2  # the products themselves are not equal


def test_in_self_attention_the_first_token_asks():
    task = replace(TASK, query="self")
    data = jax.jit(task.draw)(jax.random.key(0))
    np.testing.assert_array_equal(data["z"], data["x"][:, 0])


def test_without_a_query_w_is_a_vector():
    task = replace(TASK, query="none")
    z = jax.jit(lambda key: task.draw(key)["z"])(jax.random.key(0))
    np.testing.assert_array_equal(z, np.ones((6, 1)))
    data = jax.eval_shape(task.draw, jax.random.key(0))
    params = jax.eval_shape(lambda key: CrossAttention().init(key, task, data), jax.random.key(0))
    assert params["attention"].shape == (10, 1)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"sequences": 0}, "sequences"),
        ({"length": 1}, "length"),
        ({"query": "own"}, "query"),
        ({"scores": "same"}, "scores"),
    ],
)
def test_the_task_is_checked_when_made(fields, match):
    with pytest.raises(InputError, match=match):
        TokenSelection(**fields)


# The model


@pytest.mark.parametrize("model", [CrossAttention(), CrossAttention(width=10, hidden=6)])
def test_a_pytorch_twin_has_the_same_outputs_and_gradients(model):
    torch = pytest.importorskip("torch", reason="no torch here: pip install 'attnlab[observe]'")
    _, batch, params = drawn(TASK, model)
    x, z, values, y = (torch.tensor(of) for of in (*batch.inputs, batch.target))
    twin = {name: torch.tensor(of, requires_grad=True) for name, of in params.items()}
    W = twin["attention"] if model.width is None else twin["key"] @ twin["query"].T
    s = torch.softmax((x @ W @ z[..., None])[..., 0], dim=1)
    if model.hidden:
        f = torch.relu((s[:, None] @ x @ twin["value"])[:, 0]).sum(1)
    else:
        f = (s * values).sum(1)
    torch.nn.functional.softplus(-y * f).mean().backward()
    run = jax.jit(
        lambda params: (
            model.apply(params, batch.inputs),
            jax.grad(partial(loss, model))(params, batch),
        )
    )
    (outputs, found), slope = run(params)
    np.testing.assert_allclose(outputs, f.detach(), rtol=1e-12)
    np.testing.assert_allclose(found["attention"], s.detach(), rtol=1e-12)
    np.testing.assert_allclose(found["matrix"], W.detach(), rtol=1e-12)
    for name in params.keys() - {"value"}:
        np.testing.assert_allclose(slope[name], twin[name].grad, rtol=1e-9, atol=1e-13)


def test_the_gradient_is_the_closed_one_however_small():
    data, batch, _ = drawn(TASK, CrossAttention())
    x, z, scores = (data[name] for name in ("x", "z", "scores"))
    direction = theory.max_margin(x, z, scores.argmax(-1)).weights
    slopes = [
        jax.jit(jax.grad(partial(loss, CrossAttention(arithmetic=how))))
        for how in ("accurate", "scaled")
    ]
    for size in (0.0, 1.0, 200.0, 2000.0):
        W = size * direction
        closed = theory.loss_gradient(x, z, scores, W)
        plain, scaled = (slope({"attention": W}, batch)["attention"] for slope in slopes)
        np.testing.assert_allclose(scaled, closed.value, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(plain, closed.gradient, rtol=1e-9, atol=1e-320)
    assert closed.log_scale < -745 and not np.any(plain)  # underflow, unless scaled


def test_the_usual_softmax_loses_the_direction():
    data, batch, _ = drawn(TASK, CrossAttention())
    W = 40 * theory.max_margin(data["x"], data["z"], data["scores"].argmax(-1)).weights

    def usual(W):
        x, z, values = batch.inputs
        s = jax.nn.softmax(jnp.einsum("ntd,dk,nk->nt", x, W, z))
        return jax.nn.softplus(-batch.target * (s * values).sum(1)).mean()

    exact = theory.loss_gradient(data["x"], data["z"], data["scores"], W).gradient
    assert 0 < np.linalg.norm(exact) < 1e-16
    assert not theory.correlation(jax.jit(jax.grad(usual))(W), exact) > 0.9


def test_attention_is_a_softmax_and_its_slope_that_of_a_softmax():
    rng = np.random.default_rng(0)
    logits, moved = rng.standard_normal((2, 6, 8))
    values = rng.standard_normal((6, 8, 2))

    def usual(logits):
        return jnp.einsum("nt,nth->nh", jax.nn.softmax(logits), values)

    def ours(logits):
        return attend(logits, values, jnp.zeros(()))

    pairs = jax.jit(lambda: [jax.jvp(of, (logits,), (moved,)) for of in (ours, usual)])()
    for found, expected in zip(*pairs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_start_is_uniform():
    bound = 10**-0.5
    for model, names in (
        (CrossAttention(), {"attention"}),
        (CrossAttention(width=10), {"key", "query"}),
    ):
        params = starts(TASK, model)
        assert params.keys() == names and model.fixed == ()
        for of in params.values():
            assert of.shape == (SEEDS, 10, 10)
            assert 0.99 * bound < np.abs(of).max() <= bound
            assert of.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)
    assert not np.any(starts(EQUAL, CrossAttention(scale=0))["attention"])


def test_the_values_of_the_relu_head_are_fixed_and_of_norm_1():
    model = CrossAttention(width=10, hidden=6)
    V = starts(TASK, model)["value"]
    assert V.shape == (SEEDS, 10, 6) and model.fixed == ("value",)
    np.testing.assert_allclose(np.linalg.norm(V, axis=(1, 2)), 1)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"width": 0}, "width"),
        ({"hidden": -1}, "hidden"),
        ({"scale": -1.0}, "scale"),
        ({"scale": float("nan")}, "scale"),
        ({"width": 3, "scale": 0}, "never move"),
        ({"arithmetic": "exact"}, "arithmetic"),
    ],
)
def test_the_model_is_checked_when_made(fields, match):
    with pytest.raises(InputError, match=match):
        CrossAttention(**fields)


def test_what_is_captured_has_the_dims_that_the_model_names():
    model = CrossAttention(width=10)
    _, batch, params = drawn(TASK, model)
    _, found = jax.eval_shape(model.apply, params, batch.inputs)
    assert found.keys() == model.dims.keys()
    assert all(of.ndim == len(model.dims[name]) for name, of in found.items())


# Normalised descent


def test_a_normalised_step_has_its_length_however_small_the_gradient():
    for size in (1.0, 1e-200, 1e-300):
        step, _ = normalised(0.1).update(size * jnp.array([[3.0, 4.0]]), optax.EmptyState())
        np.testing.assert_allclose(step, [[-0.06, -0.08]], rtol=1e-12)
    still, _ = normalised(0.1).update(jnp.zeros((1, 2)), optax.EmptyState())
    np.testing.assert_array_equal(still, 0)
    naive = 1e-200 * jnp.array([[3.0, 4.0]])
    assert float(jnp.linalg.norm(naive)) == 0  # its squares underflow


def test_the_released_steps_end_and_the_ridge_of_the_factors():
    g = jnp.array([[3.0, 4.0]])
    for size, length in ((1.0, 0.1), (2.2e-16 / 5, 0.05), (1e-20, 0.1 * 5e-20 / 2.2e-16)):
        step, _ = released(0.1).update(size * g, released(0.1).init(g))
        np.testing.assert_allclose(jnp.linalg.norm(step), length, rtol=1e-3)
    W = jnp.array([[0.0, 1.0]])
    transform = released_factors(0.1)
    step, _ = transform.update(0 * g, transform.init(W), W)
    np.testing.assert_allclose(step, [[0.0, -0.1 * 2 / 3]], rtol=1e-12)  # 2 eps |W| against eps
