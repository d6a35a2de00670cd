"""`record` in a model's code reports to the observer that measures the model."""

import numpy as np
import pytest
import torch
from small_models import NanoGPT, tokens
from torch import nn
from torch.nn import functional

import attnlab
from attnlab.files.errors import InputError
from attnlab.observing import record
from attnlab.observing import statistics as module_of_record

PROBE = tokens(2)
FEW = {"min_keys": 8}


class OwnAttention(nn.Module):
    """Causal attention in code of its own, in one head; `follows` the remedy of the message."""

    def __init__(self, follows=True):
        super().__init__()
        self.follows, self.returned = follows, []

    def forward(self, x):
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        if self.follows:
            q = k = v = x[:, None]
            self.returned.append(attnlab.observing.record(q, k, v, mask=mask))
        logits = x @ x.transpose(-1, -2) / x.shape[-1] ** 0.5
        return logits.masked_fill(~mask, -torch.inf).softmax(-1) @ x


def model_with(*attention):
    model = NanoGPT(layers=len(attention))
    for block, own in zip(model.blocks, attention, strict=True):
        block.attention = own
    return model


def test_following_the_message_of_an_unseen_model_measures_it():
    model = model_with(OwnAttention(follows=False), OwnAttention(follows=False))
    with pytest.raises(InputError, match=r"inside it call attnlab.observing.record\(query, key"):
        attnlab.observe(model, probe=PROBE, **FEW).step(0)
    for block in model.blocks:
        block.attention.follows = True
    observer = attnlab.observe(model, probe=PROBE, **FEW)
    observer.step(0)
    result = observer.result().isel(step=0)
    assert result.module.values.tolist() == ["blocks.0.attention", "blocks.1.attention"]
    assert result.attrs["unseen"] == "{}"
    assert "induction_mass" in result  # by the tokens of the probe
    with torch.no_grad():
        x = model.blocks[0].norm(model.tokens(PROBE) + model.places(torch.arange(24)))[:, None]
    mask = torch.ones(24, 24, dtype=torch.bool).tril()
    wanted = record(x, x, x, mask=mask, tokens=PROBE, **FEW).isel(layer=0)
    for name in ("entropy", "max_logit", "induction_mass", "retained_mass"):
        np.testing.assert_allclose(result[name].isel(layer=0), wanted[name], rtol=1e-5)


def test_a_training_is_measured_by_the_observer_alone(monkeypatch):
    model, alone = model_with(OwnAttention(), OwnAttention()), []
    measure = module_of_record.measure_call
    monkeypatch.setattr(
        module_of_record, "measure_call", lambda *a, **k: alone.append(1) or measure(*a, **k)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with attnlab.observe(model, probe=PROBE, every=2, **FEW) as observer:
        for _ in range(2):
            model(PROBE).square().mean().backward()
            optimizer.step()
        outside = record(*torch.randn(2, 1, 2, 24, 8), causal=True)
    assert observer.history.steps == [0, 2]
    assert len(alone) == 1 and "entropy" in outside  # what is not in a model is measured
    assert all(not dict(one) for block in model.blocks for one in block.attention.returned)
    model(PROBE)
    assert "entropy" in model.blocks[0].attention.returned[-1]  # nobody observes


def test_live_the_call_of_the_training_is_measured():
    model = model_with(OwnAttention(), OwnAttention())
    observer = attnlab.observe(model, live=True, every=1, **FEW)
    observer.step(0)
    model(PROBE)
    observer.finish(1)
    assert observer.result().module.values.tolist() == ["blocks.0.attention", "blocks.1.attention"]


class Corrected(nn.Module):
    """Calls torch's function, and `record` before it or after it."""

    def __init__(self, first=True):
        super().__init__()
        self.first = first

    def forward(self, x):
        q, bias = x[:, None], torch.linspace(-3, 3, x.shape[1])[None]
        if self.first:
            record(q, q, q, mask=bias)
        y = functional.scaled_dot_product_attention(q, q, q, attn_mask=bias)
        if not self.first:
            record(q, q, q, mask=bias)
        return y[:, 0]


def test_a_recorded_call_replaces_captured_ones_of_its_module():
    model = model_with(Corrected(), Corrected())
    observer = attnlab.observe(model, probe=PROBE, **FEW)
    observer.step(0)
    assert observer.result().module.values.tolist() == ["blocks.0.attention", "blocks.1.attention"]
    model = model_with(Corrected(first=False))
    with pytest.raises(InputError, match="blocks.0.attention has called an attention function bef"):
        attnlab.observe(model, probe=PROBE, **FEW).step(0)
