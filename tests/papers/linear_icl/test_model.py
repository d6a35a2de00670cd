"""Task, models and learners of in-context regression: full matrices, PyTorch, exact quadrature."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
import torch

from attnlab.files.errors import InputError
from attnlab.papers.linear_icl import theory
from attnlab.papers.linear_icl.claims.population import quadrature
from attnlab.papers.linear_icl.learner import PopulationRegression, SampleRegression, moments
from attnlab.papers.linear_icl.model import LABEL_BLOCKS, CubicPerceptron, LinearAttention
from attnlab.papers.linear_icl.task import InContextRegression
from attnlab.simulation.learner import TaskLearner
from attnlab.simulation.program import Compiled
from attnlab.tasks import MarkovChains

SMALL = InContextRegression((0.6, 0.3, 0.1), examples=5, sequences=40)
MODELS = [LinearAttention(heads=3, std=0.5), LinearAttention(heads=3, rank=2, std=0.5)]
KEY = 7


@pytest.fixture(autouse=True)
def in_double_precision():
    with jax.enable_x64(True):
        yield


# One program for each of these, compiled quickly as those of runs are.
quick = partial(Compiled, effort="quick")


@quick
def draw(plan, key):
    return plan.draw(jax.random.key(key))


@quick
def new(plan, key):
    return plan.batch((), jax.random.key(key), 0, plan.sequences)


@quick
def start(plan):
    return plan.init(jax.random.key(KEY), SMALL, ())


@quick
def applied(plan, params, inputs):
    return plan.apply(params, inputs), plan.weights(params)


@quick
def graded(plan, data, params, batch):
    learner, groups = plan
    found = {} if isinstance(learner, TaskLearner) else learner.capture(data, params, ())
    return *learner.loss_and_grad(data, params, batch, None, groups), found


@quick
def gathered(plan, batch):
    return moments(batch)


def filled(model, task=SMALL):
    """The model's weights with numbers in the blocks that start at 0."""
    rng = np.random.default_rng(KEY)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(KEY), task, ()))
    return {name: 0.5 * rng.normal(size=of.shape) for name, of in shapes.items()}


def without_blocks(params):
    return {name: of for name, of in params.items() if name not in LABEL_BLOCKS}


# The task


def test_the_training_set_is_whitened_and_centred_and_has_its_share_of_fresh_tasks():
    batch = jax.device_get(draw(InContextRegression(sequences=500, fresh=0.6), 0))
    x = batch.inputs[..., :-1]
    np.testing.assert_allclose(x.mean(0), 0.0, atol=1e-14)
    # from 31 examples without noise the task of a sequence is known exactly
    w = np.stack([np.linalg.lstsq(of[:-1, :-1], of[:-1, -1])[0] for of in batch.inputs])
    own, shared = w[:300], w[300:]
    np.testing.assert_allclose(own.mean(0), 0.0, atol=1e-10)
    np.testing.assert_allclose(own.T @ own / 300, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(shared, 1.0, atol=1e-10)
    np.testing.assert_allclose((w * x[:, -1]).sum(1), batch.target, atol=1e-10)
    np.testing.assert_array_equal(batch.inputs[:, -1, -1], 0.0)
    variances = (x**2).mean((0, 1))  # 16,000 draws: a standard deviation is 1.1 %
    np.testing.assert_allclose(variances, [0.4, 0.3, 0.2, 0.1], rtol=0.05)


def test_labels_of_noise_say_nothing_about_the_target():
    """New sequences: of a share the task is the shared one, as the target of each shows."""
    batch = jax.device_get(new(InContextRegression((0.25,) * 4, fresh=0.2, noise=True), 2))
    x, y = batch.inputs[:, :-1, :-1], batch.inputs[:, :-1, -1]
    assert float((y**2).mean()) == pytest.approx(1.0, abs=0.03)
    beta = (y[..., None] * x).mean(1)
    guess = (beta * batch.inputs[:, -1, :-1]).sum(1)
    assert abs(np.corrcoef(guess, batch.target)[0, 1]) < 0.06  # 4 standard deviations
    is_shared = np.isclose(batch.inputs[:, -1, :-1].sum(1), batch.target)
    assert is_shared[1000:].all() and not is_shared[:1000].any()


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"spectrum": (0.1, 0.2)}, "spectrum"),
        ({"spectrum": ()}, "spectrum"),
        ({"spectrum": (1.0, float("nan"))}, "spectrum"),
        ({"examples": 0}, "examples"),
        ({"sequences": 4}, "sequences"),
        ({"fresh": 1.1}, "fresh"),
    ],
)
def test_bad_settings_of_the_task_are_refused(fields, name):
    with pytest.raises(InputError, match=f"^{name}: "):
        InContextRegression(**fields)


