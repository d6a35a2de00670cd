"""The observer measures beside a training, and leaves no trace in it."""

import contextlib
import functools
import gc
import json
import random
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from small_models import LENGTH, NanoGPT, small_model, tokens
from torch import nn
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention
from whole_maps import over_sequences

import attnlab
from attnlab.files.errors import InputError
from attnlab.observing.probe import make_probe
from attnlab.observing.snap import SNAPPED, STOPPED, UNKNOWN
from attnlab.observing.snapshot import take_snapshot
from attnlab.observing.sources import SOURCES, capturing
from attnlab.observing.training import LearningRateSum, sums_of_checkpoints
from attnlab.observing.words import in_words

FEW = {"min_keys": 8}
PROBE = tokens(2)


def loss_of(model, ids):
    out = model(ids)
    logits = getattr(out, "logits", out)
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def train(model, steps, *, after=lambda n: None, autocast=False):
    """Losses, the last gradients and the final weights of a short training."""
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, drawn = [], []
    for n in range(1, steps + 1):
        ids = torch.randint(3, 97, (2, LENGTH))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            after(-n)  # inside the autocast of the step, too
            loss = loss_of(model, ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        drawn.append((random.random(), np.random.rand()))  # noqa: NPY002
        after(n)
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return losses, gradients, [p.detach().clone() for p in model.parameters()], drawn


def assert_same(one, other):
    for a, b in zip(one[:3], other[:3], strict=True):
        assert len(a) == len(b)
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert one[3] == other[3]


MODELS = {
    "plain": lambda: NanoGPT(dropout=0.2).train(),
    "gpt2": lambda: small_model("gpt2").train(),  # with dropout everywhere, as it comes
}


@pytest.mark.parametrize("name", MODELS)
def test_a_training_is_bitwise_the_same(name):
    """Fifty steps with dropout: losses, gradients, weights, random numbers."""
    alone = train(MODELS[name](), 50)
    model = MODELS[name]()
    with attnlab.observe(model, probe=PROBE, every=20, **FEW) as observer:
        watched = train(model, 50)
    assert_same(watched, alone)
    result = observer.result()
    assert result.step.values.tolist() == [0, 20, 40, 50]
    assert dict(result.sizes) | {"step": 4, "layer": 2, "head": 4} == dict(result.sizes)
    assert float(abs(result.entropy[0] - result.entropy[-1]).max()) > 0.01  # it did train
    assert np.isfinite(result.attention_speed.values[:-1]).all()


def test_live_a_training_is_bitwise_the_same():
    alone = train(MODELS["plain"](), 6)
    model = MODELS["plain"]()
    with attnlab.observe(model, live=True, every=3, **FEW) as observer:
        watched = train(model, 6)
    assert_same(watched, alone)
    result = observer.result()
    assert result.step.values.tolist() == [0, 3]  # and none of a step that never was
    assert np.isfinite(result.entropy.values).all()
    assert "attention_speed" not in result  # of other tokens each time


def test_live_the_queries_are_those_of_the_training():
    model = NanoGPT().train()
    ids = tokens(3, 30, seed=5)
    observer = attnlab.observe(model, live=True, every=1, **FEW)
    observer.step(0)
    model.eval()
    model(tokens())  # an evaluation in between is none of the training's
    model.train()
    with torch.no_grad():
        model(tokens())  # nor is what it generates for it
    model(ids)
    model(tokens())
    observer.step(1)
    observer.finish(1)
    wanted = take_snapshot(model, make_probe(model, ids), **FEW)
    found = observer.result().isel(step=0)
    for i, layer in enumerate(wanted.layers.values()):
        for name in ("entropy", "induction_mass", "sink_mass"):
            expected = over_sequences(layer)[name]
            assert np.allclose(found[name].isel(layer=i), expected, atol=1e-6)


def test_live_a_batch_that_is_too_short_does_not_stop_the_training():
    model = NanoGPT().train()
    observer = attnlab.observe(model, live=True, every=1)
    with pytest.warns(UserWarning, match="step 1: no query of the training's batch sees 16 keys"):
        for step, length in enumerate((24, 8, 24)):
            observer.step(step)
            assert model(tokens(2, length)).isfinite().all()
        observer.finish(3)
    assert observer.result().step.values.tolist() == [0, 2]


def test_in_autocast_gradients_are_not_lost():
    """A weight cast to bfloat16 without gradients must not be found by the step around it."""
    alone = train(NanoGPT(dropout=0.1), 4, autocast=True)
    model = NanoGPT(dropout=0.1)
    observer = attnlab.observe(model, probe=PROBE, every=1, **FEW)
    inside = lambda n: observer.step(-n) if n < 0 else None  # noqa: E731
    assert_same(train(model, 4, after=inside, autocast=True), alone)
    assert len(observer.history.steps) == 4


class Restless(NanoGPT):
    """Changes a buffer in each forward, in both ways, and draws random numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("counted", torch.zeros(3))
        self.register_buffer("replaced", torch.zeros(3))
        self.blocks[0].eval()  # frozen by whoever trains it

    def forward(self, ids):
        self.counted += 1
        self.replaced = self.replaced + torch.rand(3)
        return super().forward(ids)


def test_modes_buffers_and_hooks_are_as_before():
    model = Restless()
    model(tokens())
    before = {name: module.training for name, module in model.named_modules()}
    assert len(set(before.values())) == 2
    counted, replaced, state = model.counted, model.replaced, torch.get_rng_state()
    values = counted.clone(), replaced.clone()
    attnlab.observe(model, probe=PROBE, **FEW).step(0)
    assert {name: module.training for name, module in model.named_modules()} == before
    assert model.counted is counted and model.replaced is replaced
    assert torch.equal(counted, values[0]) and torch.equal(replaced, values[1])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.backends.mha.get_fastpath_enabled()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert not any(source.captures for source in SOURCES)


def test_nothing_keeps_the_model_alive():
    from torch.optim import optimizer

    hooks = len(optimizer._global_optimizer_post_hooks)
    model = NanoGPT()
    gone = weakref.ref(model)
    with attnlab.observe(model, probe=PROBE, every=2, **FEW) as observer:
        train(model, 2)
    callback = observer.callback()
    assert len(optimizer._global_optimizer_post_hooks) == hooks
    del model
    gc.collect()
    assert gone() is None
    assert observer.result().sizes["step"] == 2
    with pytest.raises(InputError, match="model: is gone"):
        observer.step(4)
    assert callback is not None


def test_a_failure_leaves_nothing_behind_either():
    model = NanoGPT()
    with contextlib.suppress(ZeroDivisionError), attnlab.observe(model, probe=PROBE, **FEW):
        raise ZeroDivisionError
    assert not any(m._forward_hooks for m in model.modules())
    assert not any(source.captures for source in SOURCES)


def test_steps_counted_by_hand_are_used():
    model = NanoGPT()
    with attnlab.observe(model, probe=PROBE, every=2, **FEW) as observer:
        train(model, 3, after=lambda n: n > 0 and observer.step(n))
    assert observer.history.steps == [0, 2, 3]
    model = NanoGPT()
    with attnlab.observe(model, probe=PROBE, every=2, **FEW) as observer:  # goes on from 100
        train(model, 3, after=lambda n: n > 0 and observer.step(100 + n))
    assert observer.history.steps == [102, 103]
    with pytest.warns(UserWarning, match="step 90 after 103: the training goes on from an earlier"):
        observer.step(90)
    assert observer.history.steps == [90]


def test_an_optimizer_of_another_model_is_not_counted():
    model, other = NanoGPT(), NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, every=1, **FEW)
    with pytest.warns(UserWarning, match="no step of a torch optimizer that trains"), observer:
        train(other, 2)
    assert observer.history.steps == [0]


def test_the_uncompiled_module_is_measured():
    """Compiled by a backend that counts, so that nothing is really compiled."""
    ran = []

    def backend(graph, _):
        def run(*args):
            ran.append(1)
            return graph.forward(*args)

        return run

    plain = NanoGPT().eval()
    wanted = take_snapshot(plain, make_probe(plain, PROBE), **FEW).layers
    whole, part, inplace = (NanoGPT().eval() for _ in range(3))
    whole = torch.compile(whole, backend=backend)
    part.blocks[0] = torch.compile(part.blocks[0], backend=backend)
    inplace.compile(backend=backend)
    for model in (whole, part, inplace):
        observer = attnlab.observe(model, probe=PROBE, **FEW)
        assert observer.step(0)
        assert not ran
        found = observer.result().entropy.isel(step=0)
        for i, layer in enumerate(wanted.values()):
            assert np.allclose(found.isel(layer=i), layer.entropy.mean("sequence"))
        with pytest.raises(InputError, match="live: the model is compiled"):
            attnlab.observe(model, live=True)
    with torch.no_grad():
        assert torch.equal(whole(PROBE), plain(PROBE)) and torch.equal(part(PROBE), plain(PROBE))
    assert ran  # what was compiled is so again


def test_the_dataset_has_statistics_and_labels():
    model = small_model("llama")
    observer = attnlab.observe(model, probe={"input_ids": PROBE}, every=10, **FEW)
    observer.step(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.1)
    assert not observer.step(5)
    assert observer.step(10)
    result = observer.result()
    assert result.module.values.tolist() == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    assert result.kind.values.tolist() == ["self", "self"]
    assert result.attrs["unseen"] == "{}"
    wanted = take_snapshot(model, make_probe(model, PROBE), **FEW)
    for i, layer in enumerate(wanted.layers.values()):
        means = over_sequences(layer)
        for name in means.data_vars:  # the quick means are those of `record`
            found = result[name].isel(step=1, layer=i)
            assert np.allclose(found, means[name], equal_nan=True), name
            assert found.attrs == means[name].attrs


def test_of_the_largest_logit_the_largest_sequence_is_kept():
    model, ids = NanoGPT().eval(), tokens(3)
    calls = []
    with torch.no_grad(), capturing(model, lambda seen: calls.append(seen.call)):
        model(ids)
    found = observed(model, ids, rows=4, min_keys=4)["max_logit"].values
    for layer, call in enumerate(calls):
        logits = call.query.double() @ call.key.double().mT * call.scale
        hidden = torch.ones(ids.shape[1], ids.shape[1], dtype=bool).triu(1)
        wanted = logits.masked_fill(hidden, -torch.inf).amax((0, 2, 3))
        np.testing.assert_allclose(found[layer], wanted, rtol=1e-5)


def test_all_layers_of_a_seq2seq_model_are_captured():
    model = small_model("t5")
    result = observed(model, PROBE)
    assert result.kind.values.tolist() == ["self", "self", "self", "cross", "self", "cross"]
    crossing = result.isel(layer=[3, 5])
    assert np.isnan(crossing.previous_mass).all()
    assert np.isfinite(crossing.entropy).all()


class Wrapped(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, **inputs):
        return self.inner(**inputs)


def test_padding_of_an_encoder_does_not_reach_its_decoder():
    """Where both read sequences of one length."""
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[0, -6:] = True
    inputs = {
        "input_ids": PROBE,
        "attention_mask": ~padding,
        "decoder_input_ids": tokens(2, seed=2),
    }
    model = small_model("t5")
    alone, wrapped = observed(model, inputs), observed(Wrapped(model), inputs)
    np.testing.assert_array_equal(wrapped.visible_keys, alone.visible_keys)
    np.testing.assert_array_equal(wrapped.entropy, alone.entropy)
    causal = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    both = {"src": torch.randn(2, LENGTH, 8), "tgt": torch.randn(2, LENGTH, 8), "tgt_mask": causal}
    model = nn.Transformer(8, 2, 1, 1, 8, batch_first=True)
    masks = {"src_key_padding_mask": padding, "tgt_key_padding_mask": padding.flip(0)}
    seen = observed(model, {**both, **masks}, min_keys=1).visible_keys.isel(head=0)
    assert seen.kind.values.tolist() == ["self", "self", "cross"]
    long, short = (LENGTH + 1) / 2, (LENGTH - 6 + 1) / 2
    np.testing.assert_allclose(seen, [(LENGTH - 6 + LENGTH) / 2, (long + short) / 2, LENGTH])


def test_image_layers_have_no_statistics_of_tokens():
    """Where there are as many of both: CLIP, which does not say where its tokens are."""
    model, length = small_model("clip"), 17
    mask = torch.ones(2, length, dtype=torch.long)
    mask[0, -5:] = 0
    inputs = {
        "input_ids": tokens(2, length),
        "attention_mask": mask,
        "pixel_values": torch.randn(2, 3, 32, 32),
    }
    found = take_snapshot(model, make_probe(model, inputs), min_keys=1).layers
    vision = [name for name in found if name.startswith("vision")]
    assert len(found) == 4 and len(vision) == 2
    for name, layer in found.items():
        assert ("token" in layer.variables) == (name not in vision)
        if name in vision:  # the queries are places of the image, all of them
            assert (layer.received_total.sum("key") == pytest.approx(length)).all()


class Drawing(NanoGPT):
    """Draws in evaluation mode too, as ViT MAE does."""

    def forward(self, ids):
        return super().forward(ids[:, torch.randperm(ids.shape[1])])


def test_every_measurement_draws_the_same():
    model = Drawing()
    observer = attnlab.observe(model, probe=PROBE, every=1, **FEW)
    for step in range(2):
        torch.manual_seed(step)
        expected = torch.rand(2)
        torch.manual_seed(step)
        assert observer.step(step)
        assert torch.equal(torch.rand(2), expected)
    assert (observer.result().entropy.diff("step") == 0).all()


def test_in_inference_mode():
    model = small_model("llama")
    inputs = {"input_ids": PROBE, "attention_mask": torch.ones_like(PROBE)}
    inputs["attention_mask"][0, :5] = 0
    expected = observed(model, inputs)
    with torch.inference_mode():
        found = observed(model, inputs)
    np.testing.assert_array_equal(found.entropy, expected.entropy)


def observed(model, probe, **options):
    observer = attnlab.observe(model, probe=probe, **{**FEW, **options})
    observer.step(0)
    return observer.result().isel(step=0)


def test_padding_is_left_out():
    """Sequences of different lengths in one batch are as each alone, whatever side is filled."""
    ids = tokens(2)
    short = ids[1:, :17]
    for side, name in (("right", "bert"), ("left", "llama"), ("right", "llama")):
        model = small_model(name)
        mask = torch.ones_like(ids)
        padded = ids.clone()
        place = slice(17, None) if side == "right" else slice(0, 7)
        mask[1, place], padded[1, place] = 0, 0
        padded[1, mask[1].bool()] = short[0]
        both = take_snapshot(
            model, make_probe(model, {"input_ids": padded, "attention_mask": mask}), **FEW
        )
        alone = take_snapshot(model, make_probe(model, short), **FEW)
        for name in both.layers:
            for statistic in ("entropy", "sink_mass", "top_mass", "mean_distance"):
                one = both.layers[name][statistic].isel(sequence=1)
                other = alone.layers[name][statistic].isel(sequence=0)
                assert np.allclose(one, other, atol=1e-4), (side, name, statistic)


def test_packed_texts_begin_where_they_begin():
    model = small_model("llama")
    first, second = tokens(1, 12), tokens(1, 18, seed=3)
    positions = torch.cat([torch.arange(12), torch.arange(18)])[None]
    pack = {"input_ids": torch.cat([first, second], 1), "position_ids": positions}
    probe = make_probe(model, pack)
    assert probe.side.starts.tolist() == [[0] * 12 + [12] * 18]
    found = take_snapshot(model, probe, min_keys=10)
    ones = [take_snapshot(model, make_probe(model, ids), min_keys=10) for ids in (first, second)]
    for name in found.layers:
        sinks = [one.layers[name].sink_mass.isel(sequence=0) for one in ones]
        wanted = (3 * sinks[0] + 9 * sinks[1]) / 12  # rows that see ten keys
        assert np.allclose(found.layers[name].sink_mass.isel(sequence=0), wanted, atol=1e-4)


def test_attention_that_cannot_be_captured_is_refused_by_name():
    with pytest.raises(
        InputError,
        match=r"no attention of BloomForCausalLM was seen: it computes"
        r" it in code of its own \(BloomAttention\); .* attnlab.observing.record",
    ):
        observed(small_model("bloom", "eager"), PROBE)
    with pytest.raises(InputError, match=r"FalconAttention.; load it with .*=\"sdpa\", or"):
        observed(small_model("falcon", "eager"), PROBE)
    with pytest.raises(InputError, match="no attention of Sequential was seen: it has none"):
        observed(nn.Sequential(nn.Embedding(97, 8), nn.Linear(8, 8)), PROBE)


class OwnAttention(nn.Module):
    def forward(self, x):
        return (x @ x.transpose(-1, -2)).softmax(-1) @ x


@pytest.mark.filterwarnings("error")
def test_a_diverging_model_is_measured_and_reported():
    model = NanoGPT()
    observer = attnlab.observe(model, probe=PROBE, every=1, alert=False, **FEW)
    for step in range(4):
        with torch.no_grad():
            for weight in model.parameters():
                weight *= 1.1 if step < 2 else torch.nan
        observer.step(step)
    result = observer.result()
    numbers = {str(n): v for n, v in result.data_vars.items() if {"step", "head"} <= set(v.dims)}
    for name in numbers.keys() - {"visible_keys", "attention_speed", "log_speed", "heavy_overlap"}:
        if not name.endswith("_se"):
            assert result[name].isel(step=slice(2, None)).isnull().all(), name
    assert result.entropy.isel(step=slice(2)).notnull().all()
    assert result.snap_step.isnull().all()
    told = attnlab.observing.in_words(result)
    assert "At 2 steps, the first of them 2, attention is not a number" in told[1]
    assert not any("nan" in sentence or "snapped" in sentence for sentence in told)
    assert "diverged" in observer.report()


def test_a_model_that_has_diverged_in_its_values_alone_is_not_taken_for_another():
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        model.in_proj_weight[16:] = torch.nan
    seen = observed(model, dict.fromkeys(("query", "key", "value"), torch.randn(2, 20, 8)))
    assert seen.entropy.notnull().all()


class Unnamed(nn.Module):
    """Attends in a block that is found neither by a source nor by a name."""

    def forward(self, x):
        return functional.softmax(x @ x.transpose(-1, -2), -1) @ x


class Hybrid(NanoGPT):
    """A block of its stack does not attend; another stack attends in code of its own."""

    def __init__(self):
        super().__init__()
        self.blocks[1] = nn.Sequential(nn.Linear(32, 32))
        self.others = nn.Sequential(Unnamed())

    def forward(self, ids):
        return self.others(self.blocks[1](self.blocks[0](self.tokens(ids))))


def test_blocks_without_attention_and_unnamed_attention_are_reported():
    with pytest.warns(UserWarning, match=r"nothing is known of blocks.1, others.0 "):
        result = observed(Hybrid(), PROBE)
    assert result.module.values.tolist() == ["blocks.0.attention"]
    assert result.attrs["unseen"] == '{"blocks.1": "Sequential", "others.0": "Unnamed"}'


def test_partly_captured_models_warn():
    model = NanoGPT()
    model.blocks[1].attention = OwnAttention()
    with pytest.warns(
        UserWarning,
        match=r"only some layers of NanoGPT .* blocks.1.attention "
        r"\(OwnAttention\)",
    ):
        result = observed(model, PROBE)
    assert result.module.values.tolist() == ["blocks.0.attention"]
    assert result.attrs["unseen"] == '{"blocks.1.attention": "OwnAttention"}'


@pytest.mark.parametrize(
    "probe, message",
    [
        (None, "probe: nothing to measure on"),
        (torch.zeros(0, 8, dtype=torch.long), "probe: is empty"),
        (torch.zeros(2, 1, dtype=torch.long), "probe: sequences of 1 token"),
        (tokens(1, 65), r"probe: 65 tokens are longer than the model's context of 64"),
        (
            torch.full((1, 8), 97),
            "probe: token ids from 97 to 97, but the model's vocabulary is 0 to 96",
        ),
        ("text", "probe: expected token ids, got str"),
        ([[1, 2], [3]], "probe: expected numbers in rows of one length"),
        ({"input_ids": PROBE, "attention_mask": torch.zeros_like(PROBE)}, "is all padding"),
        ({}, "probe: no tensor in it"),
        ({"input_ids": PROBE, "past_key_values": object()}, "probe: past_key_values: every"),
    ],
)
def test_wrong_probes_are_refused(probe, message):
    model = small_model("llama")
    with pytest.raises(InputError, match=message):
        attnlab.observe(model, probe=probe)


def test_wrong_models_and_settings_are_refused():
    with pytest.raises(InputError, match="model: expected a torch.nn.Module, got str"):
        attnlab.observe("gpt2", probe=PROBE)
    with pytest.raises(InputError, match="every: expected a whole number"):
        attnlab.observe(NanoGPT(), probe=PROBE, every=0)
    with pytest.raises(InputError, match="log: expected a trainer, a tracker or a function"):
        attnlab.observe(NanoGPT(), probe=PROBE, log="tensorboard")
    model = NanoGPT()
    for wrong in ({"min_keys": 0}, {"min_keys": "few"}, {"rows": 1}, {"rows": "all"}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))}: expected a whole number"):
            attnlab.observe(model, probe=PROBE, **(FEW | wrong)).step(0)
    with pytest.raises(InputError, match="probe: live=True measures"):
        attnlab.observe(NanoGPT(), probe=PROBE, live=True)
    with pytest.raises(InputError, match="step: nothing was measured yet"):
        attnlab.observe(NanoGPT(), probe=PROBE).result()


def schedule(model, factor, steps, *, every, lr=0.05, by_hand=False):
    """Observe SGD under a schedule: factor(step) times the learning rate."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    observer = attnlab.observe(model, probe=tokens(4), every=every, **FEW)
    with contextlib.nullcontext() if by_hand else observer:
        if by_hand:
            observer.step(0)
        torch.manual_seed(0)
        for n in range(steps):
            optimizer.zero_grad()
            loss_of(model, torch.randint(3, 97, (2, LENGTH))).backward()
            optimizer.step()
            scheduler.step()
            if by_hand:
                observer.step(n + 1)
    return observer.result()


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_schedule_that_ends_is_not_a_snap(by_hand):
    """Cosine to 0, or a learning rate of 0 for the last steps: heads stop, and do not snap."""
    cosine = lambda n: (1 + np.cos(np.pi * n / 60)) / 2  # noqa: E731
    factor = (lambda n: float(n < 40)) if by_hand else cosine
    result = schedule(NanoGPT(), factor, 60, every=3, by_hand=by_hand)
    sums = result["learning_rate_sum"].values
    spent = np.cumsum([0.0, *(0.05 * factor(n) for n in range(60))])[::3]
    np.testing.assert_allclose(sums, spent, rtol=1e-6)
    assert np.isnan(result["snap_step"]).all()
    assert (result["snap_state"] == STOPPED).all()
    assert (result["snap_speed_left"] > 0.02).all()
    assert "stopped by the schedule" in " ".join(in_words(result))


def test_attention_that_comes_to_rest_at_a_constant_learning_rate_snaps():
    model = NanoGPT()
    attention = [p for name, p in model.named_parameters() if "qkv" in name]
    optimizer = torch.optim.SGD([{"params": attention, "lr": 0.1}])
    with attnlab.observe(model, probe=tokens(4), every=1, **FEW) as observer:
        for n in range(20):
            for weight in attention:
                weight.grad = weight.detach() * (-1.0 if n < 8 else -1e-5)
            optimizer.step()
    result = observer.result()
    assert (result["snap_state"] == SNAPPED).all()
    assert (result["snap_step"] == 8).all()
    assert (result["snap_low"] <= 7).all() and (result["snap_high"] >= 8).all()
    assert (result["snap_moved_since"] < 1e-3).all()


def test_maps_redrawn_at_records_further_and_further_apart_cannot_tell():
    model, records = NanoGPT(), [0, *(2**k for k in range(8))]
    observer = attnlab.observe(model, probe=tokens(4), every=1, learning_rate=0.1, **FEW)
    for n in records:
        torch.manual_seed(n)
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(torch.randn_like(weight) / 4)
        observer.step(n)
    result = observer.result()
    assert (result["snap_state"] == UNKNOWN).all()
    assert np.isnan(result["snap_step"]).all()
    assert "cannot tell. The records hold" in " ".join(in_words(result))


def test_without_a_learning_rate_no_snap_is_claimed():
    model = NanoGPT()
    observer = attnlab.observe(model, probe=tokens(4), every=1, **FEW)
    for n in range(20):
        with torch.no_grad():
            for weight in model.parameters():
                weight *= 1.1 if n < 8 else 1 + 1e-6
        observer.step(n)
    result = observer.result()
    assert "learning_rate_sum" not in result.coords
    assert (result["snap_state"] == UNKNOWN).all()
    assert "the learning rate is not known" in " ".join(in_words(result))
    with pytest.raises(InputError, match="learning_rate: expected a number from 0 on"):
        attnlab.observe(model, probe=tokens(4), learning_rate=-1.0)


def test_learning_rates_of_the_attentions_own_parameters():
    """Two optimizers: the attention's rate counts, whichever of them has it; a rate may be a
    tensor, and one that has none is not known."""
    model = NanoGPT()
    attention = [p for name, p in model.named_parameters() if "attention" in name]
    others = [p for name, p in model.named_parameters() if "attention" not in name]
    fast = torch.optim.SGD(others, lr=9.0)
    slow = torch.optim.SGD(attention, lr=torch.tensor(0.5))
    observer = attnlab.observe(model, probe=tokens(2), every=1, **FEW)
    observer.step(0)
    for n in range(1, 4):
        fast.step()
        slow.step()
        observer.step(n)
    np.testing.assert_allclose(observer.result()["learning_rate_sum"], [0, 0.5, 1.0, 1.5])
    slow.param_groups[0]["lr"] = None
    rates = LearningRateSum()
    rates.add(slow, {id(p) for p in attention})
    assert rates.at(1) is None


def test_the_learning_rate_that_a_trainer_logged(tmp_path):
    state = {
        "log_history": [
            {"step": 0, "learning_rate": 1.0},
            {"step": 10, "learning_rate": 0.0},
            {"step": 5, "loss": 1.0},
        ]
    }
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    steps, folders = [0, 5, 10, 20], [tmp_path] * 4
    found = sums_of_checkpoints(steps, folders, None)
    np.testing.assert_allclose(found, [0, 3.75, 5.0, 5.0])
    assert sums_of_checkpoints(steps, folders, 0.1) == pytest.approx([0, 0.5, 1.0, 2.0])
    for broken in ("", "[]", '{"log_history": 3}', '{"log_history": [{"learning_rate": "x"}]}'):
        (tmp_path / "trainer_state.json").write_text(broken)
        assert sums_of_checkpoints(steps, folders, None) is None


def in_threads(*functions):
    """Run functions at the same time; the first to fail fails here."""
    with ThreadPoolExecutor(len(functions)) as pool:
        for done in [pool.submit(function) for function in functions]:
            done.result()


def process_settings():
    """What belongs to the process and not to a thread."""
    return (
        torch.backends.mha.get_fastpath_enabled(),
        torch.get_float32_matmul_precision(),
        torch.get_deterministic_debug_mode(),
        functional.scaled_dot_product_attention,
        functional.multi_head_attention_forward,
        functional.softmax,
        torch.softmax,
        torch.backends.mha.get_fastpath_enabled,
        *(source.captures for source in SOURCES),
    )


def test_models_in_other_threads_are_not_seen():
    """Threads that evaluate other models, and the same one on other tokens."""
    model, probe = NanoGPT().eval(), make_probe(NanoGPT(), tokens(2))
    others = [NanoGPT(heads=2, layers=3, seed=5).eval(), small_model("llama"), model]
    expected, before = take_snapshot(model, probe, min_keys=8), process_settings()
    over = threading.Event()

    def run(other):
        ids = tokens(3, seed=4)
        with torch.no_grad():
            wanted = other(ids)
            while not over.is_set():
                found = other(ids)
                assert torch.equal(
                    getattr(found, "logits", found), getattr(wanted, "logits", wanted)
                )

    def measure():
        try:
            for _ in range(15):
                found = take_snapshot(model, probe, min_keys=8)
                assert found.order == expected.order and not found.unseen
                for layer in found.order:
                    for name in ("entropy", "max_logit", "received", "mean_distance"):
                        np.testing.assert_array_equal(
                            found.layers[layer][name], expected.layers[layer][name]
                        )
        finally:
            over.set()

    in_threads(measure, *(functools.partial(run, other) for other in others))
    assert process_settings() == before


def test_measurements_in_two_threads_leave_everything_as_it_was():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    models = {
        encoder: make_probe(encoder, (torch.randn(2, 24, 32),)),
        (drawing := Drawing()): make_probe(drawing, tokens(2)),
    }
    expected = {model: take_snapshot(model, probe, min_keys=8) for model, probe in models.items()}
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(3)
    before, drawn = process_settings(), torch.get_rng_state()
    try:

        def measure(model):
            for _ in range(25):
                found = take_snapshot(model, models[model], min_keys=8)
                assert found.order == expected[model].order
                for one in found.order:
                    np.testing.assert_array_equal(
                        found.layers[one]["entropy"], expected[model].layers[one]["entropy"]
                    )

        in_threads(*(lambda model=model: measure(model) for model in models))
        assert process_settings() == before
        assert torch.equal(torch.get_rng_state(), drawn)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_live_a_forward_of_another_thread_is_not_the_training():
    model, others = NanoGPT(), NanoGPT(seed=3).eval()
    observer = attnlab.observe(model, live=True, every=1, **FEW)
    observer.step(0)
    over, begun = threading.Event(), threading.Event()

    def run():
        with torch.no_grad():
            while not over.is_set():
                model(tokens(4, seed=9))
                others(tokens(4, seed=9))
                begun.set()

    def one_step():
        begun.wait()
        loss_of(model, tokens(2)).backward()
        over.set()

    in_threads(one_step, run)
    observer.finish(1)
    wanted = take_snapshot(model, make_probe(model, tokens(2)), min_keys=8)
    found = observer.result().isel(step=0)
    for layer, name in enumerate(wanted.order):
        np.testing.assert_allclose(
            found["entropy"].values[layer],
            wanted.layers[name]["entropy"].mean("sequence"),
            rtol=1e-5,
        )


class Padded(nn.Module):
    """Attention that is given its padding under a name of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(97, 32)
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x, fill=None, *, causal=False, shown=None):
        x = self.embed(x)
        q, k, v = (
            one(x).view(*x.shape[:2], 4, 8).transpose(1, 2) for one in (self.q, self.k, self.v)
        )
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
        mask = (mask.tril() if causal else mask)[None, None]
        if fill is not None:
            blind = ~(seen := mask & ~fill[:, None, None, :]).any(-1, keepdim=True)
            # softmax over no key is not a number
            all_keys = torch.ones_like(seen)
            rows = {
                "all": all_keys,
                "own": torch.eye(len(mask[0, 0]), dtype=torch.bool),
                "before": mask,
            }
            mask = seen if shown is None else seen | (blind & rows[shown])
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize("causal", [False, True])
def test_padding_under_any_name_is_left_out(causal):
    model, ids = Padded().eval(), tokens(2)
    model.forward = functools.partial(model.forward, causal=causal)
    fill = torch.zeros(2, LENGTH, dtype=torch.bool)
    fill[1, 15:] = True
    both = take_snapshot(model, make_probe(model, (ids, fill)), min_keys=8).layers[""]
    alone = take_snapshot(model, make_probe(model, ids[1:, :15]), min_keys=8).layers[""]
    for name in ("entropy", "mean_distance", "visible_keys", "max_logit", "alpha_1"):
        np.testing.assert_allclose(both[name][1], alone[name][0], rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("shown", ["all", "own", "before"])
def test_padding_before_the_text_whose_queries_see_keys_is_left_out(shown):
    model, ids = Padded().eval(), tokens(2)
    model.forward = functools.partial(model.forward, causal=True, shown=shown)
    fill = torch.zeros(2, LENGTH, dtype=torch.bool)
    fill[1, :9] = True
    ids[1, :9] = 0
    both = take_snapshot(model, make_probe(model, (ids, fill)), min_keys=8).layers[""]
    alone = take_snapshot(model, make_probe(model, ids[1:, 9:]), min_keys=8).layers[""]
    whole = take_snapshot(model, make_probe(model, ids[:1]), min_keys=8).layers[""]
    for name in ("entropy", "mean_distance", "visible_keys", "max_logit", "alpha_1", "sink_mass"):
        np.testing.assert_allclose(both[name][1], alone[name][0], rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(both[name][0], whole[name][0], rtol=1e-5, err_msg=name)


def test_padding_given_by_position_is_left_out():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, fill = torch.randn(2, LENGTH, 32), torch.zeros(2, LENGTH, dtype=torch.bool)
    fill[1, 15:] = True
    for one, given in ((model, (x, None, fill)), (layer.eval(), (x, None, fill))):
        probe = make_probe(one, given)
        assert torch.equal(probe.side.real, ~fill)
        both, alone = (
            take_snapshot(one, made, min_keys=8) for made in (probe, make_probe(one, (x[1:, :15],)))
        )
        for name in both.order:
            np.testing.assert_allclose(
                both.layers[name]["mean_distance"][1],
                alone.layers[name]["mean_distance"][0],
                rtol=1e-4,
            )


class Translating(nn.Module):
    """An encoder and a decoder in plain torch, under names of their own."""

    def __init__(self, names=("encoder", "decoder")):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.names = nn.Embedding(97, 32), names
        self.add_module(names[0], nn.TransformerEncoderLayer(32, 4, 64, batch_first=True))
        self.add_module(names[1], nn.TransformerDecoderLayer(32, 4, 64, batch_first=True))

    def forward(self, src, tgt):
        encode, decode = (self.get_submodule(name) for name in self.names)
        return decode(self.embed(tgt), encode(self.embed(src)))


def test_a_decoder_has_the_tokens_that_it_reads():
    src, tgt = tokens(2), tokens(2, seed=7)
    for given in ((src, tgt), {"src": src, "tgt": tgt}):
        model = Translating().eval()
        found = take_snapshot(model, make_probe(model, given), min_keys=8).layers
        wanted = {"encoder.self_attn": src, "decoder.self_attn": tgt, "decoder.multihead_attn": src}
        assert list(found) == list(wanted)
        assert [one["kind"].item() for one in found.values()] == ["self", "self", "cross"]
        for layer, ids in wanted.items():
            np.testing.assert_array_equal(found[layer]["token"], ids, err_msg=layer)
    model = Translating(("first", "second")).eval()  # which reads what, their names do not tell
    found = take_snapshot(model, make_probe(model, (src, tgt)), min_keys=8).layers
    assert not any("token" in found[f"{name}.self_attn"].coords for name in ("first", "second"))
    shorter = take_snapshot(model, make_probe(model, (src, tgt[:, :20])), min_keys=8).layers
    np.testing.assert_array_equal(shorter["second.self_attn"]["token"], tgt[:, :20])
    np.testing.assert_array_equal(shorter["first.self_attn"]["token"], src)


def test_prefix_keys_keep_statistics_of_positions_and_tokens():
    """Prefix tuning of a causal model, as transformers is given it."""
    from transformers import DynamicCache

    model, ids = small_model("llama"), tokens(2, 20)

    class Prefix(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            keys = torch.linspace(-1, 1, 2 * 2 * 4 * 8).view(2, 2, 4, 8)
            cache = DynamicCache()
            for layer in range(2):
                cache.update(keys, -keys, layer)
            mask = torch.ones(2, 24, dtype=torch.long)
            return self.model(ids, past_key_values=cache, attention_mask=mask)

    prefixed = Prefix()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = take_snapshot(prefixed, make_probe(prefixed, ids), min_keys=8).layers
    for one in found.values():
        assert one["kind"].item() == "self" and one.sizes["key"] == 24
        assert {"mean_distance", "induction_mass", "retained_mass"} <= set(one)
        np.testing.assert_array_equal(one["token"][:, 4:], ids)
        np.testing.assert_array_equal(one["token"][:, :4], [[-1, -2, -3, -4]] * 2)


class FoldedByHand(nn.Module):
    """One head by its shape, of which nothing tells what is folded into the batch."""

    def forward(self, x):
        x = x.unflatten(-1, (4, 8)).transpose(1, 2).flatten(0, 1)
        return functional.scaled_dot_product_attention(x, x, x)


def test_possible_folding_into_the_batch_warns():
    probe = make_probe(FoldedByHand(), (torch.randn(2, 24, 32),))
    with pytest.warns(UserWarning, match="8 sequences of one head, where the batch has 2"):
        take_snapshot(FoldedByHand(), probe, min_keys=8)


class ByFlex(nn.Module):
    def __init__(self, how="imported"):
        super().__init__()
        self.fn = torch.compile(flex_attention) if how == "compiled" else flex_attention
        self.how = how

    def forward(self, x):
        x = x[:, None]
        attend = flex_attention if self.how == "imported" else self.fn
        return attend(x, x, x)[:, 0]


class ByChunks(nn.Module):
    """A softmax of five queries at a time."""

    def forward(self, x):
        return torch.cat([(part @ x.mT).softmax(-1) @ x for part in x.split(5, 1)], 1)


class ByExponentials(nn.Module):
    def forward(self, x):
        weight = torch.exp(torch.einsum("bqd,bkd->bqk", x, x) / 32)
        return weight @ x / weight.sum(-1, keepdim=True)


class Mixed(nn.Module):
    """An SDPA layer beside another kind of attention, neither in a list."""

    def __init__(self, other):
        super().__init__()
        self.embed, self.first, self.second = nn.Embedding(97, 32), NanoGPT().blocks[0], other

    def forward(self, ids):
        return self.second(self.first(self.embed(ids)))


class BothInOne(nn.Module):
    """One module that calls torch's function, and then attends in code of its own."""

    def __init__(self):
        super().__init__()
        self.embed, self.other = nn.Embedding(97, 32), functional.scaled_dot_product_attention

    def forward(self, ids):
        x = self.embed(ids)
        x = self.other(x[:, None], x[:, None], x[:, None])[:, 0]
        return ByExponentials.forward(self, x)


@pytest.mark.parametrize(
    "other",
    [ByFlex(), ByFlex("attribute"), ByFlex("compiled"), ByChunks(), ByExponentials()],
    ids=lambda other: type(other).__name__ + getattr(other, "how", ""),
)
def test_uncaptured_attention_beside_captured_layers_is_named(other):
    with torch.compiler.set_stance("force_eager"):
        moment = take_snapshot(model := Mixed(other), make_probe(model, tokens(2)), min_keys=8)
    assert list(moment.order) == ["first.attention"]
    assert moment.unseen == {"second": type(other).__name__}


def test_uncaptured_attention_in_a_captured_module_is_named():
    model = BothInOne()
    before = model.other
    moment = take_snapshot(model, make_probe(model, tokens(2)), min_keys=8)
    assert list(moment.order) == [""] and moment.unseen == {"": "BothInOne"}
    assert model.other is before
    attention = nn.MultiheadAttention(32, 4, batch_first=True)  # it asks for its own weights
    x = torch.randn(2, 24, 32)
    given = dict.fromkeys(("query", "key", "value"), x)
    assert not take_snapshot(attention, make_probe(attention, given), min_keys=8).unseen
