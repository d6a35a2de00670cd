"""The transformer against a plain numpy one, and its gradient against differences."""

import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quickly import quickly

from attnlab.files.errors import InputError
from attnlab.files.recipe import as_value
from attnlab.models import Model, Transformer, transformer_math
from attnlab.simulation import TaskLearner
from attnlab.tasks import Batch, MarkovChains

TASK = MarkovChains(vocab_size=4, length=6)
VARIANTS = [
    Transformer(),
    Transformer(layers=1, heads=2, dim=8, mlp=12, norm="post", positions="learned", biases=True),
    Transformer(layers=2, heads=2, dim=8, mlp=5, activation="gelu", positions="rotary", tied=True),
    Transformer(layers=1, heads=2, dim=8, norm="none", positions="alibi", attention="relu"),
    Transformer(
        layers=1,
        heads=2,
        dim=4,
        norm="none",
        positions="none",
        attention="linear",
        embedding="one-hot",
        merged=True,
        logit_scale=1.0,
        readout="last",
    ),
    Transformer(
        layers=2,
        dim=8,
        positions="sinusoidal",
        attention="sigmoid",
        scheme="uniform",
        embedding="orthonormal",
    ),
    Transformer(layers=1, heads=2, dim=8, positions="relative", causal=False, merged=True),
    Transformer(
        layers=2,
        heads=2,
        dim=8,
        mlp=6,
        tied=True,
        biases=True,
        scheme="torch",
        scale_embedding=True,
        activation="linear",
    ),
]


def start(model, task=TASK):
    """Parameters at the start, as one program: op by op takes ten times as long."""
    return quickly(lambda key: model.init(key, task, ()))(jax.random.key(0))


def batch_of(size):
    return quickly(lambda key: TASK.batch((), key, 0, size))(jax.random.key(1))


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
    x = table[tokens] * (np.sqrt(d) if model.scale_embedding else 1.0)
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
                v = linear(a, "value", i, seen)[:, part]
            else:
                q, k, v = (of[:, part] for of in np.split(linear(a, "qkv", i, seen), 3, axis=-1))
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
            if model.activation == "relu":
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
        out = x @ p["decoder"]["weights"].T
    if model.biases:
        out = out + p["decoder"]["bias"]
    return (out[0] if model.readout == "last" else out), all_weights


@pytest.mark.slow
@pytest.mark.parametrize("model", VARIANTS, ids=lambda m: f"{m.positions}-{m.attention}-{m.norm}")
def test_it_is_what_numpy_computes_and_its_gradient_is_that_of_differences(model):
    with jax.enable_x64(True):
        params = start(model)
        if model.biases:  # which start at 0
            params = jax.tree.map(
                lambda of: of + 0.1 * jnp.cos(jnp.arange(of.size)).reshape(of.shape), params
            )
        learner, batch = TaskLearner(TASK, model), batch_of(3)
        tokens = batch.inputs
        if model.readout == "last":
            batch = batch._replace(target=batch.target[:, -1])

        @quickly
        def everything(of):
            loss, slope = learner.loss_and_grad((), of, batch, None, tuple(of))
            return loss, slope, *model.apply(of, tokens)

        _, slope, outputs, captured = everything(params)
        for b in range(3):
            expected, weights = plain(model, params, np.asarray(tokens[b]))
            np.testing.assert_allclose(outputs[b], expected, atol=1e-10)
            np.testing.assert_allclose(captured["attention"][:, b], weights, atol=1e-10)
        along = jax.tree.map(
            lambda of: jnp.sin(1.0 + jnp.arange(of.size)).reshape(of.shape), params
        )
        after, before = (
            everything(jax.tree.map(lambda a, b, h=h: a + h * b, params, along))[0]
            for h in (1e-5, -1e-5)
        )
        found = sum(
            np.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (slope, along)), strict=True)
        )
        assert found == pytest.approx(float(after - before) / 2e-5, rel=1e-6, abs=1e-9)


