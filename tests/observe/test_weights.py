"""Stable ranks and active units of models, against their weights taken by hand."""

import json
import re

import numpy as np
import pytest
import torch
from small_models import NanoGPT, small_model, tokens
from torch import nn

import attnlab
from attnlab.observing.probe import make_probe
from attnlab.observing.snapshot import take_snapshot
from attnlab.observing.weights import UNITS_TOKENS

IDS = tokens(2)
HEADS, WIDTH, MODEL = 4, 8, 32
LLAMA = ("model.layers.{}.self_attn", "q_proj", "k_proj")
LLAMA_MLP = ("model.layers.{}.mlp", "gate_proj", "up_proj", "down_proj")
# where queries and keys come from, and the MLP's matrices: inputs, then output
BUILT = {
    "gpt2": (("transformer.h.{}.attn", "c_attn"), ("transformer.h.{}.mlp", "c_fc", "c_proj")),
    "gpt_neox": (
        ("gpt_neox.layers.{}.attention", "query_key_value"),
        ("gpt_neox.layers.{}.mlp", "dense_h_to_4h", "dense_4h_to_h"),
    ),
    "opt": (
        ("model.decoder.layers.{}.self_attn", "q_proj", "k_proj"),
        ("model.decoder.layers.{}", "fc1", "fc2"),
    ),
    "bert": (
        ("bert.encoder.layer.{}.attention.self", "query", "key"),
        ("bert.encoder.layer.{}", "intermediate.dense", "output.dense"),
    ),
    **dict.fromkeys(("llama", "mistral", "gemma3", "qwen3"), (LLAMA, LLAMA_MLP)),
    "plain": (("blocks.{}.attention", "qkv"), ("blocks.{}.mlp", "1", "3")),
}


def by_singular_values(W):
    s = np.linalg.svd(np.asarray(W.detach(), float), compute_uv=False) ** 2
    return s.sum() / s[0]


