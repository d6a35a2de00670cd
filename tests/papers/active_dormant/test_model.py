"""Task, model and learner of active and dormant heads against PyTorch twins and the theory."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import torch
from quickly import quickly

from attnlab.files.errors import InputError
from attnlab.formulas.chains import stationary
from attnlab.papers.active_dormant import theory
from attnlab.papers.active_dormant.head import SinkFlow
from attnlab.papers.active_dormant.learner import EARLY, BackcopyLearner
from attnlab.papers.active_dormant.model import BackcopyTransformer
from attnlab.papers.active_dormant.task import BigramBackcopy

F = torch.nn.functional
TASK = BigramBackcopy(tokens=6, triggers=2, length=12)
MODELS = [
    BackcopyTransformer(dim=8, mlp=12),
    BackcopyTransformer(dim=8, mlp=12, layers=3),
    BackcopyTransformer(dim=8, mlp=0, layers=2, attention="relu"),
]


def instance(seed, tokens=6, triggers=2):
    """P and the first token's law from numpy, as the task draws them."""
    P = np.random.default_rng(seed).dirichlet(np.full(tokens, 0.5), tokens) * 0.98 + 0.02 / tokens
    order = np.argsort(-stationary(P))
    first = stationary(P)[order]
    first[:triggers] = 0
    return {"P": P[order][:, order], "first": first / first.sum()}


# The task.


@pytest.fixture(scope="module")
def drawn():
    task = BigramBackcopy(tokens=6, triggers=2, length=400)
    bare = replace(task, start_token=False)
    data = instance(1)

    def of(data, key):
        batch = task.batch(data, key, 0, 64)
        short = batch._replace(inputs=batch.inputs[:2], target=batch.target[:2])
        other = bare.batch(data, key, 0, 4)
        return batch, task.references(data, short), other, bare.references(data, other)

    return data, jax.tree.map(np.asarray, quickly(of)(data, jax.random.key(0)))


def test_triggers_copy_and_no_two_are_adjacent(drawn):
    _, (batch, _, bare, _) = drawn
    x = batch.inputs
    assert x.shape == (64, 400) and (x[:, 0] == 6).all() and (x[:, 1:] < 6).all()
    assert (x[:, 1] >= 2).all()
    np.testing.assert_array_equal(x[:, 1:], batch.target[:, :-1])
    assert bare.inputs.shape == (4, 400) and (bare.inputs[:, 0] >= 2).all()
    for of in (x, bare.inputs):
        triggers = of[:, 1:-1] < 2
        np.testing.assert_array_equal(of[:, 2:][triggers], of[:, :-2][triggers])
        assert not (triggers[:, 1:] & triggers[:, :-1]).any()


def test_frequencies_and_transitions_are_those_of_the_theory(drawn):
    data, (batch, _, _, _) = drawn
    x, P = batch.inputs[:, 1:], data["P"]
    counts = np.bincount(x.ravel(), minlength=6) / x.size
    np.testing.assert_allclose(counts, theory.token_frequencies(P, [0, 1]), atol=0.012)
    for v in range(2, 6):
        after = x[:, 1:][x[:, :-1] == v]
        np.testing.assert_allclose(np.bincount(after, minlength=6) / after.size, P[v], atol=0.03)
    first = np.bincount(x[:, 0], minlength=6) / len(x)
    np.testing.assert_allclose(first, data["first"], atol=0.2)


def test_references_are_the_rule_and_the_bigrams(drawn):
    data, (batch, found, bare, of_bare) = drawn
    x, P = batch.inputs[:2], data["P"]
    bigram, rule = (np.exp(found[name]) for name in ("bigram", "rule"))
    np.testing.assert_allclose(bigram[:, 0, :6], data["first"][None].repeat(2, 0), atol=1e-6)
    np.testing.assert_allclose(bigram[:, 1:, :6], P[x[:, 1:]], rtol=1e-5)
    triggers = x < 2
    np.testing.assert_allclose(rule[~triggers], bigram[~triggers])
    np.testing.assert_array_equal(rule[triggers].argmax(-1), batch.target[:2][triggers])
    np.testing.assert_allclose(rule[triggers].max(-1), 1)
    assert of_bare["rule"].shape == (4, 400, 6)
    np.testing.assert_allclose(np.exp(of_bare["bigram"]), P[bare.inputs], rtol=1e-5)