def test_vectors_stand_in_for_one_hot_tokens():
    model = Transformer(layers=1, dim=8)
    params = start(model)
    tokens = batch_of(2).inputs
    by_vector, _ = quickly(model.apply)(params, jax.nn.one_hot(tokens, 4))
    np.testing.assert_allclose(by_vector, quickly(model.apply)(params, tokens)[0], atol=1e-6)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_it_is_what_pytorch_computes(norm):
    import torch

    model = Transformer(
        layers=2, heads=2, dim=8, mlp=6, norm=norm, positions="none", biases=True, scheme="torch"
    )
    noise = np.random.default_rng(1)  # nothing is left at 0 or 1, so that each one counts
    params = jax.tree.map(
        lambda of: of + 0.3 * jnp.asarray(noise.normal(size=of.shape), of.dtype), start(model)
    )
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 6, 0.0, batch_first=True, norm_first=norm == "pre"
    )
    final = torch.nn.LayerNorm(8) if norm == "pre" else None
    encoder = torch.nn.TransformerEncoder(layer, 2, final, enable_nested_tensor=False)
    names = {
        "self_attn.in_proj_": ("attention", "qkv"),
        "self_attn.out_proj.": ("attention", "out"),
        "linear1.": ("mlp", "up"),
        "linear2.": ("mlp", "down"),
    }
    state = {}
    for i in range(2):
        for theirs, (group, name) in names.items():
            matrix, bias = params[group][name][i], params[group][f"{name}_bias"][i]
            state |= {f"layers.{i}.{theirs}weight": matrix.T, f"layers.{i}.{theirs}bias": bias}
        for theirs, name in (("norm1", "attention"), ("norm2", "mlp")):
            state[f"layers.{i}.{theirs}.weight"] = params["norm"][name]["gain"][i]
            state[f"layers.{i}.{theirs}.bias"] = params["norm"][name]["shift"][i]
    if norm == "pre":
        state |= {
            "norm.weight": params["norm"]["final"]["gain"],
            "norm.bias": params["norm"]["final"]["shift"],
        }
    encoder.load_state_dict({name: torch.tensor(np.asarray(of)) for name, of in state.items()})
    tokens = batch_of(3).inputs
    embedded = torch.tensor(np.asarray(params["embedding"]["tokens"][tokens]))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
    with torch.no_grad():
        x = encoder(embedded, mask=mask, is_causal=True).numpy()
    expected = x @ params["decoder"]["weights"].T + params["decoder"]["bias"]
    np.testing.assert_allclose(quickly(model.apply)(params, tokens)[0], expected, atol=3e-5)


def test_the_start_of_each_scheme():
    task = MarkovChains(vocab_size=500, length=6)
    settings = {"layers": 2, "dim": 64, "mlp": 96, "biases": True, "positions": "learned"}
    settings["scale"] = 2.0
    bound, zero = {}, {("attention", "qkv_bias"), ("attention", "out_bias"), ("decoder", "bias")}
    bound |= dict.fromkeys([("embedding", "tokens"), ("decoder", "weights")], 0.1)
    bound |= {("positions", "vectors"): 0.1, ("attention", "qkv"): (6 / 256) ** 0.5}
    bound |= dict.fromkeys([("attention", "out"), ("mlp", "up"), ("mlp", "up_bias")], 1 / 8)
    bound |= dict.fromkeys([("mlp", "down"), ("mlp", "down_bias")], 96**-0.5)
    params = start(Transformer(**settings, scheme="torch"), task)
    for (group, name), most in bound.items():
        of = np.asarray(params[group][name])
        assert 0.95 * 2 * most < abs(of).max() <= 2 * most
        assert of.std() == pytest.approx(2 * most / 3**0.5, rel=0.1)
    assert all(not params[group][name].any() for group, name in zero)
    inputs = {"qkv": 64, "out": 64, "up": 64, "down": 96}
    for scheme, spread in (("lecun", 1.0), ("uniform", 3**-0.5), ("normal", 0.0), ("zeros", None)):
        params = start(Transformer(**settings, scheme=scheme), task)
        assert not params["mlp"]["up_bias"].any()
        for name, n in inputs.items():
            of = params["attention" if name in ("qkv", "out") else "mlp"][name]
            expected = {None: 0.0, 0.0: 2.0}.get(spread, 2 * (spread or 0) * n**-0.5)
            assert float(of.std()) == pytest.approx(expected, rel=0.05)


