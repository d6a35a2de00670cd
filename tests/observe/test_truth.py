"""Every statistic, as it follows from the maps that transformers itself gives (eager)."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from small_models import NanoGPT, small_model, tokens
from torch import nn
from whole_maps import of_caches, of_keys, of_row, value_norm_ratio

from attnlab.observing.probe import make_probe
from attnlab.observing.snapshot import take_snapshot, undisturbed
from attnlab.observing.sources import capturing

pytest.importorskip("transformers")
LEAST = 6  # keys that a counted query sees: the narrowest window
IDS = tokens(2).fill_diagonal_(5)  # some tokens come again
PADDED, OTHER_PADDED = torch.ones_like(IDS), torch.ones_like(IDS)
PADDED[1, 15:], OTHER_PADDED[0, 20:] = 0, 0
MODELS = ("gpt2", "llama", "gpt_neox", "opt", "mistral", "gemma3", "gpt_oss", "qwen3", "bert", "t5")
INPUTS = {
    "bert": {"input_ids": IDS, "attention_mask": PADDED},
    "t5": {
        "input_ids": IDS,
        "attention_mask": OTHER_PADDED,
        "decoder_input_ids": tokens(2, seed=2),
    },
}
# what runs on a processor; the flex function of T5 takes one sequence alone
IMPLEMENTATIONS = {"gpt2": ("eager", "sdpa"), "gpt_oss": ("eager",), "t5": ("eager", "sdpa")}
# not in a map: a constant that the softmax takes away
NOT_IN_MAPS = {"largest_logit"}
# In maps the learnable sink is what is missing from 1, which has lost digits, and in half precision
# all of them; there the softmax beside it is rounded too, and squares are off by twice as much.
_OF_SINKS = ("logit_norm", "entropy_floor", "entropy_slack", "learnable_sink_mass", "output_error")
LOOSE = {
    torch.float32: dict.fromkeys(_OF_SINKS, 1e-3),
    torch.bfloat16: {**dict.fromkeys(_OF_SINKS), "participation": 1e-2},
}
# what turns with the order of two keys that are nearly alike: in half precision means over heads
# are compared, and of policies and budgets one in eight may have met such a pair
TURNING = {
    "keys_for",
    "keys_share",
    "frequency_correlation",
    "idf_correlation",
    "retained_mass",
    "output_error",
}


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
                rows.append(
                    of_row(p, x, seen, place=place, start=start, sink_logit=sink, tokens=words)
                )
        for name in rows[0]:
            values = np.array([row[name] for row in rows], float)
            found.setdefault(name, []).append(_mean(values))
    heads = maps.shape[1]
    return {
        name: _mean(np.reshape(values, (-1, heads, *np.shape(values[0]))))
        for name, values in found.items()
    }


def of_heads(maps, *, real, ids, value, causal, sinks=False):
    """What is said of each sequence and head of one layer, from its maps and values."""
    maps, value = maps.double().numpy(), value.double().numpy()
    value = np.repeat(value, maps.shape[1] // value.shape[1], axis=1)
    there = real.numpy()
    keys = [(one[:, rows] > 0).any(axis=(0, 1)) for one, rows in zip(maps, there, strict=True)]
    found = {}
    for b, h in np.ndindex(maps.shape[:2]):
        p = maps[b, h][there[b] & ((maps[b, h] > 0).sum(-1) >= LEAST)]
        seen = p > 0
        here = of_keys(p, seen, keys[b])
        here["value_norm_ratio"] = value_norm_ratio(value[b, h], keys[b])
        if ids is not None:
            words = [set(one[k].tolist()) for one, k in zip(ids, keys, strict=True)]
            every = torch.cat([one[k] for one, k in zip(ids, keys, strict=True)]).tolist()
            often = np.array([every.count(word) for word in ids[b].tolist()])
            several = np.array([sum(w in some for some in words) for w in ids[b].tolist()])
            of = keys[b] & seen.any(axis=0)
            for name, score in (("frequency", often), ("idf", -several)):
                rank = spearmanr(here["received"][of], score[of]).statistic
                here[f"{name}_correlation"] = rank if np.ptp(score[of]) else 0.0
        if causal:
            sink = 1 - p.sum(-1) if sinks else np.zeros(len(p))
            here |= of_caches(p, seen, value[b, h], sink=sink, later=8)
        for name, values in here.items():
            found.setdefault(name, np.zeros((*maps.shape[:2], *np.shape(values))))[b, h] = values
    return found


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


def values_of(model, inputs):
    """The values that each layer attends to, as they are seen."""
    values = []
    with undisturbed(model), capturing(model, lambda seen: values.append(seen.call.value)):
        model(**inputs)
    return values


def agree(layers, maps, values, *, sides, tolerance=1e-5, loose=None, sinks=False, why=""):
    """Every statistic of every layer; sides: of each its `real` and `ids`. loose: how far those may
    be off that lose digits in maps; None where all of them are lost."""
    loose = loose or {}
    assert len(layers) == len(sides)
    for (layer, found), one, value, (real, ids) in zip(
        layers.items(), maps, values, sides, strict=True
    ):
        cross = found["kind"].item() == "cross"
        words = None if cross else ids
        causal = "retained_mass" in found
        expected = wanted(one, real=real, ids=ids, cross=cross, sinks=sinks) | {
            name: _mean(right)
            for name, right in of_heads(
                one, real=real, ids=words, value=value, causal=causal, sinks=sinks
            ).items()
        }
        assert expected.keys() >= {"entropy", "keys_for", "received", "heavy_mass"}
        half = tolerance > 1e-3
        told = {name for name in expected if loose.get(name, tolerance) is not None}
        for statistic in sorted(told - NOT_IN_MAPS):
            mine, right = _mean(found[statistic].values), expected[statistic]
            why_so = f"{why} {layer} {statistic}"
            if half and statistic in TURNING:
                mine, right = _mean(mine), _mean(right)
                far = ~np.isclose(mine, right, rtol=tolerance, atol=tolerance)
                assert far.sum() <= far.size // 8, f"{why_so}: {mine}, {right}"
                continue
            near = loose.get(statistic, tolerance)
            np.testing.assert_allclose(mine, right, rtol=near, atol=near, err_msg=why_so)


def compare(name, *, dtype=torch.float32, tolerance=1e-5):
    """Each implementation that this model has, with its maps as transformers gives them."""
    inputs = INPUTS.get(name, {"input_ids": IDS})
    model = small_model(name, "eager").to(dtype)
    maps, values = eager(name, model, inputs), values_of(model, inputs)
    real = inputs.get("attention_mask", torch.ones_like(IDS)).bool()
    sides = [(real, inputs["input_ids"])] * len(maps)
    if name == "t5":  # the encoder's layers, then the decoder's
        sides[2:] = [(torch.ones_like(real), inputs["decoder_input_ids"])] * (len(maps) - 2)
    loose = LOOSE[dtype] if name == "gpt_oss" else None
    for implementation in IMPLEMENTATIONS.get(name, ("eager", "sdpa", "flex_attention")):
        model.set_attn_implementation(implementation)
        moment = take_snapshot(model, make_probe(model, inputs), min_keys=LEAST)
        whole = implementation == "eager" or dtype == torch.float32
        some = slice(None) if whole else slice(1)  # later layers read what another kernel rounds
        agree(
            dict(list(moment.layers.items())[some]),
            maps[some],
            values[some],
            sides=sides[some],
            tolerance=tolerance,
            loose=loose,
            sinks=name == "gpt_oss" and dtype == torch.float32,
            why=implementation,
        )


@pytest.mark.parametrize("name", MODELS)
def test_in_float32(name):
    # compiling flex_attention would take longer than all tests here; uncompiled it is exact
    with torch.compiler.set_stance("force_eager"):
        compare(name)


@pytest.mark.parametrize("name", ["gpt2", "gemma3", "gpt_oss", "t5"])
def test_in_bfloat16(name):
    with torch.compiler.set_stance("force_eager"):
        compare(name, dtype=torch.bfloat16, tolerance=5e-3)


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
    moment = take_snapshot(model, make_probe(model, IDS), min_keys=LEAST)
    sides = [(torch.ones_like(IDS).bool(), IDS)] * 2
    agree(moment.layers, maps, values_of(model, {"ids": IDS}), sides=sides)


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
            _, weights = one.self_attn(
                given, given, given, key_padding_mask=padded, average_attn_weights=False
            )
            maps.append(weights)
            given = one(given, src_key_padding_mask=padded)
    inputs = {"src": x, "src_key_padding_mask": padded}
    moment = take_snapshot(model, make_probe(model, inputs), min_keys=LEAST)
    agree(moment.layers, maps, values_of(model, inputs), sides=[(~padded, None)] * 2)