def test_what_is_drawn_is_numbered_by_frequency():
    data = quickly(BigramBackcopy(triggers=3).draw)(jax.random.key(0))
    P, first = (np.asarray(data[name], np.float64) for name in ("P", "first"))
    frequencies = stationary(P / P.sum(-1, keepdims=True))
    assert (np.diff(frequencies) < 0).all() and P.min() >= 0.02 / 16 - 1e-7
    np.testing.assert_allclose(first[3:], frequencies[3:] / frequencies[3:].sum(), rtol=1e-3)
    assert (first[:3] == 0).all()


# The transformer.


def twin(model, p, x):
    """Logits and what is measured, in PyTorch, a layer and a matrix at a time."""
    d, T = model.dim, x.shape[1]
    norm = lambda gain, h: F.layer_norm(h, (d,), gain, eps=1e-5)  # noqa: E731
    h = p["embedding"]["tokens"][x] + p["positions"]["vectors"][:T]
    hidden = torch.ones(T, T).triu(1).bool()
    seen = {name: [] for name in ("attention", "logits", "value", "residual")}
    for layer in range(model.layers):
        z = norm(p["norm"]["attention"]["gain"][layer], h)
        q, k, v = (z @ p["attention"]["qkv"][layer]).split(d, -1)
        logits = (q @ k.mT / d**0.5).masked_fill(hidden, -torch.inf)
        a = logits.softmax(-1)
        if model.attention == "relu":
            a = logits.relu() / torch.arange(1, T + 1)[:, None]
        h = h + a @ v @ p["attention"]["out"][layer]
        if model.mlp:
            z = norm(p["norm"]["mlp"]["gain"][layer], h)
            h = h + (z @ p["mlp"]["up"][layer]).relu() @ p["mlp"]["down"][layer]
        values = (v @ p["attention"]["out"][layer]).norm(dim=-1)
        of_layer = (a, logits, values, h.norm(dim=-1))
        for name, of in zip(seen, of_layer, strict=True):
            seen[name].append(of)
    outputs = norm(p["norm"]["final"]["gain"], h) @ p["decoder"]["weights"].T
    return outputs, {name: torch.stack(of).detach().numpy() for name, of in seen.items()}


def learn(model, data, params):
    learner = BackcopyLearner(TASK, model)
    batch = learner.batch(data, jax.random.key(3), 0, 5)
    loss, slopes = learner.loss_and_grad(data, params, batch, None, list(params))
    return batch, loss, slopes, learner.capture(data, params, batch)


@pytest.fixture(scope="module")
def found():
    """Start and results of all models, compiled as one program."""
    rng, data = np.random.default_rng(2), instance(4)
    with jax.enable_x64(True):
        starts = []
        for model in MODELS:
            shapes = jax.eval_shape(
                lambda key, of=model: of.init(key, TASK, data), jax.random.key(0)
            )
            starts.append(jax.tree.map(lambda of: rng.normal(0.3, 0.6, of.shape), shapes))
        results = quickly(
            lambda starts: [learn(*case) for case in zip(MODELS, [data] * 3, starts, strict=True)]
        )(starts)
        results = jax.tree.map(np.asarray, results)
    return {
        model: (data, start, *of) for model, start, of in zip(MODELS, starts, results, strict=True)
    }


@pytest.mark.parametrize("model", MODELS, ids=("one", "three", "relu"))
def test_loss_and_gradient_equal_those_of_pytorch(found, model):
    _, start, batch, loss, slopes, captured = found[model]
    p = jax.tree.map(lambda of: torch.tensor(of).requires_grad_(), start)
    x, target = (torch.tensor(np.array(of)).long() for of in (batch.inputs, batch.target))
    outputs, seen = twin(model, p, x)
    expected = F.cross_entropy(outputs.flatten(0, 1), target.flatten())
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), rel=1e-12)
    flat, _ = jax.tree.flatten_with_path(slopes)
    assert len(flat) == len(jax.tree.leaves(start))
    for slope, of in zip(jax.tree.leaves(slopes), jax.tree.leaves(p), strict=True):
        np.testing.assert_allclose(slope, of.grad, atol=1e-11)
    np.testing.assert_allclose(captured["attention"][:, :, 0], seen["attention"], atol=1e-12)
    np.testing.assert_allclose(captured["value_norm"], seen["value"], rtol=1e-10)
    np.testing.assert_allclose(captured["residual_norm"], seen["residual"], rtol=1e-10)


