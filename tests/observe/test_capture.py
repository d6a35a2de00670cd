"""What is captured is what the model computes: maps made from calls are the eager ones."""

import dataclasses

import pytest
import torch
from small_models import NanoGPT, small_model, tokens
from torch import nn

from attnlab.files.errors import InputError
from attnlab.observing.capture import logits_of, require_match, weights_of
from attnlab.observing.sources import SOURCES, capturing

pytest.importorskip("transformers")
DECODERS = ("gpt2", "llama", "gpt_neox", "opt", "mistral", "gemma2", "gemma3", "gpt_oss", "qwen3")
# what each can run on a processor beside eager; the others run torch's function alone
OTHERS = {
    "gemma2": ("flex_attention",),
    "gpt_oss": (),
    **dict.fromkeys(("llama", "gemma3"), ("sdpa", "flex_attention")),
}


@pytest.fixture(autouse=True)
def uncompiled():
    """Compiling flex_attention takes longer than all tests here; uncompiled it is exact."""
    with torch.compiler.set_stance("force_eager"):
        yield


def seen_maps(model, **inputs):
    """The maps that follow from the captured calls, and these calls."""
    sightings = []
    with torch.no_grad(), capturing(model, sightings.append) as capture:
        model(**inputs)
    maps = {s.layer: weights_of(s.call, whole_logits(s.call)) for s in sightings}
    return maps, sightings, capture


def check(captured):
    """Refuse a call that does not explain the model's output."""
    require_match(captured.layer, captured.kind, *captured.output_check().tolist())


def whole_logits(call):
    return logits_of(call, torch.arange(call.query.shape[2]))