def test_no_token_sees_those_after_it():
    model = Transformer(dim=8, mlp=4)
    params = start(model)
    tokens = batch_of(2).inputs
    before, after = (
        quickly(model.apply)(params, t)[0] for t in (tokens, tokens.at[:, 3].add(1) % 4)
    )
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).all()


def test_dropout_needs_a_key():
    model = Transformer(layers=1, dim=8, dropout=0.5)
    params = start(model)
    tokens = batch_of(2).inputs
    dropping = quickly(lambda key: model.apply(params, tokens, key=key)[0])
    a, again, b = (dropping(jax.random.key(i)) for i in (0, 0, 1))
    assert not np.allclose(a, b)
    np.testing.assert_array_equal(a, again)
    quiet = replace(model, dropout=0.0)
    without_key = quickly(lambda: model.apply(params, tokens)[0])()
    without_dropout = quickly(lambda: quiet.apply(params, tokens, key=jax.random.key(0))[0])()
    np.testing.assert_array_equal(without_key, without_dropout)


def test_dropout_drops_its_share_and_keeps_the_mean():
    model, ones = Transformer(dropout=0.2), jnp.ones((300, 400))
    salts = jax.random.bits(jax.random.key(0), (2, 2), jnp.uint32)
    first, second = (np.asarray(transformer_math._drop(model, ones, salt)) for salt in salts)
    for kept in (first, second):
        assert set(np.unique(kept)) == {0.0, np.float32(1.25)}
        assert (kept == 0).mean() == pytest.approx(0.2, abs=0.005)  # 4 standard deviations
        for axis in (0, 1):  # neighbours are dropped independently
            near = np.roll(kept, 1, axis)
            assert ((kept == 0) & (near == 0)).mean() == pytest.approx(0.04, abs=0.003)
        rows = (kept == 0).mean(1)
        assert rows.std() == pytest.approx((0.2 * 0.8 / 400) ** 0.5, rel=0.2)
    assert ((first == 0) & (second == 0)).mean() == pytest.approx(0.04, abs=0.003)


WORDS = MarkovChains(vocab_size=150, length=6)
# words come twice, within a sequence and in several
TOKENS = jnp.asarray([[3, 7, 3, 9, 149, 0], [7, 7, 1, 0, 2, 3], [140, 5, 5, 5, 3, 8]])
TARGETS = (TOKENS + 1) % 150


@pytest.mark.parametrize(
    "precision, backend, tolerance",
    [("default", "cpu", 1e-6), ("default", "gpu", 1e-6), ("bfloat16", "cpu", 1e-2)],
)
@pytest.mark.parametrize(
    "model",
    [Transformer(dim=8), Transformer(layers=1, dim=8, tied=True, biases=True, readout="last")],
    ids=["every", "last"],
)
def test_the_fused_loss_is_the_plain_one(monkeypatch, model, precision, backend, tolerance):
    params = start(model, WORDS)
    batch = Batch(TOKENS, TARGETS[:, -1] if model.readout == "last" else TARGETS)
    assert transformer_math.is_fused(model, params, batch, "cross_entropy")
    plain = quickly(jax.value_and_grad(lambda of: Model.loss(model, of, batch, "cross_entropy")))(
        params
    )
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    fused = jax.value_and_grad(
        lambda of: model.loss(of, batch, "cross_entropy", precision=precision)
    )
    found = quickly(fused)(params)
    assert float(found[0]) == pytest.approx(float(plain[0]), rel=tolerance)
    if precision == "bfloat16":
        assert float(found[0]) != float(plain[0])
    for a, b in zip(*map(jax.tree.leaves, (found[1], plain[1])), strict=True):
        assert np.linalg.norm(a - b) <= 3 * tolerance * np.linalg.norm(b) + 1e-9


