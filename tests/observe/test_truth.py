"""Every statistic of a row, as it follows from the maps that transformers itself gives (eager)."""

import numpy as np
import pytest
import torch
from small_models import NanoGPT, small_model, tokens
from torch import nn
from whole_maps import of_row

from attnlab.observe.moment import moment_of
from attnlab.observe.probe import make_probe

pytest.importorskip("transformers")
LEAST = 6  # keys that a counted query sees: the narrowest window
DECODERS = ("gpt2", "llama", "gpt_neox", "opt", "mistral", "gemma3", "gpt_oss", "qwen3")
# not in a map: a constant that the softmax takes away
NOT_IN_MAPS = {"largest_logit"}
# in maps the learnable sink is what is missing from 1, which has lost digits
LOOSE = {
    ("gpt_oss", name): 1e-3
    for name in ("logit_norm", "entropy_floor", "entropy_slack", "learnable_sink_mass")
}
IDS = tokens(2).fill_diagonal_(5)  # some tokens come again


def wanted(maps, *, real, ids, cross=False, sinks=False):
    """Means over rows and sequences of one layer, from its maps (sequence, head, query, key)."""
    maps = maps.double().numpy()
    found = {}
    for b, h in np.ndindex(maps.shape[:2]):
        there = real[b].numpy()
        start = int((maps[b, :, there] > 0).any(axis=(0, 1)).argmax())
        rows = []
        for i in np.flatnonzero(there):
            p = maps[b, h, i]
            seen = p > 0
            if seen.sum() >= LEAST:
                with np.errstate(divide="ignore"):
                    x = np.log(p)
                sink = np.log(1 - p.sum()) if sinks else None
                place = None if cross else i
                words = None if cross or ids is None else ids[b].numpy()
                rows.append(of_row(p, x, seen, place=place, start=start, sink_logit=sink,
                                   tokens=words))  # fmt: skip
        for name in rows[0]:
            values = np.array([row[name] for row in rows], float)
            found.setdefault(name, []).append(_mean(values))
    heads = maps.shape[1]
    return {
        name: _mean(np.reshape(values, (-1, heads, *np.shape(values[0]))))
        for name, values in found.items()
    }


def _mean(values):
    """Over the first dim, of those that are there."""
    number = np.isfinite(values).sum(axis=0)
    return np.nansum(values, axis=0) / np.where(number, number, np.nan)


def eager(name, model, inputs):
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(**inputs, output_attentions=True, use_cache=False)
    if name == "t5":
        both = zip(out.decoder_attentions, out.cross_attentions, strict=True)
        return [*out.encoder_attentions, *(one for pair in both for one in pair)]
    return out.attentions


def agree(moment, maps, *, sides, tolerance=1e-5, loose=lambda statistic: 0.0, sinks=False, why=""):
    """Every statistic of every layer; sides: of each its `real` and `ids`."""
    assert len(moment.layers) == len(maps)
    for (layer, found), one, (real, ids) in zip(moment.layers.items(), maps, sides, strict=True):
        cross = found["kind"].item() == "cross"
        expected = wanted(one, real=real, ids=ids, cross=cross, sinks=sinks)
        for statistic in sorted(expected.keys() - NOT_IN_MAPS):
            near = max(tolerance, loose(statistic))
            np.testing.assert_allclose(
                _mean(found[statistic].values), expected[statistic], rtol=near, atol=near,
                err_msg=f"{why} {layer} {statistic}",
            )  # fmt: skip


def compare(name, implementations, inputs, *, dtype=torch.float32, tolerance=1e-5):
    model = small_model(name, "eager").to(dtype)
    maps = eager(name, model, inputs)
    real = inputs.get("attention_mask", torch.ones_like(IDS)).bool()
    both = (real, inputs["input_ids"])
    sides = [both] * len(maps)
    if name == "t5":  # the encoder's layers, then the decoder's
        sides[2:] = [(torch.ones_like(real), inputs["decoder_input_ids"])] * (len(maps) - 2)

    def loose(statistic):
        if dtype == torch.bfloat16 and statistic.startswith("keys_"):
            return 0.03  # a count is one more or less where the mass is near the share
        return LOOSE.get((name, statistic), 0.0)

    for implementation in implementations:
        model.set_attn_implementation(implementation)
        moment = moment_of(model, make_probe(model, inputs), min_keys=LEAST)
        agree(moment, maps, sides=sides, tolerance=tolerance, loose=loose,
              sinks=name == "gpt_oss", why=implementation)  # fmt: skip


@pytest.mark.parametrize("name", DECODERS)
def test_of_decoders(name):
    others = {"gpt_oss": (), "llama": ("sdpa", "flex_attention")}
    # compiling flex_attention would take longer than all tests here; uncompiled it is exact
    with torch.compiler.set_stance("force_eager"):
        compare(name, ("eager", *others.get(name, ("sdpa",))), {"input_ids": IDS})


def test_of_bert_with_padding():
    mask = torch.ones_like(IDS)
    mask[1, 15:] = 0
    compare("bert", ("eager", "sdpa"), {"input_ids": IDS, "attention_mask": mask})


def test_of_t5():
    mask = torch.ones_like(IDS)
    mask[0, 20:] = 0
    inputs = {
        "input_ids": IDS, "attention_mask": mask, "decoder_input_ids": tokens(2, seed=2),
    }  # fmt: skip
    compare("t5", ("eager", "sdpa"), inputs)


def test_of_plain_torch():
    """The maps of a model as nanoGPT has it, from its own queries and keys."""
    model = NanoGPT().eval()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.qkv.weight *= 5  # far from even
    maps = []

    def attend(module, given, _):
        x = given[0]
        q, k, _ = module.qkv(x).view(*x.shape[:2], 3, module.heads, -1).permute(2, 0, 3, 1, 4)
        logits = q.double() @ k.double().mT / q.shape[-1] ** 0.5
        hidden = torch.ones(logits.shape[-2:], dtype=bool).triu(1)
        maps.append(logits.masked_fill(hidden, -torch.inf).softmax(-1))

    hooks = [block.attention.register_forward_hook(attend) for block in model.blocks]
    with torch.no_grad():
        model(IDS)
    for hook in hooks:
        hook.remove()
    moment = moment_of(model, make_probe(model, IDS), min_keys=LEAST)
    agree(moment, maps, sides=[(torch.ones_like(IDS).bool(), IDS)] * 2)


def test_of_torch_encoder_with_padding():
    """The maps that `MultiheadAttention` itself gives when it is asked for them."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        for one in model.layers:
            one.self_attn.in_proj_weight.normal_(std=0.5)
    padded = torch.zeros(2, 24, dtype=torch.bool)
    padded[1, 15:] = True
    x, maps = torch.randn(2, 24, 32), []
    with torch.no_grad():
        given = x
        for one in model.layers:
            _, weights = one.self_attn(given, given, given, key_padding_mask=padded,
                                       average_attn_weights=False)  # fmt: skip
            maps.append(weights)
            given = one(given, src_key_padding_mask=padded)
    probe = make_probe(model, {"src": x, "src_key_padding_mask": padded})
    moment = moment_of(model, probe, min_keys=LEAST)
    agree(moment, maps, sides=[(~padded, None)] * 2)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_in_bfloat16(name):
    compare(name, ("eager",), {"input_ids": IDS}, dtype=torch.bfloat16, tolerance=5e-3)