@pytest.mark.parametrize("model", MODELS, ids=("one", "three", "relu"))
def test_measures_are_those_of_loops(found, model):
    data, start, batch, _, _, captured = found[model]
    x = np.array(batch.inputs)
    p = jax.tree.map(torch.tensor, start)
    outputs, seen = twin(model, p, torch.tensor(x).long())
    logs = outputs.log_softmax(-1).numpy()
    copied, lost, sinks, before, on, gaps = [], [], {True: [], False: []}, [], [], {}
    for b in range(len(x)):
        for i, v in enumerate(x[b]):
            if v < 2:
                copied.append(-logs[b, i, x[b, i - 1]])
            elif v < 6:
                row = np.append(data["P"][v], 0)
                lost.append((row[:6] * (np.log(row[:6]) - logs[b, i, :6])).sum())
            if i < EARLY:
                continue
            sinks[bool(v < 2)].append(seen["attention"][:, b, i, 0])
            if v < 2:
                before.append(seen["attention"][:, b, i, i - 1])
            else:
                on.append(seen["attention"][:, b, i, x[b] < 2].sum(-1))
                row = seen["logits"][:, b, i]
                gaps.setdefault(v, []).append(row[:, 0] - row[:, 1 : i + 1].mean(-1))
    by_token = np.array([np.mean(of, axis=0) for of in gaps.values()])
    expected = {
        "copy_risk": np.mean(copied),
        "bigram_kl": np.mean(lost),
        "sink_at_triggers": np.mean(sinks[True], axis=0),
        "sink_at_others": np.mean(sinks[False], axis=0),
        "active_score": np.mean(sinks[False], axis=0) - np.mean(sinks[True], axis=0),
        "previous_at_triggers": np.mean(before, axis=0),
        "on_triggers_at_others": np.mean(on, axis=0),
        "sink_logit": by_token.mean(0),
        "sink_logit_spread": by_token.std(0),
        "first_value": seen["value"][..., 0].mean(1),
        "first_residual": seen["residual"][..., 0].mean(1),
        "drain": seen["value"][..., 0].mean(1) / seen["value"][..., 1:].mean((1, 2)),
        "peak": seen["residual"][..., 0].mean(1) / seen["residual"][..., 1:].mean((1, 2)),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(np.squeeze(captured[name]), np.squeeze(value), rtol=1e-6)


def test_the_start_is_that_of_the_released_code():
    task, model = BigramBackcopy(tokens=40, length=30), BackcopyTransformer(dim=64, mlp=256)
    start = quickly(lambda key: model.init(key, task, {}))(jax.random.key(0))
    for group, name in (("embedding", "tokens"), ("positions", "vectors")):
        assert np.std(start[group][name]) == pytest.approx(1, abs=0.05)
    for group, name, inputs in (("attention", "qkv", 64), ("mlp", "down", 256)):
        bound = inputs**-0.5
        assert 0.98 * bound < np.abs(start[group][name]).max() <= bound


# The reparametrised head.


@pytest.mark.parametrize("contexts", [0, 3])
def test_the_head_has_the_gradient_of_the_theory(contexts):
    learner, rng = SinkFlow(contexts=contexts), np.random.default_rng(0)
    P = rng.dirichlet(np.ones(8), 8)
    pi = stationary(P)
    W = rng.multinomial(100, pi, max(contexts, 1)).astype(float)
    params = {"sink": rng.normal(2, 1, 8), "value": rng.normal(size=8)}
    data = {"P": P, "pi": pi, "W": W}
    with jax.enable_x64(True):
        loss, slopes = quickly(
            lambda params: learner.loss_and_grad(data, params, (), None, ("sink", "value"))
        )(params)
        shapes = jax.eval_shape(learner.draw, jax.random.key(0))
    state = {"alpha": params["sink"], "beta": params["value"], "visible": 100}
    assert float(loss) == pytest.approx(theory.excess_loss(P, pi, W, **state), rel=1e-12)
    expected = theory.gradient(P, pi, W, **state)
    np.testing.assert_allclose((slopes["sink"], slopes["value"]), expected, atol=1e-14)
    assert shapes["W"].shape == (max(contexts, 1), 8)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BigramBackcopy(tokens=1), "tokens: expected a whole number"),
        (lambda: BigramBackcopy(tokens=4, triggers=4), "triggers: expected fewer than 4"),
        (lambda: BigramBackcopy(concentration=0.0), "concentration: expected more than 0"),
        (lambda: BigramBackcopy(uniform=0.0), "uniform: expected a number"),
        (lambda: SinkFlow(contexts=-1), "contexts: expected a whole number"),
    ],
)
def test_bad_settings_are_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()
