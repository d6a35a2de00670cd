"""Tasks and models of polarisation against PyTorch twins, and their late arithmetic."""

import csv
import math
from importlib import resources

import jax
import numpy as np
import pytest
import torch
from quickly import quickly
from scipy.special import expit, softmax

from attnlab.files.errors import InputError
from attnlab.models.losses import LOSSES
from attnlab.papers.polarisation import theory
from attnlab.papers.polarisation.model import (
    WEIGHTINGS,
    FactoredAttention,
    TiedAttention,
    ValueAttention,
)
from attnlab.papers.polarisation.task import Direction, Distribution, Regression, StickyChain
from attnlab.simulation import TaskLearner
from attnlab.tasks import Batch

F = torch.nn.functional
ALPHA = {
    "softmax": lambda a: a.softmax(0),
    "l2": lambda a: F.normalize(a.softmax(0), dim=0),
    "sum": lambda a: a / a.sum(),
    "l1": lambda a: F.normalize(a.abs(), p=1, dim=0),
    "relu": lambda a: F.normalize(a.relu(), p=1, dim=0),
    "square": lambda a: F.normalize(a * a, p=1, dim=0),
    "sigmoid": torch.sigmoid,
}
LOSS = {
    Direction: lambda out, target: F.soft_margin_loss(out, target),
    Regression: lambda out, target: F.mse_loss(out, target, reduction="sum"),
    Distribution: lambda out, target: F.cross_entropy(out, target),
    StickyChain: lambda out, target: F.cross_entropy(out, target, reduction="none"),
}


def twin(model, p, inputs):
    """The model in PyTorch."""
    if isinstance(model, FactoredAttention):
        q, pi = inputs
        phi = p["embedding"] @ p["query"] @ p["key"].T @ p["embedding"].T
        return (pi.log() + phi[q]).softmax(-1) @ p["embedding"] @ p["decoder"]
    if isinstance(model, TiedAttention):
        U = p["embedding"]
        return inputs @ U @ (U @ p["query"]).softmax(0)
    return inputs @ p["value"] @ ALPHA[model.weighting](p["attention"])


def as_torch(tree):
    return jax.tree.map(lambda x: torch.tensor(np.asarray(x)), tree)


CASES = [
    (Direction(5), TiedAttention()),
    (Regression(4), ValueAttention(6)),
    (Distribution(4), ValueAttention(6)),
    (Distribution(4, None), ValueAttention(6)),
    (StickyChain(), FactoredAttention(3)),
    *[(Direction(4), ValueAttention(6, weighting)) for weighting in WEIGHTINGS],
]


def made_up(task, model):
    """Data and a start of the right shapes from numpy: random numbers of JAX compile slowly."""
    rng = np.random.default_rng(3)
    key = jax.random.key(0)
    learner = TaskLearner(task, model)
    data = jax.eval_shape(task.draw, key)
    if data:
        X, target = (rng.normal(size=of.shape) for of in data)
        certain = getattr(task, "sharpness", 0) is None
        data = X, np.eye(target.size)[1] if certain else softmax(target)
    shapes = jax.eval_shape(learner.init, key, data)
    return data, {name: rng.normal(0.4, 0.8, of.shape) for name, of in shapes.items()}


def learn(task, model, data, params):
    """Batch, loss, gradient and captured arrays of one case."""
    learner = TaskLearner(task, model, "cross_entropy" if task == StickyChain() else "task")
    batch = learner.population(data)
    loss, slopes = learner.loss_and_grad(data, params, batch, None, list(params))
    return batch, loss, slopes, learner.capture(data, params, batch)


