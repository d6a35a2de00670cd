"""The task and the model against a PyTorch twin, the closed gradient, and measured values."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from attnlab.files.errors import InputError
from attnlab.papers.max_margin import runs, theory
from attnlab.papers.max_margin.model import CrossAttention, normalised, released, released_factors
from attnlab.papers.max_margin.task import TokenSelection
from attnlab.simulation.program import SMALL
from attnlab.theory.facts import facts_of

TASK = runs.PUBLISHED
EQUAL = replace(TASK, scores="equal")
SEEDS = 24
HEAD = CrossAttention(width=10, hidden=6)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def drawn(task, seed=0):
    return task.instance(np.random.default_rng(seed).standard_normal(task.numbers))


def together(task):
    """Return `SEEDS` instances of a task, along the first axis."""
    made = [drawn(task, seed) for seed in range(SEEDS)]
    return {name: np.stack([of[name] for of in made]) for name in made[0]}


@pytest.fixture(scope="module")
def begun():
    """`SEEDS` instances and starts as the trainer draws them."""
    return [facts for _, facts in facts_of(runs.descent(TASK, HEAD, at=(1,), seeds=SEEDS))]


def compiled(function):
    """Compile at once, not well: the programs run once."""
    return jax.jit(function, compiler_options=SMALL)


def gradient(model):
    """Return a function of (parameters, batch): the slopes, the outputs and what is captured."""

    def loss(params, batch):
        outputs, found = model.apply(params, batch.inputs)
        return jax.nn.softplus(-batch.target * outputs).mean(), (outputs, found)

    return compiled(jax.grad(loss, has_aux=True))


# The task


def test_an_instance_is_made_of_unit_vectors_and_their_scores(begun):
    for data in (drawn(TASK), begun[0].data):  # of numpy, and as the trainer draws it
        shapes = {"x": (6, 8, 10), "z": (6, 10), "y": (6,), "values": (6, 8), "scores": (6, 8)}
        assert {name: of.shape for name, of in data.items()} == shapes
        for name in ("x", "z"):
            np.testing.assert_allclose(np.linalg.norm(data[name], axis=-1), 1)
        # the values are those of one unit vector
        v, residual, *_ = np.linalg.lstsq(data["x"].reshape(-1, 10), data["values"].ravel())
        assert residual < 1e-20
        np.testing.assert_allclose(np.linalg.norm(v), 1)
        scores = data["y"][:, None] * (data["x"] @ v)
        np.testing.assert_allclose(data["scores"], scores, atol=1e-12)


def test_tokens_are_uniform_on_the_sphere_and_labels_fair(begun):
    x = np.stack([of.data["x"] for of in begun]).reshape(-1, 10)
    y = np.stack([of.data["y"] for of in begun])
    error = 4 / np.sqrt(len(x))
    np.testing.assert_allclose(x.mean(0), 0, atol=error / np.sqrt(10))
    np.testing.assert_allclose(np.cov(x.T), np.eye(10) / 10, atol=error / 5)
    assert set(y.ravel()) == {-1.0, 1.0} and abs(y.mean()) < 4 / np.sqrt(144)


def test_equal_scores_are_equal_to_the_last_bit():
    """Differences of rounding would decide late in training, when nothing else pulls."""
    data = together(EQUAL)
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
    data = drawn(replace(TASK, query="self"))
    np.testing.assert_array_equal(data["z"], data["x"][:, 0])


def test_without_a_query_w_is_a_vector():
    task = replace(TASK, query="none")
    data = drawn(task)
    np.testing.assert_array_equal(data["z"], np.ones((6, 1)))
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


@pytest.mark.parametrize("model", [CrossAttention(), HEAD])
def test_a_pytorch_twin_has_the_same_outputs_and_gradients(model, begun):
    torch = pytest.importorskip("torch", reason="no torch here: pip install 'attnlab[observe]'")
    batch, params = TASK.population(begun[0].data), begun[0].start
    if model.width is None:
        params = {"attention": params["key"] @ params["query"].T}
    x, z, values, y = (torch.tensor(of) for of in (*batch.inputs, batch.target))
    twin = {name: torch.tensor(of, requires_grad=True) for name, of in params.items()}
    W = twin["attention"] if model.width is None else twin["key"] @ twin["query"].T
    s = torch.softmax((x @ W @ z[..., None])[..., 0], dim=1)
    if model.hidden:
        f = torch.relu((s[:, None] @ x @ twin["value"])[:, 0]).sum(1)
    else:
        f = (s * values).sum(1)
    torch.nn.functional.softplus(-y * f).mean().backward()
    slope, (outputs, found) = gradient(model)(params, batch)
    np.testing.assert_allclose(outputs, f.detach(), rtol=1e-12)
    np.testing.assert_allclose(found["attention"], s.detach(), rtol=1e-12)
    np.testing.assert_allclose(found["matrix"], W.detach(), rtol=1e-12)
    for name in params.keys() - {"value"}:
        np.testing.assert_allclose(slope[name], twin[name].grad, rtol=1e-9, atol=1e-13)


def test_the_gradient_is_the_closed_one_however_small_and_the_usual_one_is_not():
    data = drawn(TASK)
    batch = TASK.population(data)
    x, z, scores = (data[name] for name in ("x", "z", "scores"))
    direction = theory.max_margin(x, z, scores.argmax(-1)).weights
    slopes = {
        how: gradient(CrossAttention(arithmetic=how)) for how in ("usual", "accurate", "scaled")
    }
    for size in (0.0, 1.0, 40.0, 200.0, 2000.0):
        W = size * direction
        closed = theory.loss_gradient(x, z, scores, W)
        found = {
            how: slope({"attention": W}, batch)[0]["attention"] for how, slope in slopes.items()
        }
        np.testing.assert_allclose(found["scaled"], closed.value, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(found["accurate"], closed.gradient, rtol=1e-9, atol=1e-320)
        if size == 1:
            np.testing.assert_allclose(found["usual"], closed.gradient, rtol=1e-9, atol=1e-13)
        if size == 40:
            assert 0 < np.linalg.norm(closed.gradient) < 1e-16
            assert not theory.correlation(found["usual"], closed.gradient) > 0.9
    assert closed.log_scale < -745 and not np.any(found["accurate"])  # underflow, unless scaled


def test_starts_are_uniform_and_values_of_the_relu_head_fixed_and_of_norm_1(begun):
    bound = 10**-0.5
    for name in ("key", "query"):
        start = np.stack([of.start[name] for of in begun])
        assert start.shape == (SEEDS, 10, 10)
        assert 0.99 * bound < np.abs(start).max() <= bound
        assert start.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)
    V = np.stack([of.start["value"] for of in begun])
    assert V.shape == (SEEDS, 10, 6)
    np.testing.assert_allclose(np.linalg.norm(V, axis=(1, 2)), 1)
    assert HEAD.fixed == ("value",) and CrossAttention(width=10).fixed == ()


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
    model, data = CrossAttention(), drawn(TASK)
    params = {"attention": np.zeros((10, 10))}
    _, found = jax.eval_shape(model.apply, params, TASK.population(data).inputs)
    assert found.keys() == model.dims.keys()
    assert all(of.ndim == len(model.dims[name]) for name, of in found.items())


# Normalised descent


def steps(transform, gradients, weights=None):
    """Return the first step from each gradient, (number, 1, 2)."""

    def first(gradient):
        return transform.update(gradient, transform.init(gradient), weights)[0]

    return compiled(jax.vmap(first))(gradients)


def test_a_normalised_step_has_its_length_however_small_the_gradient():
    g = np.array([1.0, 1e-200, 1e-300, 0.0])[:, None, None] * np.array([[3.0, 4.0]])
    assert np.linalg.norm(g[1]) == 0  # its squares underflow
    found = steps(normalised(0.1), g)
    np.testing.assert_allclose(found[:3], 3 * [[[-0.06, -0.08]]], rtol=1e-12)
    np.testing.assert_array_equal(found[3], 0)


def test_the_released_steps_end_and_the_ridge_of_the_factors():
    sizes, unit = np.array([5.0, 2.2e-16, 5e-20]), np.array([[0.6, 0.8]])
    found = steps(released(0.1), sizes[:, None, None] * unit)
    expected = 0.1 * sizes / (sizes + 2.2e-16)
    np.testing.assert_allclose(np.linalg.norm(found, axis=(1, 2)), expected, rtol=1e-3)
    W = np.array([[0.0, 1.0]])
    found = steps(released_factors(0.1), np.zeros((1, 1, 2)), W)
    np.testing.assert_allclose(found, [[[0.0, -0.1 * 2 / 3]]], rtol=1e-12)  # 2 eps |W| against eps