# The models


@pytest.mark.parametrize("model", MODELS, ids=["merged", "separate"])
def test_attention_is_its_formula_with_whole_matrices(model):
    """[X + sum_i W^V_i X X^T W^KQ_i X / N], whose entries that do not count are random."""
    batch, params = draw(SMALL, 3), filled(model)
    (said, captured), (W, M) = jax.device_get(applied(model, params, batch.inputs))
    rng = np.random.default_rng(0)
    values, key_queries = rng.normal(size=(2, 3, 4, 4))
    values[:, -1], key_queries[:, :, :-1] = W, M
    for sequence, y in zip(np.asarray(batch.inputs), said, strict=True):
        X = sequence.T
        heads = [V @ X @ X.T @ KQ @ X / 5 for V, KQ in zip(values, key_queries, strict=True)]
        assert (X + sum(heads))[-1, -1] == pytest.approx(float(y), rel=1e-12)
    assert captured["matrix"].shape == (3, 3)
    blocks = np.concatenate([W[:, :-1], M[:, -1]])
    assert float(captured["leak"]) == pytest.approx(np.linalg.norm(blocks, axis=1).max())


class Twin(torch.nn.Module):
    """Linear attention in PyTorch, token by token."""

    def __init__(self, params):
        super().__init__()
        arrays = {name: torch.tensor(np.array(of)) for name, of in params.items()}
        self.weights = torch.nn.ParameterDict(arrays)

    def forward(self, tokens):
        p, label = self.weights, tokens[..., -1]
        read = tokens[..., :-1] @ p["value_inputs"].T + label[..., None] * p["value"]  # B T H
        query = tokens[:, -1, :-1]
        if "query" in p:
            keys = torch.cat([p["key"], p["key_labels"][..., None]], -1)  # H R D+1
            k = torch.einsum("btd,hrd->bthr", tokens, keys)
            score = torch.einsum("bthr,hre,be->bth", k, p["query"], query)
        else:
            inner = torch.einsum("btd,hde->bthe", tokens[..., :-1], p["key_query"])
            inner = inner + label[..., None, None] * p["key_labels"]
            score = torch.einsum("bthe,be->bth", inner, query)
        return (read * score).sum((1, 2)) / (tokens.shape[1] - 1)