def eager_maps(name, model, **inputs):
    """What transformers itself says the attention is, in the order in which it was computed."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(**inputs, output_attentions=True, use_cache=False)
    if name == "t5":
        both = zip(out.decoder_attentions, out.cross_attentions, strict=True)
        return [*out.encoder_attentions, *(one for pair in both for one in pair)]
    return list(out.attentions)


def compare(name, implementation, inputs, *, real=None, tolerance=1e-5, dtype=torch.float32):
    model = small_model(name, "eager").to(dtype)
    wanted = eager_maps(name, model, **inputs)
    model.set_attn_implementation(implementation)
    maps, sightings, capture = seen_maps(model, **inputs, use_cache=False)
    assert len(maps) == len(wanted)
    assert not capture.unseen()
    for found, expected, captured in zip(maps.values(), wanted, sightings, strict=True):
        check(captured)
        rows = torch.ones(found.shape[:1] + found.shape[2:3], dtype=bool) if real is None else real
        rows = rows[:, None].expand(found.shape[:3])
        difference = (found - expected.float()).abs()[rows].max()
        assert difference < tolerance, f"{captured.layer}: {difference}"
    return sightings


@pytest.mark.parametrize("name", DECODERS)
def test_captured_calls_give_the_eager_maps_of_decoders(name):
    for implementation in ("eager", *OTHERS.get(name, ("sdpa",))):
        sightings = compare(name, implementation, {"input_ids": tokens()})
        assert [s.call.layer for s in sightings] == [0, 1]
        assert not any(s.call.cross for s in sightings)
    if name in ("llama", "qwen3"):
        assert sightings[0].call.key.shape[1] == 2  # KV heads are not repeated


@pytest.mark.parametrize("side", ["left", "right"])
def test_with_padding(side):
    mask = torch.ones(2, 24, dtype=torch.long)
    if side == "left":
        mask[1, :7] = 0
    else:
        mask[1, -7:] = 0
    inputs = {"input_ids": tokens(), "attention_mask": mask}
    for name, implementation in [
        ("bert", "sdpa"),
        ("bert", "eager"),
        ("llama", "sdpa"),
        ("llama", "flex_attention"),
        ("gpt_neox", "eager"),
        ("opt", "sdpa"),
        ("gemma3", "sdpa"),
    ]:
        compare(name, implementation, inputs, real=mask.bool())


def test_of_packed_sequences():
    positions = torch.cat([torch.arange(10), torch.arange(14)])[None].expand(2, -1)
    inputs = {"input_ids": tokens(), "position_ids": positions}
    for implementation in ("eager", "sdpa", "flex_attention"):
        sightings = compare("llama", implementation, inputs)
        maps = weights_of(sightings[0].call, whole_logits(sightings[0].call))
        assert not maps[..., 10:, :10].any()  # the second text sees nothing of the first


def test_of_t5_with_bias_and_cross_attention():
    mask = torch.ones(2, 24, dtype=torch.long)
    mask[0, 20:] = 0
    inputs = {
        "input_ids": tokens(),
        "attention_mask": mask,
        "decoder_input_ids": tokens(length=24, seed=2),
    }
    for implementation in ("eager", "sdpa"):  # its flex function takes one sequence alone
        sightings = compare("t5", implementation, inputs)
        assert [s.call.cross for s in sightings] == [False, False, False, True, False, True]
    inputs["decoder_input_ids"] = tokens(length=9, seed=2)
    compare("t5", "sdpa", inputs)


def test_in_bfloat16():
    for name in ("llama", "gemma3", "gpt_oss"):
        compare(name, "eager", {"input_ids": tokens()}, dtype=torch.bfloat16, tolerance=3e-2)


def test_of_flash_kernels_as_they_are_asked():
    """No kernel runs here; what they are given says the same as the eager mask does."""
    from attnlab.observing.sources import huggingface_call

    mask = torch.ones(2, 24, dtype=torch.long)
    mask[1, :7] = 0
    for name, kwargs in {"mistral": {"sliding_window": 6}, "llama": {}}.items():
        model = small_model(name, "eager")
        inputs = {"input_ids": tokens(), "attention_mask": mask}
        wanted = eager_maps(name, model, **inputs)
        _, sightings, _ = seen_maps(model, **inputs)
        for captured, expected in zip(sightings, wanted, strict=True):
            call = captured.call
            module = model.get_submodule(captured.layer)
            told = huggingface_call(
                "flash_attention_2",
                module,
                call.query,
                call.key,
                call.value,
                mask.bool(),
                scaling=call.scale,
                **kwargs,
            )
            found = weights_of(told, whole_logits(told))
            assert (found - expected).abs()[mask.bool()[:, None].expand(2, 4, -1)].max() < 1e-5
    # packed: where texts begin, or positions that begin anew
    q, k, v = torch.randn(3, 1, 4, 24, 8).unbind(0)
    module = model.get_submodule("model.layers.0.self_attn")
    positions = torch.cat([torch.arange(10), torch.arange(14)])[None]
    begins = torch.tensor([0, 10, 24])
    for told in ({"position_ids": positions}, {"cu_seq_lens_q": begins}):
        call = huggingface_call("flash_attention_2", module, q, k, v, None, **told)
        maps = weights_of(call, whole_logits(call))
        assert not maps[..., 10:, :10].any() and not maps[..., :10, 10:].any()
        assert torch.allclose(maps.sum(-1), torch.ones(1, 4, 24))


def wanted_of(module, x, **kwargs):
    """What torch.nn.MultiheadAttention itself says."""
    return module(x, x, x, need_weights=True, average_attn_weights=False, **kwargs)[1]


def test_of_torch_encoder_with_padding():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
    x, padding = torch.randn(2, 24, 32), torch.zeros(2, 24, dtype=bool)
    padding[0, 18:] = True
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        maps, sightings, capture = seen_maps(model, src=x, src_key_padding_mask=padding)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert list(maps) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert not capture.unseen()
    first, second = model.layers
    with torch.no_grad():
        wanted = wanted_of(first.self_attn, x, key_padding_mask=padding)
        assert (maps["layers.0.self_attn"] - wanted).abs().max() < 1e-5
        torch.backends.mha.set_fastpath_enabled(False)
        wanted = wanted_of(
            second.self_attn, first(x, src_key_padding_mask=padding), key_padding_mask=padding
        )
        torch.backends.mha.set_fastpath_enabled(True)
    assert (maps["layers.1.self_attn"] - wanted).abs().max() < 1e-5
    for captured in sightings:
        check(captured)


class AsksForWeights(nn.Module):
    """As tutorials have it: weights are asked for, which torch computes on a way of its own."""

    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x, other):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x, self.weights = self.attn(x, x, x, attn_mask=mask, average_attn_weights=False)
        return self.attn(x, other, other)[0]


def test_of_multihead_attention_that_is_asked_for_weights():
    torch.manual_seed(0)
    model = AsksForWeights().eval()
    x, other = torch.randn(2, 24, 32), torch.randn(2, 11, 32)
    with torch.no_grad():
        alone = model(x, other)
    maps, sightings, _ = seen_maps(model, x=x, other=other)
    assert list(maps) == ["attn", "attn#2"]
    assert [s.call.cross for s in sightings] == [False, True]
    assert (maps["attn"] - model.weights).abs().max() < 1e-5
    with torch.no_grad(), capturing(model, lambda _: None):
        assert torch.equal(model(x, other), alone)


def test_of_plain_torch():
    model = NanoGPT().eval()
    maps, sightings, capture = seen_maps(model, ids=tokens())
    assert list(maps) == ["blocks.0.attention", "blocks.1.attention"]
    assert not capture.unseen()
    for captured in sightings:
        check(captured)
    # by hand, the first layer
    with torch.no_grad():
        first = model.blocks[0]
        x = first.norm(model.tokens(tokens()) + model.places(torch.arange(24)))
        q, k, _ = (p.view(2, 24, 4, 8).transpose(1, 2) for p in first.attention.qkv(x).chunk(3, -1))
        hidden = torch.full((24, 24), -torch.inf).triu(1)
        wanted = (q @ k.transpose(-1, -2) / 8**0.5 + hidden).softmax(-1)
    assert (maps["blocks.0.attention"] - wanted).abs().max() < 1e-5


class ByName(nn.Module):
    """Has imported torch's function by its name (below), with a single head and a float mask."""

    def forward(self, x):
        return attend(x, x, x, attn_mask=torch.linspace(-1, 1, x.shape[1]), scale=0.3)