def test_only_what_is_in_the_mask_and_has_weight_counts():
    model = Transformer(layers=1, dim=8)
    params = start(model, WORDS)
    whole = Batch(TOKENS, TARGETS)
    first = Batch(TOKENS[:1], TARGETS[:1])
    mask, weight = jnp.zeros(TOKENS.shape, bool).at[0].set(True), jnp.asarray([2.0, 0.0, 0.0])
    loss = quickly(model.loss, static_argnums=2)
    expected = float(loss(params, first, "cross_entropy"))
    for batch in (whole._replace(mask=mask), whole._replace(weight=weight)):
        assert float(loss(params, batch, "cross_entropy")) == pytest.approx(expected)
    target = jax.nn.one_hot(TARGETS, 150)
    by_square = loss(params, Batch(TOKENS, target), "square")
    outputs, _ = quickly(model.apply)(params, TOKENS)
    assert float(by_square) == pytest.approx(float(((outputs - target) ** 2).mean()), rel=1e-6)


def step_of(model, params, batch):
    """The parameters after a clipped step of SGD, and the norm of the gradient."""
    slope = jax.grad(lambda of: model.loss(of, batch, "cross_entropy", key=jax.random.key(2)))(
        params
    )
    norm = optax.tree.norm(slope)
    factor = 0.7 * jnp.minimum(1.0, 0.5 / norm)
    return jax.tree.map(lambda a, b: a - factor * b, params, slope), norm


@pytest.mark.parametrize(
    "options",
    [{"mlp": 5, "dropout": 0.3}, {"tied": True}, {"embedding": "orthonormal", "dim": 150}],
    ids=str,
)
def test_a_step_of_the_rows_that_are_read_is_a_step_of_all(options):
    model = Transformer(**({"layers": 1, "dim": 8} | options))
    params = start(model, WORDS)
    batch = Batch(TOKENS, TARGETS)
    expected, expected_norm = quickly(lambda of: step_of(model, of, batch))(params)

    @quickly
    def step(params):
        gathered, its_batch = model.gather_rows(params, batch)
        moved, norm = step_of(model, gathered, its_batch)
        return gathered, model.scatter_rows(params, moved, batch), norm

    gathered, found, norm = step(params)
    rows = gathered["embedding"]["tokens"].shape[0]
    assert rows == (TOKENS.size if options.get("mlp") else 150)
    assert float(norm) == pytest.approx(float(expected_norm), rel=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), found, expected)


def test_a_small_table_and_vectors_are_read_whole():
    model = Transformer(layers=1, dim=8)
    params = start(model, WORDS)
    many = jnp.zeros((20, 6), int)
    for inputs in (many, jax.nn.one_hot(TOKENS, 150)):
        batch = Batch(inputs, TARGETS)
        gathered, same = model.gather_rows(params, batch)
        assert gathered is params and same is batch
        assert model.scatter_rows(params, gathered, batch) is gathered


def test_it_stands_in_documents_by_its_name():
    model = Transformer(layers=3, scheme="torch", logit_scale=1.0)
    document = {"name": "transformer", "layers": 3, "scheme": "torch", "logit_scale": 1.0}
    assert model.to_document() == document
    assert as_value("model", document, Model) == model
    with pytest.raises(InputError, match="model.layer: unknown key; did you mean 'layers'"):
        as_value("model", {"name": "transformer", "layer": 2}, Model)


def test_settings_need_no_jax():
    code = (
        "import sys, attnlab.models; attnlab.models.Transformer(layers=1);"
        "import attnlab.tasks; attnlab.tasks.Task; print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_frozen_embedding_is_orthonormal():
    model = Transformer(dim=8, embedding="orthonormal")
    table = start(model)["embedding"]["tokens"]
    np.testing.assert_allclose(table @ table.T, np.eye(4), atol=1e-6)
    assert model.fixed == ("embedding",)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"heads": 3}, "heads: 3 heads do not divide"),
        ({"norm": "layer"}, "norm: expected one of"),
        ({"dropout": 1.0}, "dropout"),
        ({"positions": "rotary", "dim": 3}, "rotary"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Transformer(**options)


def test_a_one_hot_embedding_has_the_width_of_the_vocabulary():
    with pytest.raises(InputError, match="dim: one-hot embeddings need dim = 4"):
        Transformer(embedding="one-hot").init(jax.random.key(0), TASK, ())