@pytest.mark.parametrize("model", MODELS, ids=["merged", "separate"])
def test_pytorch_has_the_same_loss_and_gradient(model):
    batch, params = draw(SMALL, 4), filled(model)
    learner = TaskLearner(SMALL, model, "square")
    loss, slope, _ = graded((learner, tuple(params)), (), params, batch)
    twin = Twin(params)
    inputs, target = (torch.tensor(np.array(of)) for of in (batch.inputs, batch.target))
    theirs = ((twin(inputs) - target) ** 2).mean()
    theirs.backward()
    assert theirs.item() == pytest.approx(float(loss), rel=1e-12)
    for name, of in twin.weights.items():
        np.testing.assert_allclose(slope[name], of.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_the_perceptron_is_two_linear_layers_in_pytorch():
    model, batch = CubicPerceptron(width=3, std=0.5), draw(SMALL, 4)
    params = filled(model)
    twin = torch.nn.Sequential(*(torch.nn.Linear(*of, bias=False) for of in ((9, 3), (3, 1))))
    twin = twin.double()
    with torch.no_grad():
        twin[0].weight.copy_(torch.tensor(np.array(params["lower"])))
        twin[1].weight.copy_(torch.tensor(np.array(params["upper"]))[None])
    sequences = torch.tensor(np.array(batch.inputs))
    beta = torch.einsum("bnd,bn->bd", sequences[:, :-1, :-1], sequences[:, :-1, -1]) / 5
    z = torch.einsum("bd,be->bde", beta, sequences[:, -1, :-1]).reshape(-1, 9)
    said, _ = model.apply(params, np.asarray(batch.inputs))
    np.testing.assert_allclose(said, twin(z).detach().numpy()[:, 0], rtol=1e-12)


def test_attention_with_its_blocks_held_is_the_perceptron():
    """Same draws, same path, whatever the optimiser's steps are."""
    attention, perceptron = LinearAttention(heads=3, std=0.3), CubicPerceptron(width=3, std=0.3)
    batch, paths = draw(SMALL, 5), []
    for model, moving in ((attention, ("value", "key_query")), (perceptron, ("upper", "lower"))):
        learner = TaskLearner(SMALL, model, "square")
        params = jax.device_get(start(model))
        losses = []
        for step in range(20):
            loss, slope, _ = jax.device_get(graded((learner, moving), (), params, batch))
            rate = 0.1 if step < 10 else 0.3
            params |= {name: params[name] - rate * of for name, of in slope.items()}
            losses.append(float(loss))
        paths.append(losses)
    assert paths[0][-1] < 0.9 * paths[0][0]
    np.testing.assert_allclose(paths[0], paths[1], rtol=1e-12)


@pytest.mark.parametrize("fields", [{"heads": 0}, {"rank": 0}, {"std": 0.0}])
def test_bad_settings_of_the_model_are_refused(fields):
    with pytest.raises(InputError, match=f"^{next(iter(fields))}: "):
        LinearAttention(**fields)


def test_other_tasks_are_refused():
    with pytest.raises(InputError, match="^task: "):
        LinearAttention().init(jax.random.key(0), MarkovChains(), ())


# The learners


@pytest.mark.parametrize("model", MODELS, ids=["merged", "separate"])
def test_the_population_loss_and_its_flow_are_those_of_the_theory(model):
    learner = PopulationRegression((SMALL,), model)
    regression = theory.Regression(SMALL.spectrum, SMALL.examples)
    params = without_blocks(filled(model))
    (data,) = learner.tables(None)
    loss, slope, captured = graded((learner, tuple(params)), data, params, ())
    names = ("value", "key_query") if model.rank is None else ("value", "key", "query")
    kind = theory.Merged if model.rank is None else theory.Separate
    at = kind(*(params[name] for name in names))
    assert float(loss) == pytest.approx(theory.population_loss(regression, at.matrix))
    for name, expected in zip(names, theory.velocity(regression, at), strict=True):
        np.testing.assert_allclose(slope[name], -2 * expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(captured["matrix"], at.matrix)
    np.testing.assert_allclose(captured["learned"], regression.gamma * np.diag(at.matrix))


@pytest.mark.parametrize("rank", [None, 1])
def test_in_the_population_the_blocks_of_labels_feel_nothing(rank):
    """Quadrature that is exact up to degree 9 in each coordinate; other weights do move them."""
    task = InContextRegression((0.6, 0.2), examples=1, sequences=50)
    model = LinearAttention(heads=2, rank=rank, std=0.7)
    params, whole = filled(model, task), quadrature(task.spectrum)
    params |= {name: 0 * params[name] for name in LABEL_BLOCKS}
    learner, moving = TaskLearner(task, model, "square"), tuple(params)
    loss, slope, _ = jax.device_get(graded((learner, moving), (), params, whole))
    reduced = PopulationRegression((task,), model)
    (moments_of,) = reduced.tables(None)
    expected, *_ = graded((reduced, ("value",)), moments_of, without_blocks(params), ())
    assert loss == pytest.approx(float(expected), rel=1e-12)
    other = whole._replace(weight=np.random.default_rng(0).random(len(whole.target)))
    _, of_sample, _ = jax.device_get(graded((learner, moving), (), params, other))
    for name in LABEL_BLOCKS:
        assert np.abs(slope[name]).max() < 1e-13
        assert np.abs(of_sample[name]).max() > 1e-3


@pytest.mark.parametrize("model", MODELS, ids=["merged", "separate"])
def test_moments_give_the_loss_and_gradient_of_all_sequences(model):
    mixed = replace(SMALL, fresh=0.5)
    learner, direct = SampleRegression((mixed,), model), TaskLearner(SMALL, model, "square")
    params, batch = filled(model), draw(SMALL, 9)
    data = dict.fromkeys(("training", "in_context", "in_weight"), gathered(None, batch))
    data["gamma"] = SMALL.regression.gamma
    loss, slope, captured = graded((learner, tuple(params)), data, params, ())
    expected, of_all, _ = graded((direct, tuple(params)), (), params, batch)
    assert float(loss) == pytest.approx(float(expected), rel=1e-12)
    for name in params:
        np.testing.assert_allclose(slope[name], of_all[name], rtol=1e-9, atol=1e-12)
    assert set(captured) == {"matrix", "leak", "learned", "in_context_loss", "in_weight_loss"}
    assert float(captured["in_weight_loss"]) == pytest.approx(float(loss))


def test_mixtures_have_no_population_of_moments():
    for task in (replace(SMALL, fresh=0.5), replace(SMALL, noise=True)):
        with pytest.raises(InputError, match="^tasks: "):
            PopulationRegression((task,), LinearAttention())