def ranks_of_heads(query, key):
    """From W_Q and W_K as (head, width, model)."""
    group = len(query) // len(key)
    return [by_singular_values(W.T @ key[h // group]) for h, W in enumerate(query)]


def by_hand(name, model, layer, ids):
    """Ranks of heads, the rank of the MLP's input, its units for 95 %, and the residual peak."""
    (attention, *projections), (mlp, *inputs, output) = BUILT[name]
    attention = model.get_submodule(attention.format(layer))
    weights = [attention.get_submodule(one).weight for one in projections]
    if name == "gpt2":
        query, key, _ = weights[0].T.reshape(3, HEADS, WIDTH, MODEL)
    elif name == "plain":
        query, key, _ = weights[0].reshape(3, HEADS, WIDTH, MODEL)
    elif name == "gpt_neox":
        query, key, _ = weights[0].reshape(HEADS, 3, WIDTH, MODEL).transpose(0, 1)
    else:
        query, key = (W.reshape(-1, WIDTH, MODEL) for W in weights)
    mlp = model.get_submodule(mlp.format(layer))
    whole = [mlp.get_submodule(one).weight for one in inputs]
    seen, streams = [], []
    block = model.get_submodule(re.match(r".*?\.\d+", BUILT[name][0][0].format(layer))[0])
    hooks = [
        mlp.get_submodule(output).register_forward_pre_hook(
            lambda module, given: seen.append(given[0])
        ),
        block.register_forward_hook(
            lambda module, given, out: streams.append(out[0] if isinstance(out, tuple) else out)
        ),
    ]
    with torch.no_grad():
        model(ids)
    for hook in hooks:
        hook.remove()
    ranks = ranks_of_heads(query, key), by_singular_values(torch.cat(whole))
    return *ranks, units(seen[0]), peak(streams[0])


def peak(stream):
    """Return, for each sequence, the norm of the first position over the mean of the others."""
    norms = np.linalg.norm(np.asarray(stream, float), axis=-1)
    return np.mean([one[0] / one[1:].mean() for one in norms])


def units(hidden):
    """How many hold 95 %, row by row of those in which something is active."""
    counts = []
    for row in np.abs(np.asarray(hidden, float)).reshape(-1, hidden.shape[-1]):
        order = np.sort(row)[::-1].cumsum()
        if order[-1] > 0:
            counts.append(1 + int((order < 0.95 * order[-1]).sum()))
    return np.mean(counts)


def seen_of(model, given=IDS, **options):
    moment = take_snapshot(model, make_probe(model, given), min_keys=6, **options)
    return list(moment.weights.values.values()), moment.weights.unrecognised


@pytest.mark.parametrize("name", BUILT)
def test_weights_and_units_are_those_taken_by_hand(name):
    model = NanoGPT().eval() if name == "plain" else small_model(name)
    found, unrecognised = seen_of(model)
    assert len(found) == 2 and not unrecognised
    for layer, one in enumerate(found):
        heads, of_mlp, number, residual = by_hand(name, model, layer, IDS)
        np.testing.assert_allclose(one["qk_stable_rank"], heads, rtol=1e-5)
        np.testing.assert_allclose(one["mlp_stable_rank"], of_mlp, rtol=1e-5)
        # rounding may move a count by one where the mass is near the share
        np.testing.assert_allclose(one["mlp_units"], number, atol=0.05)
        np.testing.assert_allclose(one["residual_peak"], residual, rtol=1e-5)
        assert one["mlp_units_share"] * one["mlp_units"] > 0
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_of_t5_cross_attention_has_the_mlp_of_its_block():
    model = small_model("t5")
    found, unrecognised = seen_of(model, {"input_ids": IDS, "decoder_input_ids": IDS})
    assert not unrecognised
    block = model.decoder.block[1]
    for one, layer in (
        (found[4], block.layer[0].SelfAttention),
        (found[5], block.layer[1].EncDecAttention),
    ):
        query, key = (W.weight.reshape(HEADS, WIDTH, MODEL) for W in (layer.q, layer.k))
        np.testing.assert_allclose(one["qk_stable_rank"], ranks_of_heads(query, key), rtol=1e-5)
        wanted = by_singular_values(block.layer[2].DenseReluDense.wi.weight)
        np.testing.assert_allclose(one["mlp_stable_rank"], wanted, rtol=1e-5)
    assert found[4]["residual_peak"] == found[5]["residual_peak"]  # of one block


def test_padding_of_a_torch_encoder_is_left_out_of_units():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(MODEL, HEADS, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    padded = torch.zeros(2, 24, dtype=torch.bool)
    padded[1, 15:] = True
    found, unrecognised = seen_of(
        model, {"src": torch.randn(2, 24, MODEL), "src_key_padding_mask": padded}
    )
    assert not unrecognised
    first = model.layers[0]
    query, key, _ = first.self_attn.in_proj_weight.reshape(3, HEADS, WIDTH, MODEL)
    np.testing.assert_allclose(found[0]["qk_stable_rank"], ranks_of_heads(query, key), rtol=1e-5)
    rank = by_singular_values(first.linear1.weight)
    np.testing.assert_allclose(found[0]["mlp_stable_rank"], rank, rtol=1e-5)
    hidden, streams = [], []
    first.linear2.register_forward_pre_hook(lambda _, given: hidden.append(given[0].detach()))
    first.register_forward_hook(lambda _, given, out: streams.append(out.detach()))
    torch.manual_seed(0)
    again, _ = seen_of(model, {"src": torch.randn(2, 24, MODEL), "src_key_padding_mask": padded})
    np.testing.assert_allclose(again[0]["mlp_units"], units(hidden[0][~padded]), atol=0.05)
    residual = np.mean([peak(of[None, ~hole]) for of, hole in zip(streams[0], padded, strict=True)])
    np.testing.assert_allclose(again[0]["residual_peak"], residual, rtol=1e-5)


def test_of_many_tokens_some_are_counted():
    model = NanoGPT().eval()
    ids = tokens(8, 64)
    found, _ = seen_of(model, ids)
    _, _, everywhere, _ = by_hand("plain", model, 0, ids)
    assert ids.numel() > UNITS_TOKENS
    assert found[0]["mlp_units"] == pytest.approx(everywhere, rel=0.02)
    assert found[0]["mlp_units"] != everywhere


def test_experts_are_reported_as_left_out():
    found, unrecognised = seen_of(small_model("gpt_oss", "eager"))
    assert set(found[0]) == {"qk_stable_rank"}
    assert set(unrecognised.values()) == {"the MLP beside GptOssAttention"}


class Scrambled(nn.Module):
    """Makes queries, keys and values at once, in an order of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.qkv = nn.Linear(MODEL, 3 * MODEL)

    def forward(self, x):
        v, q, k = self.qkv(x).reshape(*x.shape[:2], 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_an_order_of_its_own_is_not_guessed():
    found, unrecognised = seen_of(Scrambled(), (torch.randn(2, 24, MODEL),))
    assert found == [{}]
    assert unrecognised == {"": "W_Q and W_K of Scrambled; the MLP beside Scrambled"}


def test_over_a_training_and_in_words():
    model = NanoGPT()
    observer = attnlab.observe(model, probe=IDS, every=1, min_keys=8)
    before = by_hand("plain", model, 1, IDS)
    observer.step(0)
    with torch.no_grad():
        model.blocks[1].attention.qkv.weight[0] += 3.0
        model.blocks[1].mlp[1].weight[:, 0] += 3.0
    observer.step(1)
    after = by_hand("plain", model, 1, IDS)
    result = observer.result()
    assert result.qk_stable_rank.dims == ("step", "layer", "head")
    assert result.mlp_stable_rank.dims == result.mlp_units.dims == ("step", "layer")
    for step, (heads, of_mlp, number, residual) in enumerate((before, after)):
        at = result.isel(step=step, layer=1)
        np.testing.assert_allclose(at.qk_stable_rank, heads, rtol=1e-5)
        np.testing.assert_allclose(at.mlp_stable_rank, of_mlp, rtol=1e-5)
        np.testing.assert_allclose(at.mlp_units, number, atol=0.05)
        np.testing.assert_allclose(at.residual_peak, residual, rtol=1e-5)
    assert after[1] < before[1]
    assert json.loads(result.attrs["unrecognised"]) == {}
    assert "stable rank" in result.qk_stable_rank.attrs["long_name"]


def test_live_it_is_the_training_forward():
    model = NanoGPT().train()
    observer = attnlab.observe(model, live=True, every=1, min_keys=8)
    observer.step(0)
    model(IDS)
    observer.finish(1)
    wanted, _ = seen_of(model)
    found = observer.result().isel(step=0)
    np.testing.assert_allclose(found.qk_stable_rank[0], wanted[0]["qk_stable_rank"], rtol=1e-6)
    np.testing.assert_allclose(found.mlp_units[0], wanted[0]["mlp_units"], atol=0.05)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