@pytest.fixture(scope="module")
def found():
    """Start and results of all cases, compiled as one program."""
    with jax.enable_x64(True):
        given = [made_up(*case) for case in CASES]
        results = quickly(
            lambda given: [learn(*case, *of) for case, of in zip(CASES, given, strict=True)]
        )(given)
        results = jax.tree.map(np.asarray, results)
    return {
        case: (params, *result)
        for case, (_, params), result in zip(CASES, given, results, strict=True)
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss_and_gradient_equal_those_of_pytorch(found, case):
    task, model = case
    params, batch, loss, slopes, _ = found[case]
    p = {name: x.requires_grad_() for name, x in as_torch(params).items()}
    losses = LOSS[type(task)](twin(model, p, as_torch(batch.inputs)), as_torch(batch.target))
    if batch.weight is not None:
        losses = (losses * as_torch(batch.weight)).sum()
    losses.backward()
    assert float(loss) == pytest.approx(losses.item(), rel=1e-12)
    for name, slope in slopes.items():
        np.testing.assert_allclose(slope, p[name].grad, atol=1e-12)
        assert np.abs(slope).max() > 1e-4


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_the_theory_has_the_same_velocity(found, weighting):
    params, batch, _, slopes, captured = found[Direction(4), ValueAttention(6, weighting)]
    V, a, beta, y = params["value"], params["attention"], batch.inputs[0, 0], batch.target[0, 0]
    alpha = theory.attend(a, weighting=weighting)
    dV, da = theory.velocity(V, a, -y * beta * expit(-y * beta @ V @ alpha), weighting=weighting)
    np.testing.assert_allclose(-slopes["value"], dV, atol=1e-12)
    np.testing.assert_allclose(-slopes["attention"], da, atol=1e-12)
    np.testing.assert_allclose(captured["weights"], alpha, atol=1e-14)
    np.testing.assert_allclose(captured["value_norms"], np.linalg.norm(V, axis=0))
    np.testing.assert_allclose(captured["scores"][0, 0], beta @ V)


def test_references_of_the_chain(found):
    task = StickyChain()
    _, _, _, _, captured = found[task, FactoredAttention(3)]
    bayes = theory.group_loss(task.frequencies, task.stickiness, range(4))
    unigram = theory.group_loss(task.frequencies, task.stickiness, [0] * 4)
    assert captured["bayes_loss"] == pytest.approx(bayes)
    assert captured["unigram_loss"] == pytest.approx(unigram)
    assert captured["uniform_loss"] == pytest.approx(np.log(4))
    assert captured["bayes_kl"] == pytest.approx(captured["probe_loss"] - bayes)


def drawn(key):
    direction = Direction(300).draw(key)
    return {
        "direction": direction,
        "regression": Regression(20, condition=5.0).draw(key),
        "norm": Regression(20, norm=3.0).draw(key)[1],
        "distribution": Distribution(1000, 10.0).draw(key)[1],
        "one_hot": Distribution(4, None).draw(key)[1],
        "value": ValueAttention(200, "softmax", 0.1, 1.0, 0.3).init(key, None, direction),
        "tied": TiedAttention().init(key, None, direction),
        "factored": FactoredAttention(100, 0.02).init(key, StickyChain(), ()),
    }


def test_what_is_drawn():
    key = jax.random.key(0, impl="unsafe_rbg")
    found = jax.tree.map(np.asarray, quickly(drawn)(key))
    X, label = found["direction"]
    assert X.shape == (1, 300) and np.linalg.norm(X) == pytest.approx(1)
    np.testing.assert_array_equal(label, [1])
    X, beta = found["regression"]
    np.testing.assert_allclose(np.linalg.svd(X)[1], np.linspace(1, 0.2, 20), rtol=1e-5)
    assert 2 < np.linalg.norm(beta) < 7  # N(0, I) of 20: 4.4, sd 0.7
    assert np.linalg.norm(found["norm"]) == pytest.approx(3)
    assert 9.9 < np.ptp(np.log(found["distribution"])) < 10
    np.testing.assert_array_equal(np.sort(found["one_hot"]), [0, 0, 0, 1])
    V, a = found["value"]["value"], found["value"]["attention"]
    assert V.shape == (300, 200) and V.std() == pytest.approx(0.1, rel=0.02)
    assert a.mean() == pytest.approx(1, abs=0.1) and a.std() == pytest.approx(0.3, rel=0.2)
    np.testing.assert_array_equal(found["tied"]["embedding"], np.eye(300))
    assert found["tied"]["query"].mean() == pytest.approx(1, abs=0.03)
    shapes = {name: x.shape for name, x in found["factored"].items()}
    m = 100
    assert shapes == {"embedding": (4, m), "query": (m, m), "key": (m, m), "decoder": (m, 4)}
    assert found["factored"]["key"].std() == pytest.approx(0.02, rel=0.03)


def test_a_certain_target_needs_care():
    """Late, the target's error is minus the sum of the others; a softmax has lost it."""
    task = Distribution(4, None)
    batch = Batch(np.eye(4)[None], np.eye(4)[:1])

    def careful(f):
        return task.loss((), f, batch).sum()

    def plain(f):
        return LOSSES["cross_entropy"](f, batch.target).sum()

    with jax.enable_x64(True):
        f = np.array([[45.0, 0.0, 0.0, 0.0]])
        both = quickly(lambda f: (jax.grad(careful)(f)[0], jax.grad(plain)(f)[0]))(f)
        with_care, naive = map(np.asarray, both)
    np.testing.assert_allclose(with_care, np.exp(-45) * np.array([-3, 1, 1, 1]), rtol=1e-12)
    assert naive[0] == 0


def _rows(name):
    text = resources.files("attnlab.papers.polarisation").joinpath(f"published/{name}.csv")
    comment, *lines = text.read_text().splitlines()
    assert comment.startswith("# ")
    return list(csv.DictReader(lines))


def test_published_settings_are_those_of_the_classes():
    """Defaults are the published settings, and every row makes a task and a model."""
    tasks = {"logistic": Direction, "square": Regression, "cross_entropy": Distribution}
    rows = {row["experiment"]: row for row in _rows("settings")}

    def made(row):
        def given(*names):
            return {name: float(row[name]) for name in names if row[name]}

        if row["experiment"].startswith("tied"):  # whose loss is not known
            return Direction(int(row["dim"])), TiedAttention()
        task = tasks[row["loss"]](int(row["dim"]), **given("condition", "sharpness"))
        starts = given("value_scale", "logit_mean", "logit_scale")
        return task, ValueAttention(int(row["tokens"]), **starts)

    assert made(rows["logistic"]) == (Direction(), ValueAttention())
    assert made(rows["regression-1"])[0] == Regression()
    assert made(rows["cross-entropy"])[0] == Distribution()
    for row in rows.values():
        task, model = made(row)
        learner = TaskLearner(task, model, "task")
        start = jax.eval_shape(
            lambda key, of=learner: of.init(key, of.task.draw(key)), jax.random.key(0)
        )
        assert (row["dim"], row["tokens"]) == tuple(
            str(size) for size in start.get("value", start.get("embedding")).shape
        )
    pi = tuple(float(row["frequency"]) for row in _rows("chain"))
    assert StickyChain(pi) == StickyChain()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Direction(0), "dim: expected a whole number"),
        (lambda: Regression(condition=0.5), "condition: expected a number of at least 1"),
        (lambda: Regression(norm=0.0), "norm: expected a number above 0"),
        (lambda: Distribution(1), "dim: expected a whole number of at least 2"),
        (lambda: Distribution(sharpness=0.0), "sharpness: expected a number above 0"),
        (lambda: StickyChain((0.5, 0.6)), "frequencies: expected two or more"),
        (lambda: StickyChain(stickiness=1.0), "stickiness: expected between 0 and 1"),
        (lambda: ValueAttention(1), "tokens: expected a whole number of at least 2"),
        (lambda: ValueAttention(weighting="max"), "weighting: expected one of"),
        (lambda: ValueAttention(value_scale=-1.0), "value_scale: expected a finite number"),
        (lambda: TiedAttention(logit_scale=math.inf), "logit_scale: expected a finite number"),
        (lambda: FactoredAttention(0), "width: expected a whole number"),
        (lambda: FactoredAttention(scale=-1.0), "scale: expected a finite number"),
    ],
)
def test_bad_settings_are_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()