attend = nn.functional.scaled_dot_product_attention


def test_of_a_function_that_was_imported_by_name():
    x = torch.randn(2, 24, 8)
    maps, _, _ = seen_maps(ByName(), x=x)
    wanted = (0.3 * x @ x.transpose(-1, -2) + torch.linspace(-1, 1, 24)).softmax(-1)
    assert (maps[""][:, 0] - wanted).abs().max() < 1e-5
    assert attend is nn.functional.scaled_dot_product_attention


class Causal(nn.Module):
    def forward(self, q, k):
        return nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)


@pytest.mark.parametrize("queries, keys", [(12, 24), (24, 12), (24, 24)])
def test_causality_counts_from_the_first_key_as_torch_does(queries, keys):
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, queries, 8), torch.randn(2, 2, keys, 8)
    _, (captured,), _ = seen_maps(Causal(), q=q, k=k)
    check(captured)  # against torch's own output
    maps = weights_of(captured.call, whole_logits(captured.call))
    assert not maps.triu(1).any()


def test_a_call_that_does_not_explain_the_output_is_refused():
    model = small_model("llama", "eager")
    attention = type(model.model.layers[0].self_attn)
    sightings = []
    with torch.no_grad(), capturing(model, sightings.append):
        model(input_ids=tokens())
    captured = sightings[0]
    check(captured)
    wrong = [
        {"causal": True, "mask": None, "window": 5},
        {"mask": None},
        {"scale": 1.0},
        {"softcap": 0.5},
        {"sinks": torch.zeros(4)},
    ]
    for change in wrong:
        call = dataclasses.replace(captured.call, **change)
        with pytest.raises(InputError, match=f"model.layers.0.self_attn .{attention.__name__}."):
            check(dataclasses.replace(captured, call=call))


def test_afterwards_everything_is_as_it_was():
    import transformers.modeling_utils as utils
    from torch.nn import functional

    def places():
        return (
            utils.AttentionInterface.get_interface,
            functional.scaled_dot_product_attention,
            functional.multi_head_attention_forward,
            functional.softmax,
            torch.softmax,
            torch.Tensor.softmax,
        )

    before, model, other = places(), small_model("llama"), NanoGPT()
    first, second = capturing(model, print), capturing(other, print)
    first.__enter__()
    second.__enter__()
    assert not set(places()) & set(before)
    first.__exit__(None, None, None)  # the first to come leaves first
    assert not set(places()) & set(before)
    second.__exit__(None, None, None)
    assert places() == before
    assert "softmax" not in vars(torch.Tensor)  # it was inherited
    assert not any(source.captures for source in SOURCES)
    for module in (*model.modules(), *other.modules()):
        assert not module._forward_hooks and not module._forward_pre_hooks


