"""The transformer against a plain numpy one, and its gradient against differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.files.errors import InputError
from attnlab.models import Transformer
from attnlab.simulation import TaskLearner
from attnlab.tasks import MarkovChains

TASK = MarkovChains(vocab_size=4, length=6)
VARIANTS = [
    Transformer(),
    Transformer(layers=1, heads=2, dim=8, mlp=12, norm="post", positions="learned", biases=True),
    Transformer(layers=2, heads=2, dim=8, mlp=5, activation="gelu", positions="rotary", tied=True),
    Transformer(layers=1, heads=2, dim=8, norm="none", positions="alibi", attention="relu"),
    Transformer(layers=1, heads=2, dim=4, norm="none", positions="none", attention="linear",
                embedding="one-hot", merged=True, logit_scale=1.0, readout="last"),
    Transformer(layers=2, dim=8, positions="sinusoidal", attention="sigmoid", scheme="uniform",
                embedding="orthonormal"),
    Transformer(layers=1, heads=2, dim=8, positions="relative", causal=False, merged=True),
]  # fmt: skip


def plain(model, params, tokens):
    """One sequence through loops over positions; numpy alone."""
    p = jax.tree.map(np.asarray, params)
    T, d, H = len(tokens), model.dim, model.heads

    def norm(of, x):
        z = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * of["gain"]
        return z + of.get("shift", 0)

    def linear(of, name, i, x):
        return x @ of[name][i] + (of[f"{name}_bias"][i] if f"{name}_bias" in of else 0)

    def turn(x, t):
        half = len(x) // 2
        z = (x[:half] + 1j * x[half:]) * np.exp(1j * t * 10_000.0 ** (-np.arange(half) / half))
        return np.concatenate([z.real, z.imag])

    table = np.eye(d) if model.embedding == "one-hot" else p["embedding"]["tokens"]
    x = table[tokens].astype(float)
    if model.positions == "learned":
        x = x + p["positions"]["vectors"][:T]
    if model.positions == "sinusoidal":
        for t in range(T):
            for e in range(d):
                angle = t * 10_000.0 ** (-(e - e % 2) / d)
                x[t, e] += np.cos(angle) if e % 2 else np.sin(angle)
    all_weights = np.zeros((model.layers, H, T, T))
    for i in range(model.layers):
        seen = x
        if model.norm == "pre":
            seen = np.stack(
                [norm({n: g[i] for n, g in p["norm"]["attention"].items()}, r) for r in x]
            )
        a, mixed = p["attention"], np.zeros((T, d))
        for h in range(H):
            part = slice(h * d // H, (h + 1) * d // H)
            if model.merged:
                q, k = seen @ a["merged"][i, h], seen
            else:
                q, k = (linear(a, n, i, seen)[:, part] for n in ("query", "key"))
            v = linear(a, "value", i, seen)[:, part]
            for t in range(T):
                keys = range(t + 1) if model.causal else range(T)
                logits = []
                for s in keys:
                    qt, ks = q[t], k[s]
                    if model.positions == "rotary":
                        qt, ks = turn(qt, t), turn(ks, s)
                    logit = qt @ ks
                    if model.positions == "relative":
                        r = p["positions"]["vectors"][i]
                        logit += qt @ r[t - s if model.causal else t - s + T - 1]
                    scale = model.logit_scale or (1 / np.sqrt(len(qt)))
                    logit *= scale
                    if model.positions == "alibi":
                        logit -= 2.0 ** (-8 * (h + 1) / H) * abs(t - s)
                    logits.append(logit)
                z, n = np.array(logits), len(logits)
                w = {
                    "softmax": lambda z: np.exp(z) / np.exp(z).sum(),
                    "linear": lambda z, n=n: z / n,
                    "relu": lambda z, n=n: np.maximum(z, 0) / n,
                    "sigmoid": lambda z, n=n: 1 / (1 + n * np.exp(-z)),
                }[model.attention](z)
                all_weights[i, h, t, : len(w)] = w
                mixed[t, part] = w @ v[: len(w)]
        x = x + linear(a, "out", i, mixed)
        if model.norm == "post":
            x = np.stack([norm({n: g[i] for n, g in p["norm"]["attention"].items()}, r) for r in x])
        if model.mlp:
            seen = x
            if model.norm == "pre":
                seen = np.stack(
                    [norm({n: g[i] for n, g in p["norm"]["mlp"].items()}, r) for r in x]
                )
            hidden = linear(p["mlp"], "up", i, seen)
            if model.activation == "gelu":
                hidden = hidden * np.asarray(jax.scipy.stats.norm.cdf(hidden))
            else:
                hidden = np.maximum(hidden, 0)
            x = x + linear(p["mlp"], "down", i, hidden)
            if model.norm == "post":
                x = np.stack([norm({n: g[i] for n, g in p["norm"]["mlp"].items()}, r) for r in x])
    x = x[-1:] if model.readout == "last" else x
    if model.norm == "pre":
        x = np.stack([norm(p["norm"]["final"], r) for r in x])
    if model.tied:
        out = x @ table.T
    else:
        out = x @ p["decoder"]["weights"] + p["decoder"].get("weights_bias", 0)
    return (out[0] if model.readout == "last" else out), all_weights


@pytest.mark.parametrize("model", VARIANTS, ids=lambda m: f"{m.positions}-{m.attention}-{m.norm}")
def test_it_is_what_numpy_computes(model):
    with jax.enable_x64(True):
        params = model.init(jax.random.key(0), TASK, ())
        if model.biases:  # which start at 0
            params = jax.tree.map(
                lambda of: of + 0.1 * jnp.cos(jnp.arange(of.size)).reshape(of.shape), params
            )
        tokens = TASK.batch((), jax.random.key(1), 0, 3).inputs
        outputs, captured = jax.jit(model.apply)(params, tokens)
        for b in range(3):
            expected, weights = plain(model, params, np.asarray(tokens[b]))
            np.testing.assert_allclose(outputs[b], expected, atol=1e-10)
            np.testing.assert_allclose(captured["attention"][:, b], weights, atol=1e-10)


@pytest.mark.parametrize("model", VARIANTS, ids=lambda m: f"{m.positions}-{m.attention}-{m.norm}")
def test_its_gradient_is_that_of_differences(model):
    with jax.enable_x64(True):
        learner = TaskLearner(TASK, model)
        params = model.init(jax.random.key(0), TASK, ())
        batch = TASK.batch((), jax.random.key(1), 0, 3)
        if model.readout == "last":
            batch = batch._replace(target=batch.target[:, -1])
        slope = jax.jit(lambda of: learner.loss_and_grad((), of, batch, None, tuple(of))[1])(params)
        along = jax.tree.map(
            lambda of: jnp.sin(1.0 + jnp.arange(of.size)).reshape(of.shape), params
        )

        @jax.jit
        def at(h):
            return learner.loss(
                (), jax.tree.map(lambda a, b: a + h * b, params, along), batch, None
            )

        found = sum(
            jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (slope, along)), strict=True)
        )
        expected = float(at(1e-5) - at(-1e-5)) / 2e-5
        assert float(found) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_vectors_stand_in_for_one_hot_tokens():
    model = Transformer(layers=1, dim=8)
    params = model.init(jax.random.key(0), TASK, ())
    tokens = TASK.batch((), jax.random.key(1), 0, 2).inputs
    by_vector, _ = model.apply(params, jax.nn.one_hot(tokens, 4))
    np.testing.assert_allclose(by_vector, model.apply(params, tokens)[0], atol=1e-6)


def test_dropout_needs_a_key_and_keeps_the_mean():
    model = Transformer(layers=1, dim=8, dropout=0.5)
    params = model.init(jax.random.key(0), TASK, ())
    tokens = TASK.batch((), jax.random.key(1), 0, 2).inputs
    a, b = (model.apply(params, tokens, key=jax.random.key(i))[0] for i in (0, 1))
    assert not np.allclose(a, b)
    np.testing.assert_array_equal(model.apply(params, tokens)[0], model.apply(params, tokens)[0])


def test_a_frozen_embedding_is_orthonormal():
    model = Transformer(dim=8, embedding="orthonormal")
    table = model.init(jax.random.key(0), TASK, ())["embedding"]["tokens"]
    np.testing.assert_allclose(table @ table.T, np.eye(4), atol=1e-6)
    assert model.fixed == ("embedding",)


@pytest.mark.parametrize("options, words", [
    ({"heads": 3}, "heads: 3 heads do not divide"),
    ({"norm": "layer"}, "norm: expected one of"),
    ({"dropout": 1.0}, "dropout"),
    ({"positions": "rotary", "dim": 3}, "rotary"),
])  # fmt: skip
def test_bad_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Transformer(**options)


def test_a_one_hot_embedding_has_the_width_of_the_vocabulary():
    with pytest.raises(InputError, match="dim: one-hot embeddings need dim = 4"):
        Transformer(embedding="one-hot").init(jax.random.key(0), TASK, ())
