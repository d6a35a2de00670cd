"""The transformer against PyTorch's own and against plain loops."""

from math import erf

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from attnlab.text.model import TransformerSpec, encode, forward, init

VOCAB, B, T = 11, 3, 5
TOKENS = np.random.default_rng(0).integers(0, VOCAB, (B, T))


FORWARD = quickly(forward, static_argnums=1)


def spec_of(**changed):
    settings = {"layers": 2, "heads": 2, "dim": 8, "feed_forward": 6, "context": T}
    return TransformerSpec(**(settings | changed))


def shaken(spec):
    """Parameters with nothing at 0 or 1, so that each one counts."""
    params = quickly(init, static_argnums=(0, 1))(spec, VOCAB, jax.random.key(0))
    noise = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: leaf + 0.3 * noise.normal(size=leaf.shape), params)


def by_loops(params, spec, tokens):
    """One sequence, one query, one head at a time, in float64; logits and maps."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    d, width = spec.dim, spec.dim // spec.heads

    def normalise(norm, x):
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * norm["scale"] + norm["shift"]

    x = np.array([[p["embedding"][token] * np.sqrt(d) for token in row] for row in tokens])
    for t in range(tokens.shape[1]):
        if spec.positions == "learned":
            x[:, t] += p["positions"][t]
        if spec.positions == "sinusoidal":
            for i in range(0, d, 2):
                x[:, t, i] += np.sin(t / 10000 ** (i / d))
                x[:, t, i + 1] += np.cos(t / 10000 ** (i / d))
    maps = np.zeros((spec.layers, len(x), spec.heads, *2 * (tokens.shape[1],)))
    for n in range(spec.layers):
        layer = jax.tree.map(lambda leaf, n=n: leaf[n], p["layers"])
        for b, rows in enumerate(x):
            seen = rows
            if spec.norm == "pre":
                seen = np.array([normalise(layer["attention_norm"], row) for row in rows])
            q, k, v = np.split(seen @ layer["qkv"] + layer["qkv_bias"], 3, axis=-1)
            for t in range(len(rows)):
                mixed = np.zeros(d)
                for h in range(spec.heads):
                    own = slice(h * width, (h + 1) * width)
                    logits = np.array([q[t, own] @ k[s, own] for s in range(t + 1)])
                    logits /= np.sqrt(width)
                    if spec.positions == "alibi":
                        logits -= 2 ** (-8 * (h + 1) / spec.heads) * np.arange(t, -1, -1)
                    weights = np.exp(logits) / np.exp(logits).sum()
                    maps[n, b, h, t, : t + 1] = weights
                    mixed[own] = weights @ v[: t + 1, own]
                row = rows[t] + mixed @ layer["out"] + layer["out_bias"]
                if spec.norm == "post":
                    row = inner = normalise(layer["attention_norm"], row)
                else:
                    inner = normalise(layer["feed_forward_norm"], row)
                hidden = inner @ layer["up"] + layer["up_bias"]
                if spec.activation == "relu":
                    hidden = np.maximum(hidden, 0)
                if spec.activation == "gelu":
                    hidden = hidden * (1 + np.vectorize(erf)(hidden / np.sqrt(2))) / 2
                row = row + hidden @ layer["down"] + layer["down_bias"]
                if spec.norm == "post":
                    row = normalise(layer["feed_forward_norm"], row)
                x[b, t] = row
    if spec.norm == "pre":
        x = np.array([[normalise(p["final_norm"], row) for row in rows] for rows in x])
    weights = p["embedding"] if spec.tied else p["decoder"]
    return x @ weights.T + p["decoder_bias"], maps


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"norm": "pre", "positions": "learned"},
        {"positions": "alibi", "tied": True},
        {"activation": "linear"},
        {"activation": "gelu", "layers": 1},
    ],
    ids=str,
)
def test_agrees_with_plain_loops(changed):
    spec = spec_of(**changed)
    params = shaken(spec)
    logits, maps = FORWARD(params, spec, jnp.asarray(TOKENS))
    expected_logits, expected_maps = by_loops(params, spec, TOKENS)
    np.testing.assert_allclose(logits, expected_logits, atol=2e-5)
    np.testing.assert_allclose(maps, expected_maps, atol=2e-6)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_agrees_with_pytorch(norm):
    import torch

    spec = spec_of(norm=norm, positions="none")
    params = shaken(spec)
    layer = torch.nn.TransformerEncoderLayer(
        spec.dim, spec.heads, spec.feed_forward, 0.0, batch_first=True, norm_first=norm == "pre"
    )
    final = torch.nn.LayerNorm(spec.dim) if norm == "pre" else None
    encoder = torch.nn.TransformerEncoder(layer, spec.layers, final, enable_nested_tensor=False)
    names = {
        "self_attn.in_proj_weight": "qkv", "self_attn.in_proj_bias": "qkv_bias",
        "self_attn.out_proj.weight": "out", "self_attn.out_proj.bias": "out_bias",
        "linear1.weight": "up", "linear1.bias": "up_bias",
        "linear2.weight": "down", "linear2.bias": "down_bias",
    }  # fmt: skip
    for place, own in (("norm1", "attention_norm"), ("norm2", "feed_forward_norm")):
        names |= {f"{place}.weight": (own, "scale"), f"{place}.bias": (own, "shift")}
    state = {}
    for n in range(spec.layers):
        for theirs, ours in names.items():
            value = params["layers"]
            for key in (ours,) if isinstance(ours, str) else ours:
                value = value[key]
            state[f"layers.{n}.{theirs}"] = torch.tensor(np.asarray(value[n]).T)
    if norm == "pre":
        for theirs, ours in (("weight", "scale"), ("bias", "shift")):
            state[f"norm.{theirs}"] = torch.tensor(np.asarray(params["final_norm"][ours]))
    encoder.load_state_dict(state)
    embedded = torch.tensor(np.asarray(params["embedding"])[TOKENS] * spec.dim**0.5)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(T)
    with torch.no_grad():
        expected = encoder(embedded, mask=mask, is_causal=True).numpy()
    ours, _ = quickly(encode, static_argnums=1)(params, spec, jnp.asarray(TOKENS))
    np.testing.assert_allclose(ours, expected, atol=3e-5)


def test_the_start_is_that_of_the_protocol():
    params = quickly(init, static_argnums=(0, 1))(TransformerSpec(), 1000, jax.random.key(0))
    bounds = {"qkv": (6 / 800) ** 0.5, "out": 200**-0.5, "up": 200**-0.5, "down": 200**-0.5}
    arrays = {name: params["layers"][name] for name in bounds}
    arrays |= {name: params[name] for name in ("embedding", "decoder")}
    for name, array in arrays.items():
        bound = bounds.get(name, 0.1)
        assert 0.99 * bound < float(jnp.abs(array).max()) <= bound, name
        assert float(array.std()) == pytest.approx(bound / 3**0.5, rel=0.02), name
    assert not params["decoder_bias"].any()
    assert "decoder" not in shaken(spec_of(tied=True, positions="alibi"))


def test_no_word_sees_those_after_it():
    spec = spec_of()
    params = shaken(spec)
    changed = TOKENS.copy()
    changed[:, 3:] = (changed[:, 3:] + 1) % VOCAB
    before, after = (FORWARD(params, spec, jnp.asarray(t))[0] for t in (TOKENS, changed))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert np.all(np.asarray(before[:, 3:]) != np.asarray(after[:, 3:]))


def test_dropout_drops_its_share_and_keeps_the_mean():
    from attnlab.text.model import _drop

    ones = jnp.ones((300, 400))
    salts = jax.random.bits(jax.random.key(0), (2, 2), jnp.uint32)
    first, second = (
        np.asarray(quickly(_drop, static_argnums=1)(ones, 0.2, salt)) for salt in salts
    )
    for mask in (first, second):
        assert set(np.unique(mask)) == {0.0, np.float32(1.25)}
        assert (mask == 0).mean() == pytest.approx(0.2, abs=0.005)  # 4 standard deviations
        for axis in (0, 1):  # neighbours are dropped independently
            near = np.roll(mask, 1, axis)
            assert ((mask == 0) & (near == 0)).mean() == pytest.approx(0.04, abs=0.003)
        rows = (mask == 0).mean(1)
        assert rows.std() == pytest.approx((0.2 * 0.8 / 400) ** 0.5, rel=0.2)
    assert ((first == 0) & (second == 0)).mean() == pytest.approx(0.04, abs=0.003)


def test_dropout_is_only_for_training():
    spec = spec_of()
    params = shaken(spec)
    tokens = jnp.asarray(TOKENS)
    quiet, _ = FORWARD(params, spec, tokens)
    dropped = [FORWARD(params, spec, tokens, jax.random.key(k))[0] for k in (0, 0, 1)]
    np.testing.assert_array_equal(dropped[0], dropped[1])
    assert float(jnp.abs(dropped[0] - dropped[2]).max()) > 0.1
    assert float(jnp.abs(dropped[0] - quiet).max()) > 0.1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"heads": 3}, "heads: 3 heads do not divide dim 8"),
        ({"dim": 7, "heads": 1}, "dim: sinusoidal positions need an even number"),
        ({"layers": 0}, "layers: expected a whole number"),
        ({"norm": "both"}, "norm: expected one of"),
        ({"positions": "rotary"}, "positions: expected one of"),
        ({"activation": "tanh"}, "activation: expected one of"),
        ({"dropout": 1.0}, "dropout: expected a number in"),
        ({"context": 1}, "context: expected a whole number of at least 2"),
    ],
)
def test_bad_specs_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        spec_of(**changed)