class Masked(nn.Module):
    """Hides half of the keys by a mask of -100, which large logits overcome."""

    def forward(self, q, k):
        mask = torch.where(torch.arange(24) < 12, 0.0, -100.0)[None]
        return nn.functional.scaled_dot_product_attention(q, k, torch.randn(2, 4, 24, 8), mask)


def test_keys_that_a_mask_does_not_hide_after_all_are_refused():
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 4, 24, 8)
    _, (captured,), _ = seen_maps(Masked(), q=q, k=k)
    check(captured)
    k[:, :, 12:] *= 60
    _, (captured,), _ = seen_maps(Masked(), q=q, k=k)
    with pytest.raises(InputError, match="below a drop of 50"):
        check(captured)


class Hand(nn.Module):
    """Projections as hand-written modules have them; what is made of them, a subclass says."""

    def __init__(self, heads=4, width=32):
        super().__init__()
        torch.manual_seed(0)
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Reads(Hand):
    def forward(self, x, memory):
        q, k, v = self.split(self.q(x)), self.split(self.k(memory)), self.split(self.v(memory))
        return nn.functional.scaled_dot_product_attention(q, k, v)


class Folded(Hand):
    """Heads in the batch: those of a sequence together, or (by chunks) sequences of a head."""

    def forward(self, x, chunks=False):
        tensors = [layer(x) for layer in (self.q, self.k, self.v)]
        if chunks:
            tensors = [torch.cat(one.chunk(self.heads, -1)) for one in tensors]
        else:
            tensors = [self.split(one).flatten(0, 1) for one in tensors]
        return nn.functional.scaled_dot_product_attention(*tensors)


def test_cross_attention_is_known_by_where_its_keys_come_from():
    x, memory = torch.randn(2, 2, 24, 32)
    _, (captured,), _ = seen_maps(Reads(), x=x, memory=memory)
    assert captured.call.cross
    _, (captured,), _ = seen_maps(Reads(), x=x, memory=x)
    assert not captured.call.cross
    _, (captured,), _ = seen_maps(nn.Sequential(Folded()), input=x)
    assert not captured.call.cross


@pytest.mark.parametrize("chunks", [False, True])
def test_heads_that_are_folded_into_the_batch_are_heads(chunks):
    model, x = Folded().eval(), torch.randn(3, 24, 32)
    _, (captured,), _ = seen_maps(model, x=x, chunks=chunks)
    check(captured)
    with torch.no_grad():
        q, k = model.split(model.q(x)), model.split(model.k(x))
    assert captured.call.shape == (3, 4, 24, 24)
    assert torch.equal(captured.call.query, q) and torch.equal(captured.call.key, k)


class Prefixed(Hand):
    """Keys before those of the sequence; causal by its mask."""

    def forward(self, x, before=5):
        q, k, v = (self.split(layer(x)) for layer in (self.q, self.k, self.v))
        first = (
            torch.linspace(-1, 1, 4 * before * 8).view(1, 4, before, 8).expand(len(x), -1, -1, -1)
        )
        k, v = torch.cat([first, k], 2), torch.cat([-first, v], 2)
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(before)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class InChunks(Hand):
    """Eight queries at a time."""

    def forward(self, x, causal=True):
        q, k, v = (self.split(layer(x)) for layer in (self.q, self.k, self.v))
        mask = torch.ones(x.shape[1], x.shape[1])
        mask = torch.where((mask.tril() if causal else mask) > 0, 0.0, -torch.inf)
        return torch.cat(
            [
                nn.functional.scaled_dot_product_attention(
                    q[:, :, i : i + 8], k, v, mask[i : i + 8]
                )
                for i in range(0, x.shape[1], 8)
            ],
            2,
        )


class ZeroKey(Hand):
    """A key of zeros to attend to nothing, before the others or after them."""

    def forward(self, x, first=True):
        q, k, v = (self.split(layer(x)) for layer in (self.q, self.k, self.v))
        k, v = (nn.functional.pad(one, (0, 0, *((1, 0) if first else (0, 1)))) for one in (k, v))
        return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.filterwarnings("error:.*taken for cross-attention")
def test_self_attention_with_more_keys_than_queries_is_self_attention():
    x = torch.randn(2, 24, 32)
    _, (captured,), _ = seen_maps(Prefixed(), x=x)
    check(captured)
    assert not captured.call.cross and captured.call.shape[2:] == (24, 29)
    _, sightings, _ = seen_maps(InChunks(), x=x)
    for captured, keys in zip(sightings, (8, 16, 24), strict=True):
        check(captured)
        assert not captured.call.cross and captured.call.shape[2:] == (8, keys)
    for first in (False, True):
        _, (captured,), _ = seen_maps(ZeroKey(), x=x, first=first)
        check(captured)
        assert not captured.call.cross and captured.call.shape[2:] == (24, 24)
        assert not captured.call.sinks.any()
    for added in (
        {"add_zero_attn": True},
        {"add_bias_kv": True},
        {"add_zero_attn": True, "add_bias_kv": True},
    ):
        attention = nn.MultiheadAttention(32, 4, batch_first=True, **added).eval()
        given = {"query": x, "key": x, "value": x, "average_attn_weights": False}
        for causal in (None, torch.full((24, 24), -torch.inf).triu(1)):
            maps, (captured,), _ = seen_maps(attention, **given, attn_mask=causal)
            check(captured)
            bias = int("add_bias_kv" in added)
            assert not captured.call.cross and captured.call.shape[2:] == (24, 24 + bias)
            assert (captured.call.sinks is not None) == ("add_zero_attn" in added)
            wanted = attention(**given, attn_mask=causal)[1]
            assert torch.allclose(maps[""][..., bias:], wanted[..., :24], atol=1e-6)
            assert torch.allclose(maps[""][..., :bias], wanted[..., 24 : 24 + bias], atol=1e-6)


def test_cross_attention_assumed_from_lengths_warns():
    class Bidirectional(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = InChunks()

        def forward(self, x):
            return self.inner(x, causal=False)

    with pytest.warns(UserWarning, match="inner: 8 queries and 24 keys.*for cross-attention"):
        _, sightings, _ = seen_maps(Bidirectional(), x=torch.randn(2, 24, 32))
    assert all(captured.call.cross for captured in sightings)


class Taught(nn.Module):
    """A model whose forward calls another, which it holds in a list."""

    def __init__(self, other):
        super().__init__()
        self.inner, self.others = Folded(), [other]

    def forward(self, x):
        return self.inner(x), self.others[0](x)


@pytest.mark.parametrize(
    "other", [Folded(), nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)]
)
def test_another_model_inside_the_forward_is_not_a_layer(other):
    # in training mode, in which torch does not fuse an encoder layer into one call
    _, sightings, capture = seen_maps(Taught(other), x=torch.randn(2, 24, 32))
    assert [captured.layer for captured in sightings] == ["inner"]
    assert capture.foreign == {type(other).__name__} and not capture.running


def test_a_part_without_weights_that_is_not_registered_is_the_models():
    class Attends(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x)

    _, sightings, capture = seen_maps(Taught(Attends()), x=torch.randn(2, 24, 32))
    assert [captured.layer for captured in sightings] == ["inner", ""]
    assert not capture.foreign


class PositionsInQueries(Hand):
    """Positions are added to what queries are made from, and not to what keys are."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(97, 32)

    def forward(self, ids):
        x = self.embed(ids)
        positions = torch.linspace(-1, 1, x.shape[1] * 32).view(-1, 32)
        q, k, v = self.split(self.q(x + positions)), self.split(self.k(x)), self.split(self.v(x))
        return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.filterwarnings("error:.*taken for cross-attention")
def test_positions_in_queries_alone_leave_self_attention():
    model, ids = PositionsInQueries(), torch.randint(97, (2, 24))
    _, (captured,), _ = seen_maps(model, ids=ids)
    assert not captured.call.cross
    x = torch.randn(2, 24, 32)
    attention = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    _, (captured,), _ = seen_maps(attention, query=x + torch.randn(24, 32), key=x, value=x)
    assert not captured.call.cross


def test_cross_attention_assumed_from_one_sequence_warns():
    with pytest.warns(UserWarning, match="the model: its keys are made from another tensor"):
        _, (captured,), _ = seen_maps(PositionsInQueries(), ids=torch.randint(97, (1, 24)))
    assert captured.call.cross
